"""Placement: arrays on a mesh as JAX has them."""

import functools
import math
from collections.abc import Sequence, Set
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.layout import Layout as StoredOrder
from jax.experimental.layout import with_layout_constraint
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from .layout import AnyMesh, Cuts, Layout, axes_of, axis_sizes, from_spec, line_shape, mapped_axes, spec_of

RUN = 2**26  # bytes per chunk on the way to the host


def explicit_axes(mesh: AnyMesh | None) -> frozenset[str]:
    return axes_of(mesh, AxisType.Explicit)


def same_mesh(a: AnyMesh | None, b: AnyMesh | None) -> bool:
    """True for one mesh, or for a mesh and its description, which is all that eager `grad` and `vmap` show."""
    if isinstance(a, Mesh) == isinstance(b, Mesh):
        return a == b
    return a is not None and b is not None and description_of(a) == description_of(b)


def description_of(mesh: AnyMesh) -> AbstractMesh:
    return mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh


def with_axes(mesh: AnyMesh, kind: AxisType) -> AbstractMesh:
    known = description_of(mesh)
    kinds = (kind,) * len(known.axis_names)
    return AbstractMesh(known.axis_sizes, known.axis_names, kinds, abstract_device=known.abstract_device)


def only(axes: Set[str], spec: PartitionSpec) -> PartitionSpec:
    entries = (entry if isinstance(entry, tuple) else (entry,) for entry in spec)
    return spec_of(tuple(axis for axis in names if axis in axes) for names in entries)


def reshard(x: Array, mesh: AnyMesh | None, spec: PartitionSpec) -> Array:
    """The array cut by a spec's Explicit axes; arrays that JAX makes itself have no mesh."""
    explicit = explicit_axes(mesh)
    if mesh is None or not explicit:
        return x
    wanted, shown = only(explicit, spec), jax.typeof(x).sharding
    if not shown.mesh.empty and only(explicit, shown.spec) == wanted:
        return x
    return jax.reshard(x, NamedSharding(mesh, wanted))


class Anchor(NamedTuple):
    """An empty array that shows a mesh's devices, which a transposed walk may lack."""

    empty: Array


def anchor(values: Sequence[Array]) -> Anchor:
    x = next((x for x in values if not jax.typeof(x).sharding.mesh.empty), values[0])
    return Anchor(lax.stop_gradient(lax.slice(x, (0,) * x.ndim, (0,) * x.ndim)))


def anchors(values: Sequence[Array], mesh: AnyMesh | None) -> tuple[Anchor, ...]:
    hidden = explicit_axes(mesh) and jax.sharding.get_abstract_mesh().empty
    if hidden and isinstance(mesh, Mesh) and any(isinstance(x, jax.core.Tracer) for x in values):
        return (Anchor(jax.device_put(np.zeros(0, np.float32), NamedSharding(mesh, PartitionSpec()))),)
    return ()


def needs_anchor(mesh: AnyMesh | None) -> bool:
    return isinstance(mesh, AbstractMesh) and not mapped_axes(mesh)


