"""Interpolate and spread point by point: every point reads or adds to the W^d cells that it may touch.

    r[j] = sum_l prod_i phi_i(l_i; v_j) Y[cell_j + l],   its transpose   Y[cell_j + l] += prod_i phi_i(l_i; v_j) c[j]

Costs 4 W^d flops a point and coil, and about as many reads. Points that lie near one another should come near one
another: then cells stay in cache.
"""

import functools
import itertools
import operator

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..layout.placement import varying
from .window_weights import Form, Slots, weights

GROUP = 1024  # slots whose weights are made in one go: they stay in a core's cache


def interpolate(block: Array, slots: Slots, form: Form, along: int | None, out: Array) -> Array:
    """Values (C, slots) at the points from a block (C, B_1, .., B_d), put where `out` holds zeros."""
    coils, *shape = block.shape
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    flat, group = block.reshape(coils, -1), min(GROUP, slots.cell.shape[0])
    steps = np.array(list(itertools.product(range(form.reach), repeat=len(shape))), np.int32)

    def body(turn: Array, out: Array) -> Array:
        at, cell, wanted, tables = _group(turn, slots, form, along, group)
        base = sum(cell[:, j] * strides[j] for j in range(len(shape)))

        def add(i: Array, total: Array) -> Array:
            step = jnp.asarray(steps)[i]
            weight = functools.reduce(operator.mul, [tables[j][step[j]] for j in range(len(shape))])
            places = base + sum(step[j] * strides[j] for j in range(len(shape)))
            return total + weight[None].astype(block.dtype) * jnp.take(flat, places, axis=1, mode="clip")

        zeros, _ = varying([jnp.zeros((coils, group), block.dtype), out], frozenset())
        values = lax.fori_loop(np.int32(0), np.int32(len(steps)), add, zeros)
        kept = lax.dynamic_slice_in_dim(out, at, group, 1)
        return lax.dynamic_update_slice_in_dim(out, jnp.where(wanted[None], values, kept), at, 1)

    return lax.fori_loop(np.int32(0), _turns(slots, form, group), body, out)


def spread(values: Array, slots: Slots, form: Form, along: int | None, block: Array) -> Array:
    """A block of zeros (C, B_1, .., B_d) with values (C, slots) added to it."""
    group, d = min(GROUP, values.shape[1]), block.ndim - 1
    inner = tuple(range(1, d + 2))
    numbers = lax.ScatterDimensionNumbers(inner, (), tuple(range(1, d + 1)))

    def body(turn: Array, block: Array) -> Array:
        at, cell, wanted, tables = _group(turn, slots, form, along, group)
        update = jnp.where(wanted[None], lax.dynamic_slice_in_dim(values, at, group, 1), 0).T
        for j in range(d):
            update = update[..., None] * tables[j].T.reshape(group, *[1] * (1 + j), -1).astype(update.dtype)
        mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
        return lax.scatter_add(block, cell, update, numbers, mode=mode)

    return lax.fori_loop(np.int32(0), _turns(slots, form, group), body, block)


def _turns(slots: Slots, form: Form, group: int) -> Array:
    return (slots.count * form.chunk + group - 1) // group


def _group(
    turn: Array, slots: Slots, form: Form, along: int | None, group: int
) -> tuple[Array, Array, Array, list[Array]]:
    """Where a group of slots begins, their cells, which of them hold points that no other turn has, and the weights
    (reach, group) of every dimension."""
    at = jnp.minimum(turn * group, slots.cell.shape[0] - group)
    cell = lax.dynamic_slice_in_dim(slots.cell, at, group, 0)
    offset = lax.dynamic_slice_in_dim(slots.offset, at, group, 0)
    wanted = (cell[:, 0] >= 0) & (at + jnp.arange(group, dtype=at.dtype) >= turn * group)
    offset = jnp.where(wanted[:, None], offset, 0)
    tables = [weights(offset[:, j], None, form.reach, form, along == j).T for j in range(offset.shape[1])]
    return at, jnp.maximum(cell, 0), wanted, tables
