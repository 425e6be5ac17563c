"""Gridding on one device, between a block of the fine grid and the scattered points over it.

    interpolate   r[j] = sum_l prod_i phi(l_i; v_j) Y[cell_j + l]
    spread        Y[g] = sum_j prod_i phi(g_i - cell_j,i; v_j) r[j],   its exact transpose: nothing is conjugated

over the W = width + 2 slack cells of each dimension. The form selects point_grid.py or

gather  many points at a time, one cell after another: 4 W^d flops a point and coil. The loop over the W^d cells is not
        unrolled, to compile fast.
tiles   with A_i = tile_i + W - 1 cells that a chunk may touch, L[k, (l_1 .. l_(d-1))] = prod_(i<d) phi_i(l_i; k) and
        R[k, l_d] = phi_d(l_d; k): r[k] = sum_(l_d) R[k, l_d] (L Y)[k, l_d], or Y += L^T (R c), by matrix units, in
        4 prod_i A_i flops a point and coil; a tile is read and written once a chunk.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...kept import Trial
from ...layout.placement import varying
from . import point_grid
from .form import Form, Outs, Slots, group_at, groups, weights

GROUP = 2**16


class Gridding(NamedTuple):
    interpolate: Callable[[Array, Slots, Form], Array]
    spread: Callable[[Array, Slots, Form, tuple[int, ...]], Array]
    trials: Callable[[int, tuple[int, ...], Form], tuple[Trial, ...]]  # for coils, a block and a form


KERNELS: dict[str, Gridding] = {}  # by the kind of a form; device folders add theirs


def kernels_of(form: Form) -> Gridding:
    return KERNELS.get(form.kind, Gridding(interpolate, spread, lambda *_: ()))


def interpolate(block: Array, slots: Slots, form: Form, *outs: tuple[int, ...]) -> Array:
    """Values (C, slots) at a device's points from its block (C, B_1, .., B_d) with halo; 0 in empty slots.

    Each of `outs` lists dimensions whose window is replaced by its derivative in the offset; a repeated one has
    the second derivative. Several make (C outs, slots), those of a coil together.
    """
    outs = outs or ((),)
    zeros = _zeros((block.shape[0] * len(outs), slots.cell.shape[0]), block, slots)
    return KINDS[form.kind][0](block, slots, form, outs, zeros)


def spread(values: Array, slots: Slots, form: Form, shape: tuple[int, ...], *outs: tuple[int, ...]) -> Array:
    outs = outs or ((),)
    zeros = _zeros((values.shape[0] // len(outs), *shape), values, slots)
    return KINDS[form.kind][1](values, slots, form, outs, zeros)


def _zeros(shape: tuple[int, ...], given: Array, slots: Slots) -> Array:
    """Initial carry of a loop, varying over its mesh axes."""
    zeros = jnp.zeros(shape, given.dtype)
    return varying([zeros, given, slots.cell, slots.offset, slots.start, slots.count], frozenset())[0]


def _gathered(block: Array, slots: Slots, form: Form, outs: Outs, out: Array) -> Array:
    cells = block.reshape(block.shape[0], -1)

    def body(turn: Array, out: Array) -> Array:
        group = _group(turn, slots, form, outs)
        kept = lax.dynamic_slice_in_dim(out, group.at, len(group.base), 1)

        def add(places: Array, weight: Array, total: Array) -> Array:
            picked = cells.at[:, places].get(mode="promise_in_bounds")[:, None]
            return total + (weight[None].astype(out.dtype) * picked).reshape(total.shape)

        zeros, _ = varying([jnp.zeros(kept.shape, kept.dtype), kept], frozenset())
        values = jnp.where(group.wanted[None], _over(group, form, block.shape[1:], add, zeros), kept)
        return lax.dynamic_update_slice_in_dim(out, values, group.at, 1)

    return lax.fori_loop(np.int32(0), groups(slots, form, GROUP), body, out)


def _scattered(values: Array, slots: Slots, form: Form, outs: Outs, block: Array) -> Array:
    def body(turn: Array, cells: Array) -> Array:
        group = _group(turn, slots, form, outs)
        given = lax.dynamic_slice_in_dim(values, group.at, len(group.base), 1)
        given = jnp.where(group.wanted[None], given, 0)

        def add(places: Array, weight: Array, cells: Array) -> Array:
            added = weight[None].astype(cells.dtype) * given.reshape(len(cells), len(outs), -1)
            return cells.at[:, places].add(added.sum(1), mode="promise_in_bounds")

        return _over(group, form, block.shape[1:], add, cells)

    cells = block.reshape(block.shape[0], -1)
    return lax.fori_loop(np.int32(0), groups(slots, form, GROUP), body, cells).reshape(block.shape)


class _Group(NamedTuple):
    """First slot, lowest cells, slots with a point of no other group, and weights (reach, slots)."""

    at: Array
    base: Array
    wanted: Array
    tables: list[list[Array]]  # for each out, by dimension


def _group(turn: Array, slots: Slots, form: Form, outs: Outs) -> _Group:
    at, cell, tables = group_at(turn, slots, form, outs, GROUP)
    later = at + jnp.arange(len(cell), dtype=at.dtype) >= turn * len(cell)
    each = [[some[along.count(j)] for j, some in enumerate(tables)] for along in outs]
    return _Group(at, jnp.maximum(cell, 0), (cell[:, 0] >= 0) & later, each)


def _over(
    group: _Group, form: Form, shape: tuple[int, ...], add: Callable[[Array, Array, Array], Array], carry: Array
) -> Array:
    dims = range(len(shape))
    strides = [math.prod(shape[i + 1 :]) for i in dims]
    steps = np.array(list(itertools.product(range(form.reach), repeat=len(shape))), np.int32)

    def body(i: Array, carry: Array) -> Array:
        step = jnp.asarray(steps)[i]
        each = ([table[step[j]] for j, table in enumerate(tables)] for tables in group.tables)
        weight = jnp.stack([functools.reduce(operator.mul, one) for one in each])
        return add(sum(((group.base[:, j] + step[j]) * strides[j] for j in dims), jnp.int32(0)), weight, carry)

    return lax.fori_loop(np.int32(0), np.int32(len(steps)), body, carry)


def _from_tiles(block: Array, slots: Slots, form: Form, outs: Outs, out: Array) -> Array:
    coils, (along,) = block.shape[0], outs

    def body(i: Array, out: Array) -> Array:
        start, wanted, left, right = _chunk(i, slots, form, along)
        tile = lax.dynamic_slice(block, start, (coils, *_cells(form)))
        planes = jnp.stack([tile.real, tile.imag]).reshape(2, coils, left.shape[1], right.shape[1])
        product = jnp.einsum("kl,pclm->kpcm", left, planes, precision=lax.Precision.HIGHEST)
        values = jnp.sum(product * right[:, None, None], -1)
        values = jnp.where(wanted[None], lax.complex(values[:, 0], values[:, 1]).T, 0)
        return lax.dynamic_update_slice_in_dim(out, values, i * form.chunk, 1)

    return lax.fori_loop(np.int32(0), slots.count, body, out)


def _onto_tiles(values: Array, slots: Slots, form: Form, outs: Outs, block: Array) -> Array:
    coils, (along,) = values.shape[0], outs

    def body(i: Array, block: Array) -> Array:
        start, wanted, left, right = _chunk(i, slots, form, along)
        given = jnp.where(wanted[None], lax.dynamic_slice_in_dim(values, i * form.chunk, form.chunk, 1), 0)
        columns = jnp.stack([given.real, given.imag])[..., None] * right[None, None]
        planes = jnp.einsum("kl,pckm->pclm", left, columns, precision=lax.Precision.HIGHEST)
        tile = lax.complex(planes[0], planes[1]).reshape(coils, *_cells(form))
        return lax.dynamic_update_slice(block, lax.dynamic_slice(block, start, tile.shape) + tile, start)

    return lax.fori_loop(np.int32(0), slots.count, body, block)


def _cells(form: Form) -> tuple[int, ...]:
    return tuple(t + form.reach - 1 for t in form.tile)


def _chunk(i: Array, slots: Slots, form: Form, along: tuple[int, ...]) -> tuple[list[Array], Array, Array, Array]:
    """First cell of a chunk's tile, which of its slots have points, L and R."""
    start = lax.dynamic_slice_in_dim(slots.start, i, 1, 0)[0]
    cell = lax.dynamic_slice_in_dim(slots.cell, i * form.chunk, form.chunk, 0)
    offset = lax.dynamic_slice_in_dim(slots.offset, i * form.chunk, form.chunk, 0)
    wanted = cell[:, 0] >= 0
    offset = jnp.where(wanted[:, None], offset, 0)
    tables = [weights(offset[:, j], cell[:, j] - start[j], n, form, along.count(j)) for j, n in enumerate(_cells(form))]
    left = jnp.ones((form.chunk, 1), offset.dtype)
    for table in tables[:-1]:
        left = (left[:, :, None] * table[:, None, :]).reshape(form.chunk, -1)
    return [jnp.zeros_like(start[0]), *(start[j] for j in range(len(tables)))], wanted, left, tables[-1]


_TILES = (_from_tiles, _onto_tiles)
KINDS = {
    "points": (point_grid.interpolate, point_grid.spread),
    "gather": (_gathered, _scattered),
    "tiles": _TILES,
    "strips": _TILES,
}
