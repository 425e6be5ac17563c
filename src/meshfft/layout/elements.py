"""Reductions, basic slices and broadcasting of stored arrays with padding, and which of a device's positions are data.

    sum, mean, max, min along dimensions,   y[t] = x[start + step t],   t = 0 ... count - 1

A slice is cut by the same mesh axes into equal blocks: one permute per distance sends whole blocks, and each device
takes its rows. Invariant: NaN makes NaN, as in NumPy; padding stays zero; nothing is gathered.
"""

import functools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..numerics.split_complex import B
from .layout import LIMIT, AnyMesh, Cuts, Layout, line_shape
from .placement import devices_along, reshard, varying, without_padding

Dims = tuple[int, ...]


def reduced(
    stored: Array, layout: Layout, mapped: frozenset[str], how: str, dims: Dims, dtype: DTypeLike | None
) -> Array:
    """A stored array, or its block inside shard_map, reduced by "sum", "mean", "max" or "min" along dimensions, which
    stay, one element long. `dtype` is the type of a sum or mean; None as in `jax.numpy`.
    """
    over = tuple(sorted(mapped & {axis for dim in dims for axis in layout.axes[dim]}))
    if how in ("sum", "mean"):
        y = _added(without_padding(stored, layout, mapped), layout, how, dims, over, dtype)
    else:
        y = _farthest(without_padding(stored, layout, mapped, _end(stored.dtype, how)), how, dims, over)
    return without_padding(y, emptied(layout, dims), mapped)


def emptied(layout: Layout, dims: Dims) -> Layout:
    for dim in dims:
        layout = layout.replace(dim, 1, ())
    return layout


def without(y: Array, layout: Layout, dims: Dims) -> tuple[Array, Layout]:
    return lax.squeeze(y, dims), layout.without(dims)


def _added(x: Array, layout: Layout, how: str, dims: Dims, over: tuple[str, ...], dtype: DTypeLike | None) -> Array:
    if how == "sum":
        return _summed(jnp.sum(x, dims, dtype, keepdims=True), over)
    result = jax.eval_shape(functools.partial(jnp.mean, dtype=dtype), jax.ShapeDtypeStruct((1,), x.dtype)).dtype
    half = jnp.issubdtype(result, jnp.floating) and result.itemsize < 4  # in float32, as in jax.numpy.mean
    total = _summed(jnp.sum(x, dims, np.float32 if half else result, keepdims=True), over)
    return (total / math.prod(float(layout.shape[dim]) for dim in dims)).astype(result)


def _summed(y: Array, over: tuple[str, ...]) -> Array:
    if not over:
        return y
    total: Array = lax.psum(varying([y.astype(jnp.int32) if y.dtype == bool else y], frozenset(over))[0], over)
    return total.astype(y.dtype)


def _farthest(x: Array, how: str, dims: Dims, over: tuple[str, ...]) -> Array:
    """The largest or smallest; NaN is detected separately: CPUs lose it between devices."""
    most, over_devices = (jnp.max, lax.pmax) if how == "max" else (jnp.min, lax.pmin)
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    lost = jnp.isnan(x) if floats else lax.full_like(x, False, bool)
    y = most(jnp.where(lost, jnp.asarray(_end(x.dtype, how), x.dtype), x), dims, keepdims=True)
    if over:
        y = over_devices(varying([y], frozenset(over))[0], over)
    lost = _summed(jnp.any(lost, dims, keepdims=True), over)
    return jnp.where(lost, jnp.asarray(jnp.nan, y.dtype), y) if floats else y


def _end(dtype: np.dtype, how: str) -> float:
    if jnp.issubdtype(dtype, jnp.bool_):
        return how == "min"
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min if how == "max" else jnp.iinfo(dtype).max
    return -jnp.inf if how == "max" else jnp.inf


def positions(layout: Layout, dim: int, limit: int) -> tuple[Array, Array]:
    """Global indices of this device's block along a dimension, and which are data below `limit`."""
    index = lax.axis_index(layout.axes[dim]) if layout.axes[dim] else 0
    offsets = jnp.arange(layout.block[dim], dtype=jnp.int32)
    at = _counted(layout.starts(dim))[index] + offsets
    return at, (offsets < _counted(layout.counts(dim))[index]) & (at < limit)


def _counted(table: np.ndarray) -> Array:
    if table.max(initial=0) >= LIMIT:
        raise ValueError(f"a dimension has over {table.max()} positions, which 32 bits do not count: split it in two")
    return jnp.asarray(table, jnp.int32)


def cleared(block: B, layout: Layout, dim: int, limit: int) -> B:
    data = positions(layout, dim, limit)[1].reshape(line_shape(dim, layout.ndim))
    return jax.tree.map(lambda part: jnp.where(data, part, 0), block)


Entry = range | int | None  # rows, one row, or a new dimension


