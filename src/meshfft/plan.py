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

from .arguments import Transform, resolve
from .choice import chip_of, find_walk
from .errors import check
from .hardware import CPU, Chip
from .layout import Layout, Spec, from_spec
from .precision import complex_dtype
from .primitive import AnyMesh, run
from .storage import mesh_sizes, shard
from .table import WIDTH, quantity, walk_table
from .walk import Walk
from .work import Work


@dataclasses.dataclass(frozen=True)
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
    """

    walk: Walk
    transform: Transform
    mesh: AnyMesh | None
    dtype: np.dtype
    method: str
    order: str
    chip: Chip

    @property
    def in_layout(self) -> Layout:
        return self.walk.start

    @property
    def out_layout(self) -> Layout:
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
        return "; ".join(step.name(layout) for step, layout in zip(self.walk.steps, self.walk.layouts, strict=False))

    @property
    def work(self) -> Work:
        """What the walk costs one device."""
        return self.walk.work(self.dtype.itemsize)

    @property
    def peak_bytes(self) -> int:
        """Bytes alive on one device at the worst moment, input and output included."""
        return self.work.peak_bytes

    @property
    def seconds(self) -> float:
        """Modelled seconds on the plan's chip."""
        return sum(self.chip.seconds(work) for work in self.walk.works(self.dtype.itemsize))

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives one run does, each hop of a ring counted."""
        counts = {"all-to-all": self.work.all_to_alls, "collective-permute": self.work.hops}
        return {name: count for name, count in counts.items() if count}

    @property
    def stages(self) -> tuple["Plan", ...]:
        """A plan for each step; one after the other they do the same."""
        return tuple(dataclasses.replace(self, walk=walk) for walk in self.walk.stages())

    def __call__(self, x: Any) -> Array:
        """The transform of a stored array in `in_layout`, as `out_layout`;

        a NumPy array of `shape` is put on the mesh first.
        """
        return self._run(self.walk, x)

    def inverse(self, y: Any) -> Array:
        """The input whose transform is y:

        the walk reversed, exact to rounding; what `s` cropped away comes back as zeros.
        """
        return self._run(_back(self.walk, self.transform.inverse_scale), y)

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
            "mesh": dict(mesh_sizes(self.mesh)) if self.mesh is not None else {},
            "method": self.method,
            "order": self.order,
            "in_layout": self.in_layout.label(),
            "out_layout": self.out_layout.label(frozenset(self.transform.dims)),
            "steps": [self._step_dict(stage) for stage in self.stages],
            "bytes_per_device": work.sent_bytes,
            "flops_per_device": work.flops,
            "hops": work.hops,
            "peak_bytes_per_device": work.peak_bytes,
            "seconds_modelled": self.seconds if self.chip == CPU else None,
            "chip": self.chip.name,
        }

    def __str__(self) -> str:
        mesh = ", ".join(f"{k}={v}" for k, v in mesh_sizes(self.mesh).items()) if self.mesh is not None else "none"
        kind = "inverse transform" if self.transform.sign > 0 else "transform"
        shape = " x ".join(map(str, self.shape)) + (
            f" to {' x '.join(map(str, self.out_shape))}" * (self.shape != self.out_shape)
        )
        head = f"{kind} of {shape} {self.dtype.name}, mesh {mesh}\nmethod {self.method}, {self.order} order"
        modelled = f", {self.seconds:.2g} s modelled ({self.chip.name})" if self.chip == CPU else ""
        tail = f"{quantity(self.peak_bytes, 'B')} per device at the peak{modelled}"
        head = "\n".join(textwrap.fill(line, WIDTH) for line in head.splitlines())
        return f"{head}\n\n{walk_table(self.walk, self.dtype.itemsize)}\n{tail}"

    @staticmethod
    def _step_dict(stage: "Plan") -> dict[str, Any]:
        work = stage.work
        return {
            "step": stage.name,
            "layout": stage.out_layout.label(),
            "bytes": work.sent_bytes,
            "hops": work.hops,
            "flops": work.flops,
            "peak_bytes": work.peak_bytes,
        }

    def _run(self, walk: Walk, x: Any) -> Array:
        x = self._placed(walk.start, x)
        mesh = jax.typeof(x).sharding.mesh
        return run(x, walk, (self.mesh if mesh.empty else mesh) if self.mesh is not None else None, self.dtype)

    def _placed(self, layout: Layout, x: Any) -> Array:
        if not isinstance(x, jax.Array):
            check(np.shape(x) == layout.shape, f"the array has shape {np.shape(x)}, the plan takes {layout.shape}")
            return shard(np.asarray(x), self.mesh, layout.spec) if isinstance(self.mesh, Mesh) else jax.numpy.asarray(x)
        stored = "" if layout.even else f", stored as {layout.storage}: make it with mf.shard(array, mesh, spec)"
        check(x.shape == layout.storage, f"the array has shape {x.shape}, the plan takes {layout.shape}{stored}")
        if isinstance(self.mesh, Mesh) and not isinstance(x, jax.core.Tracer):
            wanted = NamedSharding(self.mesh, layout.spec)
            check(
                x.sharding.is_equivalent_to(wanted, x.ndim),
                f"the array is sharded as {x.sharding}, the plan takes {layout.spec}: use jax.device_put(x, {wanted})",
            )
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
    precision: str | None = None,
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
        method: "auto", "transpose" (swaps and local FFTs), "cooley-tukey" (the paper's FFT) or "kdft" (the paper's
            KDFT).
        order: "natural" returns the result sharded as the input came; "any" leaves it in the cheapest layout.
        inverse: plan the inverse transform.
        precision: "float32" or "float64" to compute in another precision than the input's.

    Returns:
        A Plan; print it to see the walk and its cost, call it to run it.

    Raises:
        ValueError: a spec, axis, length, norm, method or order that does not fit, with what would.
    """
    shape = tuple(int(n) for n in shape)
    for n in shape:
        check(n >= 0, f"shape {shape} has the negative size {n}")
    transform = resolve(shape, s, axes, norm, inverse)
    sizes = mesh_sizes(mesh) if mesh is not None else {}
    spec = _default_spec(len(shape), sizes) if spec is None else spec
    start = from_spec(shape, sizes, spec)
    complex_type = complex_dtype(np.dtype(dtype), precision)
    walk = find_walk(start, transform, method, order, chip_of(mesh), complex_type.itemsize)
    return Plan(walk, transform, mesh, complex_type, method, order, chip_of(mesh))


@functools.lru_cache(maxsize=1024)
def _back(walk: Walk, scale: float) -> Walk:
    return walk.back(scale)


def _default_spec(ndim: int, sizes: Any) -> tuple[str, ...]:
    check(
        len(sizes) <= ndim,
        f"the mesh has {len(sizes)} axes, the array {ndim} dimensions: say with spec= which axes cut which dimension",
    )
    return tuple(sizes)
