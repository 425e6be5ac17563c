"""Interpolate and spread by tiles: the points of a chunk lie in one tile, and dense products sum over its cells.

With A_i = tile_i + W - 1 cells that a chunk may touch in dimension i, L[k, (l_1 .. l_(d-1))] = prod_(i<d) phi_i(l_i; k)
and R[k, l_d] = phi_d(l_d; k),

    r[k] = sum_(l_d) R[k, l_d] (L Y)[k, l_d],   and its transpose   Y += L^T (R c)

Costs 4 prod_i A_i flops a point and coil, by matrix units, and reads and writes a tile once a chunk.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .weights import Form, Slots, weights


def interpolate(block: Array, slots: Slots, form: Form, along: tuple[int, ...], out: Array) -> Array:
    """Values (C, slots) at the points from a block (C, B_1, .., B_d), put where `out` holds zeros."""
    coils = block.shape[0]

    def body(i: Array, out: Array) -> Array:
        start, wanted, left, right = _chunk(i, slots, form, along)
        tile = lax.dynamic_slice(block, start, (coils, *_cells(form)))
        planes = jnp.stack([tile.real, tile.imag]).reshape(2, coils, left.shape[1], right.shape[1])
        product = jnp.einsum("kl,pclm->kpcm", left, planes, precision=lax.Precision.HIGHEST)
        values = jnp.sum(product * right[:, None, None], -1)
        values = jnp.where(wanted[None], lax.complex(values[:, 0], values[:, 1]).T, 0)
        return lax.dynamic_update_slice_in_dim(out, values, i * form.chunk, 1)

    return lax.fori_loop(np.int32(0), slots.count, body, out)


def spread(values: Array, slots: Slots, form: Form, along: tuple[int, ...], block: Array) -> Array:
    """A block of zeros (C, B_1, .., B_d) with values (C, slots) added to it."""
    coils = values.shape[0]

    def body(i: Array, block: Array) -> Array:
        start, wanted, left, right = _chunk(i, slots, form, along)
        given = jnp.where(wanted[None], lax.dynamic_slice_in_dim(values, i * form.chunk, form.chunk, 1), 0)
        columns = jnp.stack([given.real, given.imag])[..., None] * right[None, None]
        planes = jnp.einsum("kl,pckm->pclm", left, columns, precision=lax.Precision.HIGHEST)
        tile = lax.complex(planes[0], planes[1]).reshape(coils, *_cells(form))
        return lax.dynamic_update_slice(block, lax.dynamic_slice(block, start, tile.shape) + tile, start)

    return lax.fori_loop(np.int32(0), slots.count, body, block)


def _cells(form: Form) -> tuple[int, ...]:
    """Cells that the points of a chunk may touch."""
    return tuple(t + form.reach - 1 for t in form.tile)


def _chunk(i: Array, slots: Slots, form: Form, along: tuple[int, ...]) -> tuple[list[Array], Array, Array, Array]:
    """Where a chunk's tile starts in the block, which of its slots hold points, L and R."""
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