def entries_of(index: object, shape: tuple[int, ...]) -> tuple[Entry, ...]:
    """A range or integer for each dimension, None for each new one; IndexError or TypeError if invalid."""
    given = list(index) if isinstance(index, tuple) else [index]
    named = sum(one is not None and one is not Ellipsis for one in given)
    if named > len(shape):
        raise IndexError(f"{named} indices are given for {len(shape)} dimensions: give at most {len(shape)}")
    at = [i for i, one in enumerate(given) if one is Ellipsis] or [len(given)]
    if len(at) > 1:
        raise IndexError("an index has one '...' at most")
    given[at[0] : at[0] + 1] = [slice(None)] * (len(shape) - named)
    sizes, entries = iter(shape), list[Entry]()
    for one in given:
        entries.append(None if one is None else _entry(one, next(sizes)))
    return tuple(entries)


def _entry(one: object, n: int) -> range | int:
    if isinstance(one, slice):
        return range(*one.indices(n))
    try:
        if isinstance(one, bool | np.bool_):
            raise TypeError
        at = operator.index(one)  # type: ignore[arg-type]
    except TypeError:
        kinds = "no integer, slice, '...' or None, nor one array of integers beside ':', the indices"
        remedy = "use y.where(condition, other), or mf.gather(y), which brings it to the host"
        raise TypeError(f"index {one!r} is {kinds} that a padded array takes: {remedy}") from None
    if not -n <= at < n:
        raise IndexError(f"index {at} is out of range for a dimension of {n}")
    return at % n


def array_entry(index: object, layout: Layout) -> tuple[int, Array | np.ndarray] | None:
    """The dimension and values of one array of integers, or one traced integer, beside ':' and '...' alone."""
    given = list(index) if isinstance(index, tuple) else [index]
    kinds, traced = jax.Array | np.ndarray | list, jax.core.Tracer
    at = [j for j, one in enumerate(given) if isinstance(one, traced) or (isinstance(one, kinds) and np.ndim(one))]
    if len(at) != 1 or any(one is not Ellipsis and one != slice(None) for one in given[: at[0]] + given[at[0] + 1 :]):
        return None
    values: Any = given[at[0]]
    if not isinstance(values, jax.core.Tracer):
        values = np.asarray(values, int if isinstance(values, list) and not values else None)
    dots = [j for j, one in enumerate(given) if one is Ellipsis]
    dim = at[0] - len(given) + layout.ndim if dots and dots[0] < at[0] else at[0]
    if len(dots) > 1 or len(given) - len(dots) > layout.ndim or not jnp.issubdtype(values.dtype, jnp.integer):
        return None
    if layout.cuts[dim]:
        what = f"axis {dim} is cut by {', '.join(layout.axes[dim])}, and an array of indices takes an uncut dimension"
        raise ValueError(f"{what}: use slices, or y.where(condition, other)")
    if isinstance(values, jax.core.Tracer):
        return dim, values.astype(jnp.int32) if values.dtype.itemsize < 4 else values
    n, values = layout.shape[dim], values.astype(np.int64)
    if values.size and not -n <= values.min() <= values.max() < n:
        raise IndexError(f"an index from {values.min()} to {values.max()} is out of range for a dimension of {n}")
    return dim, values % max(n, 1)


def check_slices(layout: Layout, mapped: frozenset[str], entries: tuple[Entry, ...]) -> None:
    for dim, entry in enumerate(one for one in entries if one is not None):
        if mapped and entry != range(layout.shape[dim]) and not mapped.issuperset(layout.axes[dim]):
            what = f"axis {dim} is cut by {layout.axes[dim]}, of which shard_map maps {sorted(mapped)}"
            raise NotImplementedError(f"{what}: slice it where all or none of them are mapped")


def layout_of(layout: Layout, entries: tuple[Entry, ...]) -> Layout:
    """An integer leaves one element without cuts."""
    for dim, entry in enumerate(entries):
        if entry is None:
            layout = layout.insert(dim, 1, ())
        elif isinstance(entry, int):
            layout = layout.replace(dim, 1, ())
        else:
            layout = layout.resize(dim, len(entry))
    return layout


def sliced(stored: Array, layout: Layout, mapped: frozenset[str], entries: tuple[Entry, ...], mesh: AnyMesh) -> Array:
    for dim, entry in enumerate(entries):
        if entry is None:
            stored, layout = jnp.expand_dims(stored, dim), layout.insert(dim, 1, ())
            continue
        rows = range(entry, entry + 1) if isinstance(entry, int) else entry
        if rows != range(layout.shape[dim]):
            stored, layout = _moved(stored, layout, dim, rows, mapped, mesh), layout.resize(dim, len(rows))
        if isinstance(entry, int):
            stored = reduced(stored, layout, mapped, "sum", (dim,), stored.dtype)
            layout = layout.replace(dim, 1, ())
    return stored


