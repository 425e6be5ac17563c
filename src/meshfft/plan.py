"""Plans: a transform chosen, priced and ready to run, before any array exists.

A Plan is frozen and hashable: printing it teaches what will happen; calling it does it, forward, back and adjoint.
"""

import dataclasses
import functools
import textwrap
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.typing import DTypeLike

from .arguments import Transform, check_once, integers, resolve, transform_of
from .choice import chip_of, find_walk
from .dispatch import Setting, applied, formed, is_pair, received
from .dtypes import complex_dtype, dots_of
from .errors import check
from .hardware import GENERIC, Chip
from .layout import AnyMesh, Layout, Spec, axis_sizes, from_spec
from .points import Points, entries, sampled
from .solve import Solution, Weights, solution
from .storage import shard
from .table import WIDTH, quantity, walk_table
from .tiers import Dot
from .walk import Walk
from .work import Work


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """A walk for arrays of one shape on one mesh; made by `plan`.

    Attributes:
        walk: the steps, and the layouts between them.
        transform: what is computed: dimensions, lengths, sign and factor.
        mesh: the mesh it runs on, concrete or described; None for one device.
        dtype: the complex type it computes in and returns.
        method: the method asked for.
        order: "natural" or "any".
        chip: the row of rates that ranked the walks.
        dots: the ways to multiply that the precision allows.
        points: where each transformed dimension is sampled; None where it is uniform.
    """

    walk: Walk
    transform: Transform
    mesh: AnyMesh | None
    dtype: np.dtype
    method: str
    order: str
    chip: Chip
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
    def name(self) -> str:
        """The steps in a few words."""
        return "; ".join(step.name(layout) for step, layout in self.walk.pairs)

    @property
    def work(self) -> Work:
        """What the walk costs one device."""
        return self.walk.work(self.dtype.itemsize)

    @property
    def peak_bytes(self) -> int:
        """Modelled bytes alive on one device at the worst moment, input and output included."""
        return self.work.peak_bytes

    @property
    def seconds(self) -> float | None:
        """Modelled seconds; None where no rates are known for the devices."""
        if self.chip == GENERIC:
            return None
        return sum(self.chip.seconds(work) for work in self.walk.works(self.dtype.itemsize))

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives one run on a complex array does; on a ring one for each hop and plane."""
        counts = {"all-to-all": self.work.all_to_alls, "collective-permute": self.work.permutes}
        return {name: count for name, count in counts.items() if count}

    @property
    def stages(self) -> tuple["Plan", ...]:
        """A plan for each step; one after the other they do the same."""
        matrices = dict(zip(self.transform.dims, self.transform.matrices, strict=True))
        stages = []
        for walk in self.walk.stages():
            dims = walk.steps[0].dims
            part = Transform(dims, tuple(matrices[d] for d in dims), walk.scale)
            stages.append(dataclasses.replace(self, walk=walk, transform=part))
        return tuple(stages)

    def __call__(self, x: Any) -> Array:
        """The transform of an array stored in `in_layout`; a NumPy array of `shape` is put on the mesh first."""
        return self._run(self.walk, x)

    def inverse(self, y: Any) -> Array:
        """The input whose transform is y, by the walk reversed; what `s` cropped away comes back as zeros.

        Raises:
            ValueError: the samples are not uniform: their inverse is a system of equations, for `solve`.
        """
        scale = self.transform.inverse_scale
        if scale is None:
            raise ValueError("the samples are not the uniform ones: solve for the input with plan.solve(y)")
        return self._run(_back(self.walk, scale), y)

    def solve(self, y: Any, *, tikhonov: float | None = None, truncation: float | None = None) -> Solution:
        """The input whose samples are y, what its value is worth, and how it was found: `ikdftn` on stored arrays.

        Raises:
            ValueError: as `ikdftn`.
        """
        arrays = self._all_placed(self.out_layout, y)
        points = self.points or (None,) * len(self.transform.dims)
        setting = Setting(self.out_layout, self._mesh_of(arrays[0]), self.chip, self.dtype, self.dots)
        weights = Weights(tikhonov, truncation)
        return solution(arrays, self.in_layout, self.transform, points, weights, self.method, setting)

    def adjoint(self, y: Any) -> Array:
        """The conjugate transpose: <plan(x), y> = <x, plan.adjoint(y)>."""
        return self._run(_back(self.walk, self.walk.scale), y)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        work = self.work
        return {
            "shape": list(self.shape),
            "out_shape": list(self.out_shape),
            "dtype": self.dtype.name,
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
            "seconds_modelled": self.seconds,
            "chip": self.chip.name,
        }

    def __str__(self) -> str:
        method = f"method {self.method}, {self.order} order, ranked for {self.chip.name} devices"
        modelled = "" if self.seconds is None else f", {self.seconds:.2g} s modelled"
        head = "\n".join(textwrap.fill(line, WIDTH) for line in (self._title(), method))
        tail = f"{quantity(self.peak_bytes, 'B')} per device at the peak{modelled}"
        return f"{head}\n\n{walk_table(self.walk, self.dtype.itemsize)}\n{tail}"

    def __repr__(self) -> str:
        sent, peak = quantity(self.work.sent_bytes, "B"), quantity(self.peak_bytes, "B")
        return f"<Plan: {self._title()}; {len(self.walk.steps)} steps, {sent} sent, {peak} at the peak>"

    def _title(self) -> str:
        mesh = ", ".join(f"{k}={v}" for k, v in axis_sizes(self.mesh).items()) or "none"
        kind = "inverse transform" if self.transform.backward else "transform"
        resized = f" to {' x '.join(map(str, self.out_shape))}" * (self.shape != self.out_shape)
        return f"{kind} of {' x '.join(map(str, self.shape))}{resized} {self.dtype.name}, mesh {mesh}"

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
        arrays = self._all_placed(walk.start, x)
        return formed(applied(arrays, walk, self.points, self._mesh_of(arrays[0]), self.chip, self.dtype))

    def _all_placed(self, layout: Layout, x: Any) -> tuple[Array, ...]:
        return tuple(self._placed(layout, part) for part in (received(x) if is_pair(x) else (x,)))

    def _mesh_of(self, x: Array) -> AnyMesh | None:
        """The plan's mesh; where that is only described, the one the array shows."""
        return jax.typeof(x).sharding.mesh if isinstance(self.mesh, AbstractMesh) else self.mesh

    def _placed(self, layout: Layout, x: Any) -> Array:
        """The array stored as the walk takes it, or an error that says how to store it so."""
        remedy = f"mf.shard(x, plan.mesh, {layout.spec})"
        if not isinstance(x, jax.Array):
            check(np.shape(x) == layout.shape, f"the array has shape {np.shape(x)}, the plan takes {layout.shape}")
            x = shard(np.asarray(x), self.mesh, layout.spec) if isinstance(self.mesh, Mesh) else jax.numpy.asarray(x)
        if x.shape == layout.shape != layout.storage:
            raise ValueError(
                f"the array has its logical shape {x.shape}, the plan takes it stored as {layout.storage}: use {remedy}"
            )
        check(x.shape == layout.storage, f"the array has shape {x.shape}, the plan takes {layout.storage}")
        described = self.mesh is not None and not isinstance(self.mesh, Mesh) and jax.typeof(x).sharding.mesh.empty
        check(
            not described, "the plan's mesh is only described: plan with a jax.sharding.Mesh of real devices to run it"
        )
        cut = any(jax.typeof(x).sharding.spec) or not (isinstance(x, jax.core.Tracer) or x.sharding.is_fully_replicated)
        check(self.mesh is not None or not cut, "the array is sharded, the plan is for one device: plan with mesh=")
        if isinstance(self.mesh, Mesh) and not isinstance(x, jax.core.Tracer):
            same = x.sharding.is_equivalent_to(NamedSharding(self.mesh, layout.spec), x.ndim)
            found = getattr(x.sharding, "spec", type(x.sharding).__name__)
            check(same, f"the array is sharded as {found}, the plan takes {layout.spec} on its mesh: use {remedy}")
        return x


