"""Basic slices of a padded array: rows of a dimension, moved to the blocks of a shorter one.

    y[t] = x[start + step t],   t = 0 ... count - 1

The shorter dimension is cut by the same mesh axes into equal blocks. A device receives whole blocks, in one permute for
each distance between source and target that occurs, and takes its rows. Invariant: padding is zero, nothing is
gathered.
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .layout import AnyMesh, Layout, line_shape
from .placement import brought, devices_along
from .reductions import reduced

Entry = range | int | None  # rows of a dimension, one of them, or a new dimension


def entries_of(index: Any, shape: tuple[int, ...]) -> tuple[Entry, ...]:
    """An index of every dimension, and None for each new one.

    Raises:
        IndexError, TypeError: it is out of range, too long or none that selects a block.
    """
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


def _entry(one: Any, n: int) -> range | int:
    if isinstance(one, slice):
        return range(*one.indices(n))
    try:
        if isinstance(one, bool | np.bool_):
            raise TypeError
        at = operator.index(one)
    except TypeError:
        raise TypeError(
            f"index {one!r} is no integer, slice, '...' or None, the indices that a padded array takes: use "
            "y.where(condition, other), or mf.gather(y), which brings it to the host"
        ) from None
    if not -n <= at < n:
        raise IndexError(f"index {at} is out of range for a dimension of {n}")
    return at % n


def check_slices(layout: Layout, mapped: frozenset[str], entries: tuple[Entry, ...]) -> None:
    """Raises NotImplementedError if rows move along mesh axes of which shard_map has mapped only some."""
    for dim, entry in enumerate(one for one in entries if one is not None):
        if mapped and entry != range(layout.shape[dim]) and not mapped.issuperset(layout.axes[dim]):
            raise NotImplementedError(
                f"axis {dim} is cut by {layout.axes[dim]}, of which shard_map maps {sorted(mapped)}: slice it where "
                "all or none of them are mapped"
            )


def layout_of(layout: Layout, entries: tuple[Entry, ...]) -> Layout:
    """The layout of a slice: an integer leaves one element, which nothing cuts."""
    dim = 0
    for entry in entries:
        if entry is None:
            layout = layout.insert(dim, 1, ())
        elif isinstance(entry, int):
            layout = layout.replace(dim, 1, ())
        else:
            layout = layout.resize(dim, len(entry))
        dim += 1
    return layout


def sliced(stored: Array, layout: Layout, mapped: frozenset[str], entries: tuple[Entry, ...], mesh: AnyMesh) -> Array:
    """The stored array of a slice, in the layout of `layout_of`."""
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
    """Some rows of a dimension, in equal blocks."""
    after, axes = layout.resize(dim, len(rows)), layout.axes[dim]
    tables = layout.starts(dim), layout.counts(dim), after.starts(dim), after.counts(dim)
    starts, counts, targets, kept = (jnp.asarray(table, jnp.int32) for table in tables)
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
    where: dict[str, Any] = {"in_specs": layout.spec, "out_specs": after.spec, "check_vma": False}
    moved: Array = jax.shard_map(body, mesh=mesh, **where)(brought(stored, mesh, layout.spec))
    return moved


def _hops(before: Layout, after: Layout, dim: int, rows: range) -> dict[int, list[tuple[int, int]]]:
    """The shards whose rows each shard needs, as (source, target), by their distance."""
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
