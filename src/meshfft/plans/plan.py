"""Plans: a transform chosen, priced and ready to run, before any array exists.

A Plan is frozen and hashable: printing it teaches what will happen; calling it does it, forward, back and adjoint.
"""

import dataclasses
import functools
import textwrap
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh

from ..layout.layout import AnyMesh, Layout, axis_sizes, hashed_once, mapped_axes
from ..layout.memory import check_blocks, room_of
from ..layout.padded_array import stored_of
from ..layout.placement import mesh_here
from ..machine.machine import Machine, Seconds
from ..machine.work import Work
from ..numerics.dtypes import Dot, real_dtype
from ..numerics.units import quantity
from ..operators.points import Points
from ..operators.transform import Transform
from ..walks.walk import Walk
from .execute import applied
from .intake import taken
from .inverse_solve import Solution, System, Weights, solution
from .request import Request, formed, is_planes, parts
from .table import WIDTH, machine_words, memory_words, time_words, walk_table


@hashed_once
@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """A walk for arrays of one shape on one mesh; made by `plan`.

    Attributes:
        walk: the steps, and the layouts between them.
        transform: what is computed: dimensions, lengths, sign and factor.
        mesh: the mesh it runs on, concrete or described; None for one device.
        dtype: the complex type it computes in; real arrays are of its planes' type.
        method: the method asked for.
        order: "natural" or "any".
        machine: what priced the walks.
        dots: the ways to multiply that the precision allows.
        points: where each transformed dimension is sampled; None where it is uniform.
    """

    walk: Walk
    transform: Transform
    mesh: AnyMesh | None
    dtype: np.dtype
    method: str
    order: str
    machine: Machine
    dots: tuple[Dot, ...]
    points: tuple[Points | None, ...] = ()

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
    def in_dtype(self) -> np.dtype:
        """The type of the input: the complex one, or the real one of its planes."""
        return real_dtype(self.dtype) if self.walk.real else self.dtype

    @property
    def out_dtype(self) -> np.dtype:
        """The type of the result."""
        return real_dtype(self.dtype) if self.walk.reals[-1] else self.dtype

    @property
    def name(self) -> str:
        """The steps in a few words."""
        return "; ".join(step.name(layout) for step, layout in self.walk.pairs)

    @property
    def work(self) -> Work:
        """What the walk costs one device."""
        return self.walk.work(self.dtype.itemsize, self.machine.chip)

    @property
    def peak_bytes(self) -> int:
        """Modelled bytes alive on one device at the worst moment, input and output included."""
        return self.work.peak_bytes

    @property
    def seconds(self) -> float | None:
        """Modelled seconds; None where no rates are known for the devices."""
        return None if self.machine.chip.rough else self.seconds_by_resource.total

    @property
    def seconds_by_resource(self) -> Seconds:
        """Modelled seconds of products, of other arithmetic, of memory and of links, and in all."""
        works = self.walk.works(self.dtype.itemsize, self.machine.chip)
        return (
            Seconds(*map(sum, zip(*map(self.machine.seconds, works), strict=True))) if works else Seconds(0, 0, 0, 0, 0)
        )

    @property
    def fits(self) -> bool | None:
        """Whether the modelled peak is within a device's memory; None where that is not known."""
        capacity = self.machine.chip.capacity
        return None if capacity is None else self.peak_bytes <= capacity.value

    @property
    def error(self) -> float:
        """Relative L2 error to expect of the result; measured ones lie under it (tests/numerics/test_products.py)."""
        return self.walk.error(self.dtype.itemsize)

    @property
    def compiler_options(self) -> dict[str, str | bool]:
        """Options with which a program sends while it computes (TPUs) or asks for memory that is kept (CPUs), for a
        `jax.jit` of the caller's own around the plan.

        Calls outside `jit` have them already. Chunks hold a block, which planes and what the caller computes besides
        take; the compiler warns of every array that is larger.
        """
        return dict(self.walk.compiler_options(self.dtype.itemsize, self.machine.chip, whole=False))

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives one run on an array does, each hop of a ring counted."""
        return self.walk.collectives

    @property
    def stages(self) -> tuple["Plan", ...]:
        """A plan for each step; one after the other they do the same."""
        matrices = dict(zip(self.transform.dims, self.transform.matrices, strict=True))
        stages = []
        for walk in self.walk.stages():
            (step,) = walk.steps
            part = Transform(step.dims, tuple(matrices[d] for d in step.dims), walk.scale)
            points: tuple[Points | None, ...] = (None,) * len(step.dims)
            if step.slot is not None:
                points = (self.points[step.slot],)
            walk = dataclasses.replace(walk, steps=(step.at_slot(0),))
            stages.append(dataclasses.replace(self, walk=walk, transform=part, points=points))
        return tuple(stages)

    def execute(self, request: Request, sources: tuple[Any, ...] = ()) -> Any:
        """The transform of what was asked for, in the form it came; `sources` are points or matrices of its own."""
        where = (self.mesh, self.machine.chip, self.dtype, request.planes)
        return formed(applied(request.arrays, self.walk, sources or self.points, *where))

    def __call__(self, x: Any) -> Any:
        """The transform of an array in `in_layout`; a NumPy array of `shape` is put on the mesh first.

        Where sizes do not divide, arrays are PaddedArrays, as `mf.shard` makes them.
        """
        return self._run(self.walk, x)

    def inverse(self, y: Any) -> Any:
        """The input whose transform is y, by the walk reversed; what `s` cropped away comes back as zeros.

        Raises:
            ValueError: the samples are not uniform: their inverse is a system of equations, for `solve`.
        """
        scale = self.transform.inverse_scale
        if scale is None:
            raise ValueError("the samples are not the uniform ones: solve for the input with plan.solve(y)")
        return self._run(_inverse(self.walk, scale), y)

    def solve(self, y: Any, *, tikhonov: float | None = None, truncation: float | None = None) -> Solution:
        """The input whose samples are y, what its value is worth, and how it was found: `ikdftn` on stored arrays.

        Raises:
            ValueError: as `ikdftn`.
        """
        arrays = self._all_placed(self.out_layout, y)
        points = self.points or (None,) * len(self.transform.dims)
        where = (self._mesh_of(arrays[0]), self.machine, self.dtype, self.dots)
        system = System(self.in_layout, self.out_layout, self.transform, points, self.method, *where)
        return solution(arrays, system, Weights(tikhonov, truncation))

    def adjoint(self, y: Any) -> Any:
        """The conjugate transpose: <plan(x), y> = <x, plan.adjoint(y)>."""
        return self._run(_adjoint(self.walk), y)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        work = self.work
        return {
            "shape": list(self.shape),
            "out_shape": list(self.out_shape),
            "kind": self.transform.name,
            "dtype": self.in_dtype.name,
            "out_dtype": self.out_dtype.name,
            "mesh": axis_sizes(self.mesh),
            "method": self.method,
            "order": self.order,
            "in_layout": self.in_layout.label(),
            "out_layout": self.out_layout.label(frozenset(self.transform.dims)),
            "steps": [self._step_dict(stage) for stage in self.stages],
            "bytes_per_device": work.sent_bytes,
            "flops_per_device": work.flops,
            "all_to_alls": work.all_to_alls,
            "hops": work.hops,
            "peak_bytes_per_device": work.peak_bytes,
            "error_expected": self.error,
            "seconds": self.seconds,
            "seconds_by_resource": None if self.seconds is None else self.seconds_by_resource._asdict(),
            "fits": self.fits,
            "chip": self.machine.chip.name,
            "device_order": None if self.machine.network is None else self.machine.network.kind,
        }

    def __str__(self) -> str:
        method = f"method {self.method}, {self.order} order, {self._tier}, ranked for {machine_words(self.machine)}"
        head = "\n".join(textwrap.fill(line, WIDTH) for line in (self._title(), method))
        table = walk_table(self.walk, self.dtype.itemsize, self.machine.chip)
        took = [] if self.seconds is None else [time_words(self.seconds_by_resource)]
        tail = [memory_words(self.peak_bytes, self.machine), *took, f"error below {self.error:.1g} expected"]
        return f"{head}\n\n{table}\n" + textwrap.fill("; ".join(tail), WIDTH)

    def __repr__(self) -> str:
        sent, peak = quantity(self.work.sent_bytes, "B"), quantity(self.peak_bytes, "B")
        return f"<Plan: {self._title()}; {len(self.walk.steps)} steps, {sent} sent, {peak} at the peak>"

    def _title(self) -> str:
        mesh = ", ".join(f"{k}={v}" for k, v in axis_sizes(self.mesh).items()) or "none"
        kind = self.transform.name
        there, back = " x ".join(map(str, self.shape)), " x ".join(map(str, self.out_shape))
        resized = f" to {back}" * (self.shape != self.out_shape)
        turned = self.in_dtype != self.out_dtype
        there, resized = there + f" {self.in_dtype.name}" * turned, resized or f" to {back}" * turned
        return f"{kind} of {there}{resized} {self.out_dtype.name}, mesh {mesh}"

    @property
    def _tier(self) -> str:
        """The precision of dense products, where there are any."""
        dots = {dot for step in self.walk.steps for dot in step.dots}
        return ", ".join(f"{d.tier} products of {d.multiplications}" for d in sorted(dots)) or self.dots[0].tier

    @staticmethod
    def _step_dict(stage: "Plan") -> dict[str, Any]:
        work = stage.work
        return {
            "step": stage.name,
            "layout": stage.out_layout.label(),
            "bytes": work.sent_bytes,
            "all_to_alls": work.all_to_alls,
            "hops": work.hops,
            "flops": work.flops,
            "peak_bytes": work.peak_bytes,
        }

    def _run(self, walk: Walk, x: Any) -> Any:
        mesh_here(self.mesh, walk.start, walk.end)
        arrays, planes = self._all_placed(walk.start, x), is_planes(x)
        if walk.real:
            found = "two planes" if len(arrays) == 2 else arrays[0].dtype
            fits = len(arrays) == 1 and arrays[0].dtype.kind != "c"
            if not fits:
                raise TypeError(f"the plan takes a real array, this is {found}: give its real part")
        mesh, chip = self._mesh_of(arrays[0]), self.machine.chip
        check_blocks(walk.end, real_dtype(self.dtype).itemsize, room_of(stored_of(arrays[0]), mesh), "the result")
        return formed(applied(arrays, walk, self.points, mesh, chip, self.dtype, planes, self.mesh))

    def _all_placed(self, layout: Layout, x: Any) -> tuple[Any, ...]:
        return tuple(taken(part, layout, self.mesh) for part in parts(x))

    def _mesh_of(self, x: Any) -> AnyMesh | None:
        """The plan's mesh, as it stands inside a caller's shard_map; where it is only described, that of the array."""
        mesh = mesh_here(self.mesh)
        x = stored_of(x)
        return jax.typeof(x).sharding.mesh if isinstance(mesh, AbstractMesh) and not mapped_axes(mesh) else mesh


@functools.lru_cache(maxsize=1024)
def _inverse(walk: Walk, scale: float) -> Walk:
    return walk.inverse(scale)


@functools.lru_cache(maxsize=1024)
def _adjoint(walk: Walk) -> Walk:
    return walk.adjoint()