def plan(
    shape: Sequence[int],
    *,
    mesh: Mesh | AbstractMesh | None = None,
    spec: Spec | None = None,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    dtype: DTypeLike = "complex64",
    norm: str | None = None,
    method: str = "auto",
    order: str = "natural",
    inverse: bool = False,
    points: Points | Sequence[Points | None] | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
) -> Plan:
    """Finds the cheapest walk for a transform, without an array and without a device.

        X[k] = scale sum_n x[n] exp(-2 pi i k n / N)   along every dimension in `axes`

    Args:
        shape: logical shape; sizes need not divide the mesh, storage is padded at the tail (see `shard`).
        mesh: the device mesh, concrete or an AbstractMesh; None plans for one device.
        spec: the PartitionSpec the array comes with; None lets mesh axis i cut dimension i.
        s: transform lengths, as numpy.fft.fftn.
        axes: transformed dimensions, as numpy.fft.fftn.
        dtype: type of the input; complex64 for anything of 32 bits or fewer, complex128 otherwise.
        norm: "backward", "ortho" or "forward".
        method: "auto", "transpose", "cooley-tukey" (the paper's FFT) or "kdft" (the paper's KDFT).
        order: "natural" returns the result sharded as the input came; "any" leaves it in the cheapest layout.
        inverse: plan the inverse transform.
        points: where each axis is sampled, as `kdftn`; excludes `s` and `inverse`.
        precision: a type to compute in, or a tier for matrix products, as `kdftn`.
        multiplications: 3 or 4, as `kdftn`.

    Returns:
        A Plan, in milliseconds (see `search` for many dimensions over many mesh axes); print it, or call it.

    Raises:
        ValueError, TypeError: an argument that does not fit, with what would.
    """
    shape = integers(shape, "shape")
    check(min(shape, default=0) >= 0, f"shape {shape} has a negative size: give sizes of 0 or more")
    dims, lengths = resolve(shape, s, axes)
    complex_type, sizes = complex_dtype(np.dtype(dtype), precision), axis_sizes(mesh)
    samples = () if points is None else entries(points, dims)
    if samples:
        check(s is None and not inverse, "points cannot go with s or inverse: give as many points as are wanted")
        check_once(dims)
        transform = sampled(shape, dims, samples, norm, complex_type)
    else:
        transform = transform_of(dims, lengths, norm, inverse)
    start = from_spec(shape, sizes, _default_spec(len(shape), sizes) if spec is None else spec)
    dots = dots_of(np.dtype(dtype), precision, multiplications)
    walk = find_walk(start, transform, method, order, chip_of(mesh), complex_type.itemsize, dots)
    return Plan(walk, transform, mesh, complex_type, method, order, chip_of(mesh), dots, samples)


@functools.lru_cache(maxsize=1024)
def _back(walk: Walk, scale: float) -> Walk:
    return walk.back(scale)


def _default_spec(ndim: int, sizes: Any) -> tuple[str, ...]:
    check(
        len(sizes) <= ndim,
        f"the mesh has {len(sizes)} axes, the array {ndim} dimensions: say with spec= which axes cut which dimension",
    )
    return tuple(sizes)