def _moved(stored: Array, layout: Layout, dim: int, rows: range, mapped: frozenset[str], mesh: AnyMesh) -> Array:
    after, axes = layout.resize(dim, len(rows)), layout.axes[dim]
    tables = layout.starts(dim), layout.counts(dim), after.starts(dim), after.counts(dim)
    starts, counts, targets, kept = map(_counted, tables)
    hops = _hops(layout, after, dim, rows)

    def body(block: Array) -> Array:
        here = lax.axis_index(axes) if axes else 0
        t = jnp.arange(after.block[dim], dtype=jnp.int32)
        positions = rows.start + rows.step * (targets[here] + t)
        shape = [after.block[dim] if d == dim else n for d, n in enumerate(block.shape)]
        result = jnp.zeros(shape, block.dtype)
        ordered, device = devices_along(axes)
        for distance, pairs in hops.items():
            source = jnp.clip(here + distance, 0, len(starts) - 1)
            at = positions - starts[source]
            mine = (at >= 0) & (at < counts[source]) & (t < kept[here]) & (source == here + distance)
            sent = block
            if distance:
                sent = lax.ppermute(block, ordered, [(device[a], device[b]) for a, b in pairs])
            found = jnp.take(sent, jnp.clip(at, 0, max(block.shape[dim] - 1, 0)), axis=dim)
            result = jnp.where(mine.reshape(line_shape(dim, block.ndim)), found, result)
        return result

    if mapped or mesh is None:
        return body(stored)
    moved = jax.shard_map(body, mesh=mesh, in_specs=layout.spec, out_specs=after.spec, check_vma=False)
    return moved(reshard(stored, mesh, layout.spec))


def _hops(before: Layout, after: Layout, dim: int, rows: range) -> dict[int, list[tuple[int, int]]]:
    """The (source, target) shards with rows to send, by distance."""
    starts, counts = before.starts(dim), before.counts(dim)
    first, many = after.starts(dim), after.counts(dim)
    hops: dict[int, list[tuple[int, int]]] = {}
    for target in range(len(first)):
        if not many[target]:
            continue
        ends = [rows[int(first[target])], rows[int(first[target] + many[target] - 1)]]
        for source in np.flatnonzero((starts <= max(ends)) & (starts + counts > min(ends))).tolist():
            hops.setdefault(source - target, []).append((source, target))
    return hops


def broadcast(a: Layout, b: Layout) -> Layout:
    """The layout of elementwise results. A dimension of one element keeps either array's cuts, unless their axes cut
    another dimension.
    """
    one, other = (_lengthened(layout, max(a.ndim, b.ndim)) for layout in (a, b))
    pairs = [*zip(zip(one.shape, one.cuts, strict=True), zip(other.shape, other.cuts, strict=True), strict=True)]
    if any(m != n and 1 not in (m, n) for (m, _), (n, _) in pairs):
        remedy = "give shapes that are equal or 1 in each dimension"
        raise ValueError(f"padded arrays of shape {a.shape} and {b.shape} do not broadcast: {remedy}")
    longer = [max(pair, key=lambda end: (end[0] != 1, len(end[1]))) for pair in pairs]  # of single ones, a cut one
    used = [cut.axis for size, cuts in longer if size != 1 for cut in cuts]
    if any(first != second and 1 not in (first[0], second[0]) for first, second in pairs) or len(used) > len({*used}):
        first, second = (f"{of.shape}, cut as {of.spec} into {of.parts}" for of in (a, b))
        raise ValueError(f"padded arrays of shape {first} parts, and {second}, meet: shard them alike")
    every = list[Cuts]()
    for size, cuts in longer:
        if size == 1:
            cuts = () if any(cut.axis in used for cut in cuts) else cuts
            used += [cut.axis for cut in cuts]
        every.append(cuts)
    return Layout(tuple(size for size, _ in longer), tuple(every))


def extended(layout: Layout, shape: tuple[int, ...], longer: bool) -> Layout:
    """The layout of elementwise results with a plain array; dimensions that it makes `longer` are uncut."""
    wide = _lengthened(layout, len(shape))
    for dim, n in enumerate(shape, wide.ndim - len(shape)):
        if n in (1, wide.shape[dim]):
            continue
        if wide.shape[dim] != 1 or not longer:
            remedy = f"give one that broadcasts {'with' if longer else 'to'} it"
            raise ValueError(f"an array of shape {shape} meets a padded one of shape {layout.shape}: {remedy}")
        wide = wide.replace(dim, n, ())
    return wide


def single_cut(own: Layout, layout: Layout) -> Dims:
    """Cut dimensions of one element that are longer, or cut otherwise, in `layout`."""
    if own == layout:
        return ()
    tail = layout.along(range(layout.ndim - own.ndim, layout.ndim))
    ends = zip(own.shape, own.cuts, tail.shape, tail.cuts, strict=True)
    return tuple(dim for dim, (n, cuts, *end) in enumerate(ends) if n == 1 and cuts and end != [n, cuts])


def _lengthened(layout: Layout, ndim: int) -> Layout:
    more = max(ndim - layout.ndim, 0)
    return Layout((1,) * more, ((),) * more) + layout if more else layout
