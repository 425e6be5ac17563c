"""Plans: a transform chosen and priced before any array exists; it runs forward, back or adjoint."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from ..layout.layout import AnyMesh, Layout, axis_sizes, hashed_once
from ..layout.memory import check_blocks, room_of
from ..layout.padded_array import AnyArray, AnyStored, Transformed, stored_of
from ..layout.placement import needs_anchor
from ..layout.reading import fitted, mesh_here
from ..machine.machine import Machine, Seconds, Work
from ..machine.topology import mesh_as
from ..numerics.dtypes import Dot, check_planned, real_dtype
from ..numerics.units import quantity
from ..operators.operands import OperandSource
from ..operators.points import Points
from ..operators.transform import Transform
from ..steps.base import at_slot, slot_of
from ..steps.problem import Options
from ..walks.picture import show, svg
from ..walks.walk import Walk
from .execute import applied, check_donated
from .inverse_solve import Solution, solution
from .iterative_solve import System
from .request import Request, formed, is_planes, method_on_arrays, parts
from .table import plan_html, plan_text, plan_values, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@jax.tree_util.register_static  # an argument of `jit` too
@hashed_once
@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """A walk for arrays of one shape on one mesh; made by `plan`.

    Attributes:
        walk: the steps, and the layouts between them.
        transform: dimensions, lengths, sign and factor.
        mesh: the mesh it runs on, concrete or described; None for one device.
        dtype: the complex type it computes in.
        options: method, order and so on, without those for one call.
        machine: the machine model that priced the walks.
        dots: the ways to multiply that the precision allows.
        sources: the steps' operands, in order: Points, tables, or None.
        trials: seconds of this walk, then of the other walks that
            effort="measure" ran.

    >>> from jax.sharding import AbstractMesh
    >>> plan = mf.plan((256, 256), mesh=AbstractMesh((8,), ("x",)))
    >>> plan.in_layout.label(), plan.in_layout.block
    ('A[X_x, Y]', (32, 256))
    """

    walk: Walk
    transform: Transform
    mesh: AnyMesh | None
    dtype: np.dtype
    options: Options
    machine: Machine
    dots: tuple[Dot, ...]
    sources: tuple[OperandSource | None, ...] = ()
    trials: tuple[float, ...] = ()

    @property
    def in_layout(self) -> Layout:
        """The layout of the input."""
        return self.walk.start

    @property
    def out_layout(self) -> Layout:
        """The layout of the result."""
        return self.walk.end

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape of the input."""
        return self.in_layout.shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Logical shape of the result."""
        return self.out_layout.shape

    @property
    def margin(self) -> tuple[int, ...]:
        """Ghost cells on either side of every block, by transformed axis."""
        pairs = zip(self.transform.dims, self.transform.lengths, strict=True)
        return tuple((self.out_shape[d] - n) // (2 * self.out_layout.parts[d]) for d, n in pairs)

    @property
    def in_dtype(self) -> np.dtype:
        """The type of the input."""
        return real_dtype(self.dtype) if self.walk.real else self.dtype

    @property
    def out_dtype(self) -> np.dtype:
        """The type of the result."""
        return real_dtype(self.dtype) if self.walk.reals[-1] else self.dtype

    @property
    def name(self) -> str:
        """The steps in a few words."""
        return self.walk.name

    @property
    def work(self) -> Work:
        """Work of the walk on one device."""
        return self.walk.work(self.dtype.itemsize, self.machine.chip)

    @property
    def peak_bytes(self) -> int:
        """Modelled peak memory of one device, with input and output, in bytes."""
        return self.work.peak_bytes

    @property
    def seconds(self) -> float | None:
        """Modelled seconds; None if the devices' rates are unknown."""
        return None if self.machine.chip.rough else self.seconds_by_resource.total

    @property
    def seconds_by_resource(self) -> Seconds:
        """Modelled seconds of arithmetic, memory and links, and in all."""
        works = self.walk.works(self.dtype.itemsize, self.machine.chip)
        each = [Seconds(0, 0, 0, 0, 0), *map(self.machine.seconds, works)]
        return Seconds(*map(sum, zip(*each, strict=True)))

    @property
    def fits(self) -> bool | None:
        """Whether the peak is within a device's memory, if that is known."""
        capacity = self.machine.chip.capacity
        return None if capacity is None else self.peak_bytes <= capacity.value

    @property
    def error(self) -> float:
        """A bound on the relative L2 error of the result, checked on CPUs and
        GPUs (docs/accuracy.md). A constant array on TPUs, or in nonuniform
        FFTs an input in phase with the window's error, may exceed it.

        With `points` it is relative to the norm of the samples or, if larger,
        to the norm that they have for white noise as large as the input.
        """
        return self.walk.error(self.dtype.itemsize, self.machine.chip.rounding)

    @property
    def compiler_options(self) -> dict[str, str | bool]:
        """Compiler options for your `jax.jit` around the plan: to send while
        computing (TPUs) or to reuse memory (CPUs). Eager calls use them.
        """
        return dict(self.walk.compiler_options(self.dtype.itemsize, self.machine.chip, plain=False))

    @property
    def collectives(self) -> dict[str, int]:
        """The collectives of a run, each hop of a ring counted."""
        return self.walk.collectives

    @property
    def stages(self) -> tuple["Plan", ...]:
        """A plan for each step; in sequence they equal this plan."""
        matrices, stages = dict(zip(self.transform.dims, self.transform.matrices, strict=True)), []
        for walk in self.walk.stages():
            (step,) = walk.steps
            dims = tuple(d for d in step.dims if d in matrices)
            part = Transform(dims, tuple(matrices[d] for d in dims), walk.scale)
            sources = (None,) * len(step.dims) if (slot := slot_of(step)) is None else (self.sources[slot],)
            walk = dataclasses.replace(walk, steps=(at_slot(step, 0),))
            stages.append(dataclasses.replace(self, walk=walk, transform=part, sources=sources, trials=()))
        return tuple(stages)

    def execute(
        self, request: Request, sources: tuple[object, ...] = (), donate: bool = False, adjoint: bool = False
    ) -> Transformed:
        """The transform of a request, or its adjoint, with points or matrices."""
        walk, where = self.walk, (self.mesh, self.machine.chip, self.dtype, request.planes)
        walk = _adjoint(walk) if adjoint else walk
        return formed(applied(request.arrays, walk, sources or self.sources, *where, donate=donate))

    @method_on_arrays
    def __call__(self, x: AnyArray, *, donate: bool = False) -> Transformed:
        """The transform of an array in `in_layout`; a NumPy array of `shape` is
        first put on the mesh.

        Arrays whose sizes the mesh does not divide are PaddedArrays, as
        `mf.shard` makes them; `donate` as for `fftn`.
        """
        return self._run(self.walk, x, donate)

    @method_on_arrays
    def inverse(self, y: AnyArray, *, donate: bool = False) -> Transformed:
        """The input whose transform is y, by the reversed walk; elements that
        `s` cropped are zeros.

        Raises:
            ValueError: the samples are not uniform, and need `solve`.
        """
        scale = self.transform.inverse_scale
        if scale is None:
            raise ValueError("the samples are not the uniform ones: solve for the input with plan.solve(y)")
        return self._run(_inverse(self.walk, scale), y, donate)

    def solve(
        self,
        y: AnyArray,
        *,
        tikhonov: float | None = None,
        truncation: float | None = None,
        method: str = "auto",
        tol: float | None = None,
        iterations: int | None = None,
    ) -> Solution:
        """The input whose samples are y, with its condition and residual, by
        `ikdftn`; at scattered points by the plan's own steps.

        Raises:
            ValueError: as `ikdftn`; the plan has margins.
        """
        return self._solution(y, tikhonov, truncation, method, tol, iterations)

    def _solution(self, y: AnyArray, *how: Any) -> Solution:
        if any(self.margin):
            raise ValueError(f"the plan leaves out margins of {self.margin}: solve with a plan of arrays without them")
        arrays = self._fitted(self.out_layout, y)
        given = (getattr(one, "source", one) for one in self.sources)  # of kept rows
        points = tuple(one if isinstance(one, Points) else None for one in given) or (None,) * len(self.transform.dims)
        options = Options(self.options.method, ring=self.options.ring)
        what = (self.in_layout, self.out_layout, self.transform, points, options)
        where = (self._mesh_of(arrays[0]), self.machine, self.dtype, self.dots)
        return solution(arrays, System(*what, *where, *how))

    @method_on_arrays
    def adjoint(self, y: AnyArray, *, donate: bool = False) -> Transformed:
        """The conjugate transpose: <plan(x), y> = <x, plan.adjoint(y)>."""
        return self._run(_adjoint(self.walk), y, donate)

    def device_mesh(self, devices: Sequence[jax.Device] | None = None) -> Mesh:
        """A mesh of these devices, by default all, with Auto axes, in the
        plan's order.

        Raises:
            ValueError: their number, nodes or slices are not the plan's.
        """
        return mesh_as(self.machine, axis_sizes(self.mesh), jax.devices() if devices is None else devices)

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values, for JSON."""
        return plan_values(self)

    def show(self) -> "Figure":
        """Draws the devices' blocks before and after every step, in a window if
        matplotlib has one.

        Raises:
            ImportError: matplotlib is missing.
            ValueError: the array has no elements, or there are over 256
                devices.
        """
        return show(self.walk, axis_sizes(self.mesh), title(self))

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self, [svg(layout, axis_sizes(self.mesh)) for layout in self.walk.layouts])

    def __repr__(self) -> str:
        sent, peak = quantity(self.work.sent_bytes, "B"), quantity(self.peak_bytes, "B")
        return f"<Plan: {title(self)}; {len(self.walk.steps)} steps, {sent} sent, {peak} at the peak>"

    def _run(self, walk: Walk, x: AnyArray, donate: bool) -> Transformed:
        mesh_here(self.mesh, walk.start, walk.end)
        arrays = self._fitted(walk.start, x)
        if walk.real and (len(arrays) == 2 or arrays[0].dtype.kind == "c"):
            raise TypeError("the plan takes a real array, this one is complex: give its real part")
        if donate:
            check_donated(arrays, walk, self.dtype, is_planes(x))
        mesh = self._mesh_of(arrays[0])
        check_blocks(walk.end, real_dtype(self.dtype).itemsize, room_of(stored_of(arrays[0]), mesh), "the result")
        where = (mesh, self.machine.chip, self.dtype, is_planes(x), self.mesh)
        return formed(applied(arrays, walk, self.sources, *where, donate))

    def _fitted(self, layout: Layout, x: AnyArray) -> tuple[AnyStored, ...]:
        arrays = tuple(fitted(part, layout, self.mesh) for part in parts(x))
        check_planned(arrays[0].dtype, self.dtype, self.options.precision)
        return arrays

    def _mesh_of(self, x: AnyStored) -> AnyMesh | None:
        mesh = mesh_here(self.mesh)  # inside a caller's shard_map, too
        return jax.typeof(stored_of(x)).sharding.mesh if needs_anchor(mesh) else mesh


_inverse, _adjoint = functools.lru_cache(maxsize=1024)(Walk.inverse), functools.lru_cache(maxsize=1024)(Walk.adjoint)
