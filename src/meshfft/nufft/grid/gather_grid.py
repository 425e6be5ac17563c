"""Interpolate and spread many points at a time, as a GPU does: of all of them one cell after the other.

    r[j] = sum_l prod_i phi_i(l_i; v_j) Y[cell_j + l],   its transpose   Y[cell_j + l] += prod_i phi_i(l_i; v_j) c[j]

Costs 4 W^d flops a point and coil, and as many scattered reads, or reads and writes. The loop over the W^d cells is not
unrolled: 343 gathers took minutes to compile.
"""

import functools
import itertools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...layout.placement import varying
from .weights import Form, Slots, weights

GROUP = 2**16  # points whose weights are held at a time


def interpolate(block: Array, slots: Slots, form: Form, along: tuple[int, ...], out: Array) -> Array:
    """Values (C, slots) at the points from a block (C, B_1, .., B_d), put where `out` holds zeros."""
    cells = block.reshape(block.shape[0], -1)

    def body(turn: Array, out: Array) -> Array:
        group = _group(turn, slots, form, along)
        kept = lax.dynamic_slice_in_dim(out, group.at, len(group.base), 1)

        def add(places: Array, weight: Array, total: Array) -> Array:
            return total + weight[None].astype(out.dtype) * cells.at[:, places].get(mode="promise_in_bounds")

        zeros, _ = varying([jnp.zeros(kept.shape, kept.dtype), kept], frozenset())
        values = jnp.where(group.wanted[None], _over(group, form, block.shape[1:], add, zeros), kept)
        return lax.dynamic_update_slice_in_dim(out, values, group.at, 1)

    return lax.fori_loop(np.int32(0), _turns(slots, form), body, out)


def spread(values: Array, slots: Slots, form: Form, along: tuple[int, ...], block: Array) -> Array:
    """A block of zeros (C, B_1, .., B_d) with values (C, slots) added to it."""

    def body(turn: Array, cells: Array) -> Array:
        group = _group(turn, slots, form, along)
        given = lax.dynamic_slice_in_dim(values, group.at, len(group.base), 1)
        given = jnp.where(group.wanted[None], given, 0)

        def add(places: Array, weight: Array, cells: Array) -> Array:
            return cells.at[:, places].add(weight[None].astype(cells.dtype) * given, mode="promise_in_bounds")

        return _over(group, form, block.shape[1:], add, cells)

    cells = block.reshape(block.shape[0], -1)
    return lax.fori_loop(np.int32(0), _turns(slots, form), body, cells).reshape(block.shape)


class _Group(NamedTuple):
    """Slots that a turn works on: where they begin, their lowest cells, which of them hold points that no other turn
    has, and the weights (reach, slots) of every dimension."""

    at: Array
    base: Array
    wanted: Array
    tables: list[Array]


def _turns(slots: Slots, form: Form) -> Array:
    group = min(GROUP, slots.cell.shape[0])
    return (slots.count * form.chunk + group - 1) // group


def _group(turn: Array, slots: Slots, form: Form, along: tuple[int, ...]) -> _Group:
    group = min(GROUP, slots.cell.shape[0])
    at = jnp.minimum(turn * group, slots.cell.shape[0] - group)
    cell = lax.dynamic_slice_in_dim(slots.cell, at, group, 0)
    offset = lax.dynamic_slice_in_dim(slots.offset, at, group, 0)
    wanted = (cell[:, 0] >= 0) & (at + jnp.arange(group, dtype=at.dtype) >= turn * group)
    offset = jnp.where(wanted[:, None], offset, 0)
    tables = [weights(offset[:, j], None, form.reach, form, along.count(j), 0) for j in range(offset.shape[1])]
    return _Group(at, jnp.maximum(cell, 0), wanted, tables)


def _over(
    group: _Group, form: Form, shape: tuple[int, ...], add: Callable[[Array, Array, Array], Array], carry: Array
) -> Array:
    """A loop over the cells that a point may touch: where they lie in a block of a shape, and what they weigh."""
    dims = range(len(shape))
    strides = [int(np.prod(shape[i + 1 :])) for i in dims]
    steps = np.array(list(itertools.product(range(form.reach), repeat=len(shape))), np.int32)

    def body(i: Array, carry: Array) -> Array:
        step = jnp.asarray(steps)[i]
        weight = functools.reduce(operator.mul, [group.tables[j][step[j]] for j in dims])
        return add(sum(((group.base[:, j] + step[j]) * strides[j] for j in dims), jnp.int32(0)), weight, carry)

    return lax.fori_loop(np.int32(0), np.int32(len(steps)), body, carry)