def local_slice(x: Array | np.ndarray, dim: int, cuts: Cuts, mapped: frozenset[str]) -> Array | np.ndarray:
    """The local part of a replicated array, along a dimension with these cuts."""
    if not any(cut.axis in mapped for cut in cuts):
        return x
    before, after, parts = x.shape[:dim], x.shape[dim + 1 :], [cut.parts for cut in cuts]
    part = jnp.asarray(x).reshape(*before, *parts, x.shape[dim] // math.prod(parts), *after)
    for at, cut in reversed(list(enumerate(cuts, dim))):
        if cut.axis in mapped:
            part = lax.dynamic_index_in_dim(part, lax.axis_index(cut.axis), at, keepdims=False)
    return part.reshape(*before, -1, *after)


def without_padding(stored: Array, layout: Layout, mapped: frozenset[str], fill: float = 0) -> Array:
    """A stored array with `fill` for its padding; some mesh axes may be mapped."""
    for dim, (size, extent) in enumerate(zip(layout.shape, layout.storage, strict=True)):
        if size < extent:
            kept = jnp.asarray(local_slice(layout.logical(dim), 0, layout.cuts[dim], mapped))
            # Newer JAX requires mask and array to be cut alike.
            kept = lax.full_like(stored, True, bool) & kept.reshape(line_shape(dim, stored.ndim))
            stored = jnp.where(kept, stored, jnp.asarray(fill, stored.dtype))
    return stored


def row_major(x: Array) -> Array:
    return with_layout_constraint(x, StoredOrder(major_to_minor=tuple(range(x.ndim))))


def row_major_on_cpus(x: Array) -> Array:
    """A block in the order that XLA's FFT on CPUs needs, but XLA does not keep in a program for the devices around."""
    return lax.platform_dependent(x, cpu=row_major, default=lambda x: x)


def devices_along(names: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Mesh axes in mesh order, as `lax.ppermute` counts; the device at each position along `names`."""
    ordered = tuple(sorted(names, key=jax.sharding.get_abstract_mesh().axis_names.index))
    sizes = [lax.axis_size(name) for name in ordered]
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    return ordered, grid.transpose([ordered.index(name) for name in names]).ravel().tolist()


def varying(values: Sequence[ArrayLike], axes: frozenset[str]) -> list[Array]:
    """The values, marked as varying over these Manual axes and those of all values."""
    union = axes.union(*map(varies_over, values))
    return [lax.pcast(value, tuple(sorted(union - varies_over(value))), to="varying") for value in values]


def varies_over(value: object) -> frozenset[str]:
    return frozenset(jax.typeof(value).manual_axis_type.varying)


def to_host(y: ArrayLike | Sequence[object]) -> np.ndarray:
    """A NumPy array, in all processes that hold shards, RUN bytes at a time."""
    if not isinstance(y, jax.Array) or isinstance(y, jax.core.Tracer):
        return np.asarray(y)
    if not y.size and not y.is_deleted():  # on Explicit axes JAX fails to join shards without elements
        return np.empty(y.shape, y.dtype)
    if y.is_fully_addressable:
        return np.asarray(y)
    if not y.addressable_shards:
        here = "gather it where jax.process_index() is that of one of y.sharding.device_set"
        raise ValueError(f"process {jax.process_index()} has none of the array's devices: {here}")
    if y.is_fully_replicated:
        return np.asarray(y)
    if not isinstance(y.sharding, NamedSharding):
        kind = type(y.sharding).__name__
        raise NotImplementedError(f"the array has a {kind}: give it a NamedSharding, with jax.device_put")
    mesh, collected = y.sharding.mesh, np.empty(y.shape, y.dtype)
    layout = from_spec(y.shape, axis_sizes(mesh), y.sharding.spec)
    dim = max(range(y.ndim), key=layout.block.__getitem__)
    parts, block = layout.parts[dim], layout.block[dim]
    blocks = collected.reshape(*y.shape[:dim], parts, block, *y.shape[dim + 1 :])
    rows = min(block, max(1, RUN * block // collected.nbytes))
    for first in range(0, block, rows):
        start = min(first, block - rows)
        run = np.asarray(_rows(y, start, dim, rows, layout, mesh))
        at = (*[slice(None)] * (dim + 1), slice(start, start + rows))
        blocks[at] = run.reshape(blocks[at].shape)
    return collected


@functools.partial(jax.jit, static_argnames=("dim", "rows", "layout", "mesh"))
def _rows(y: Array, start: Array, dim: int, rows: int, layout: Layout, mesh: AnyMesh) -> Array:
    def run(block: Array) -> Array:
        block = lax.dynamic_slice_in_dim(block, start, rows, dim)
        for d, axes in enumerate(layout.axes):
            for axis in reversed(axes):
                block = lax.all_gather(block, axis, axis=d, tiled=True)
        return block

    return jax.shard_map(run, mesh=mesh, in_specs=layout.spec, out_specs=PartitionSpec(), check_vma=False)(y)


def cut_alike(shape: Sequence[int], first: Sequence[int]) -> tuple[int | None, ...]:
    """The first array's dimensions by which another is cut, as NumPy broadcasts it; none (whole on every device) if it
    does not fit, or is a single line for many.
    """
    offset, wide = len(first) - len(shape), sum(n > 1 for n in shape)
    fits = offset >= 0 and all(n in (1, m) for n, m in zip(shape, first[offset:], strict=True))
    if not fits or wide < min(2, sum(n > 1 for n in first)):
        return ()
    return tuple(d if n == first[d] else None for d, n in enumerate(shape, offset))
