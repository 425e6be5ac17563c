"""Point-by-point gridding for CPUs: the W^d cells of a point are a slice of the block.

    t = Y[cell : cell + W];   r = sum_(l_d) phi_d .. sum_(l_1) phi_1(l_1) t(l_1, .., l_d),   and its transpose
    Y[cell : cell + W] += c phi_1 x .. x phi_d

The weights of a group of points are computed together, to fill vector registers; then a loop runs over them. XLA
compiles it into one function if an iteration touches less than 1024 bytes, or if `xla_cpu_small_call` asks for it;
otherwise an iteration costs 60 ns more. Asking when XLA would do so anyway, or with constants in the loop, may crash
its compiler (jaxlib 0.10.2). Costs 4 W^d flops a point and coil.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

from .form import Form, Outs, Slots, group_at, groups

Orders = tuple[int, ...]  # of the derivative of the window, by dimension
SMALL = 1024  # bytes below which XLA makes a function unasked
GROUP = 128  # points whose weights are computed at once; XLA would give more to threads, which spin meanwhile


def interpolate(block: Array, slots: Slots, form: Form, outs: Outs, out: Array) -> Array:
    coils = block.shape[0]
    cells = (1, *[form.reach] * (block.ndim - 1))
    wanted = _orders(outs, block.ndim - 1)
    block, slots = _opaque(block, slots)

    def group(turn: Array, out: Array) -> Array:
        at, first, last, tables = _group(turn, slots, form, outs)

        def point(coil: Array, i: Array, out: Array) -> Array:
            cell, parts = _point(at, i, slots, tables)
            tile = lax.dynamic_slice(block, [coil, *cell], cells)[0]
            sums: dict[Orders, tuple[Array, ...]] = {(): (tile.real, tile.imag)}
            for j, some in enumerate(parts):
                column = {order: part.reshape(-1, *[1] * (len(parts) - 1 - j)) for order, part in some.items()}
                sums = {
                    now: tuple(jnp.sum(plane * column[now[j]], 0) for plane in sums[now[:j]])
                    for now in dict.fromkeys(one[: j + 1] for one in wanted)
                }
            values = jnp.stack([jnp.where(cell[0] >= 0, lax.complex(*sums[one]), 0) for one in wanted])
            return lax.dynamic_update_slice(out, values[:, None], [coil * len(wanted), at + i])

        return _over(coils, _bytes(slots, block, form), first, last, point, out)

    return lax.fori_loop(np.int32(0), groups(slots, form, GROUP), group, out)


def spread(values: Array, slots: Slots, form: Form, outs: Outs, block: Array) -> Array:
    wanted = _orders(outs, block.ndim - 1)
    values, slots = _opaque(values, slots)

    def group(turn: Array, block: Array) -> Array:
        at, first, last, tables = _group(turn, slots, form, outs)

        def point(coil: Array, i: Array, block: Array) -> Array:
            cell, parts = _point(at, i, slots, tables)
            given = lax.dynamic_slice(values, [coil * len(wanted), at + i], (len(wanted), 1))[:, 0]
            given = jnp.where(cell[0] >= 0, given, 0)
            terms: dict[Orders, tuple[Array, ...]] = {
                one: (given[n].real, given[n].imag) for n, one in enumerate(wanted)
            }
            for j in reversed(range(len(parts))):
                sums: dict[Orders, tuple[Array, ...]] = {}
                for one, planes in terms.items():
                    part = parts[j][one[j]].reshape(-1, *[1] * planes[0].ndim)
                    more = tuple(plane[None] * part for plane in planes)
                    sums[one[:j]] = tuple(map(jnp.add, sums[one[:j]], more)) if one[:j] in sums else more
                terms = sums
            re, im = terms[()]
            old = lax.dynamic_slice(block, [coil, *cell], (1, *re.shape))
            return lax.dynamic_update_slice(block, lax.complex(old.real + re[None], old.imag + im[None]), [coil, *cell])

        return _over(block.shape[0], 3 * _bytes(slots, block, form), first, last, point, block)

    return lax.fori_loop(np.int32(0), groups(slots, form, GROUP), group, block)


def _orders(outs: Outs, dims: int) -> list[Orders]:
    return [tuple(map(along.count, range(dims))) for along in outs]


def _opaque(array: Array, slots: Slots) -> tuple[Array, Slots]:
    """Hides constants, which XLA on a CPU would put into the loop's function, and fail."""
    return lax.optimization_barrier((array, slots))


def _over(
    coils: int, touched: int, first: Array, last: Array, point: Callable[[Array, Array, Array], Array], carry: Array
) -> Array:
    def coil(c: Array, carry: Array) -> Array:
        def points(c: Array, carry: Array) -> Array:
            return lax.fori_loop(first, last, lambda i, carry: point(c.astype(i.dtype), i, carry), carry)

        if touched < SMALL:
            return points(c, carry)
        return set_xla_metadata(jax.jit(points)(c, carry), xla_cpu_small_call="true", inlineable="false")

    return coil(jnp.int32(0), carry) if coils == 1 else lax.fori_loop(0, coils, coil, carry)


def _bytes(slots: Slots, block: Array, form: Form) -> int:
    """Bytes of a point's cells; 0 for a single point, whose loop XLA removes."""
    return form.reach ** (block.ndim - 1) * block.dtype.itemsize * (slots.cell.shape[0] > 1)


def _group(turn: Array, slots: Slots, form: Form, outs: Outs) -> tuple[Array, Array, Array, list[dict[int, Array]]]:
    """First slot of a group, the range of slots of no other group, and the weights (reach, group)."""
    at, cell, tables = group_at(turn, slots, form, outs, GROUP)
    return at, turn * len(cell) - at, jnp.minimum(slots.count * form.chunk - at, len(cell)), tables


def _point(at: Array, i: Array, slots: Slots, tables: list[dict[int, Array]]) -> tuple[list[Array], Any]:
    row = lax.dynamic_slice(slots.cell, [at + i, jnp.zeros_like(i)], (1, len(tables)))[0]
    return [row[j] for j in range(len(tables))], jax.tree.map(
        lambda t: lax.dynamic_slice_in_dim(t, i, 1, 1)[:, 0], tables
    )
