"""Fields: an array of samples with the plan of its spectrum, and programs that walk there and back in one.

The walk is of any order, so the spectrum stays in the layout that is cheapest to reach, and what is done to it there is
done in that layout. Real arrays go through half spectra. Invariant: between the two walks nothing is sent.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ..layout.layout import AnyMesh, Spec, axis_sizes, mapped_axes
from ..layout.memory import check_blocks, room_of
from ..layout.padded_array import mapped, stored_of
from ..layout.storage import put
from ..machine.chip import CompilerOptions
from ..numerics.dtypes import complex_dtype, real_dtype
from ..numerics.split_complex import join
from ..operators.transform import integers
from ..plans.plan import Plan
from ..plans.planning import plan
from ..plans.request import PlanePair, is_planes, read

PROGRAMS = 64  # kept, each for one kind of work with one set of options


class Field(NamedTuple):
    """A real or complex array, and the plan of its spectrum."""

    array: Any
    plan: Plan


def field(
    x: Any,
    axes: Sequence[int] | None,
    spec: Spec | None,
    *,
    s: Sequence[int] | None = None,
    norm: str | None = None,
) -> Field:
    """An array, or its planes, with the plan of its spectrum of any order: half of it where the array is real.

    Raises:
        ValueError, TypeError: as `fftn`.
    """
    arrays, setting, _ = read(x, spec)
    start, mesh, x = setting.start, setting.mesh, joined(arrays)
    if isinstance(mesh, AbstractMesh) and start.even and jax.typeof(x).sharding.mesh.empty:
        x = placed(x, mesh, start.spec)  # a constant, whose mesh only the context shows
    axes = None if axes is None else integers(axes, "axes")
    if axes is not None and len(axes) <= 0:
        raise ValueError("axes is empty: give one axis at least, or None for all")
    if x.ndim <= 0:
        raise ValueError("the array is a single number: give one with a dimension at least")
    kind = "fft" if x.dtype.kind == "c" else "rfft"
    # Where some mesh axes are mapped and others not, the mapped ones cut first, which not every layout has.
    partly = mapped_axes(mesh) and mapped_axes(mesh) != set(axis_sizes(mesh))
    how: dict[str, Any] = {"s": s, "axes": axes, "norm": norm, "kind": kind, "order": "natural" if partly else "any"}
    return Field(x, plan(start.shape, mesh=mesh, spec=start.spec, dtype=x.dtype, **how))


def check_whole(mesh: AnyMesh | None, what: str) -> None:
    """Raises NotImplementedError for blocks inside a caller's shard_map."""
    remedy = "call it outside of shard_map, or leave spec= out for a block by itself"
    if mapped_axes(mesh):
        raise NotImplementedError(f"{what} of blocks that shard_map has cut are not there: {remedy}")


def placed(x: Array, mesh: AnyMesh, spec: PartitionSpec) -> Array:
    """The array with this sharding, within `jit` or outside."""
    sharding = NamedSharding(mesh, spec)
    if isinstance(mesh, Mesh):
        return put(x, sharding)
    return (jax.reshard if AxisType.Explicit in mesh.axis_types else jax.lax.with_sharding_constraint)(x, sharding)


def joined(arrays: tuple[Any, ...]) -> Any:
    """An array, or the complex one that has these planes."""
    if len(arrays) == 1:
        return arrays[0]
    real = real_dtype(complex_dtype(arrays[0].dtype, None))
    return mapped(lambda *planes: join(tuple(plane.astype(real) for plane in planes)), *arrays)


def in_form_of(x: Any, y: Any) -> Any:
    """A result in the form that an argument came in: as planes, where it came as two."""
    return PlanePair(y.real, y.imag) if is_planes(x) and len(x) == 2 else y


def in_one(work: Callable[..., Any], plan: Plan, *values: Any, beside: int = 0) -> Any:
    """work(plan, *values) as one program; JAX finds the devices of constants in it, under `grad` too.

    `beside` are the bytes of the largest array that it makes besides blocks of samples and of the spectrum.
    """
    room = room_of(stored_of(values[0]), plan.mesh)
    check_blocks(plan.out_layout, real_dtype(plan.dtype).itemsize, room, "the spectrum")
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, plain=False, beside=beside)
    return _program(work, () if traced else options)(plan, *values)


@functools.lru_cache(maxsize=PROGRAMS)
def _program(work: Callable[..., Any], options: CompilerOptions) -> Callable[..., Any]:
    """`work` compiled with options, which JAX takes only of the outermost program."""
    return jax.jit(work, static_argnums=0, compiler_options=dict(options) or None)
