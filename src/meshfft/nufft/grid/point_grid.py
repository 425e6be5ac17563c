"""Point-by-point gridding for CPUs: the W^d cells of a point are a slice of the block.

    t = Y[cell : cell + W];   r = sum_(l_d) phi_d .. sum_(l_1) phi_1(l_1) t(l_1, .., l_d),   and its transpose
    Y[cell : cell + W] += c phi_1 x .. x phi_d

The weights of a group of points are computed together, to fill vector registers; then a loop runs over the points. XLA
compiles it into one function if an iteration touches less than 1024 bytes, or if `xla_cpu_small_call` asks for it;
otherwise an iteration costs 60 ns more. Asking when XLA would do so anyway, or with constants in the loop, may crash
its compiler (jaxlib 0.10.2). Costs 4 W^d flops a point and coil. Points should be sorted, so that cells stay in cache.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

from .form import Form, Slots, group_at, groups

SMALL = 1024  # bytes below which XLA makes the loop a function unasked
GROUP = 1024  # points whose weights are computed at once, to stay in cache


def interpolate(block: Array, slots: Slots, form: Form, along: tuple[int, ...], out: Array) -> Array:
    coils = block.shape[0]
    cells = (1, *[form.reach] * (block.ndim - 1))
    block, slots = _opaque(block, slots)

    def group(turn: Array, out: Array) -> Array:
        at, first, last, tables = _group(turn, slots, form, along)

        def point(coil: Array, i: Array, out: Array) -> Array:
            cell, parts = _point(at, i, slots, tables)
            tile = lax.dynamic_slice(block, [coil, *cell], cells)[0]
            re, im = tile.real, tile.imag
            for part in parts:
                part = part.reshape(-1, *[1] * (re.ndim - 1))
                re, im = jnp.sum(re * part, 0), jnp.sum(im * part, 0)
            value = jnp.where(cell[0] >= 0, lax.complex(re, im), 0)
            return lax.dynamic_update_slice(out, value[None, None], [coil, at + i])

        return _over(coils, _bytes(slots, block, form), first, last, point, out)

    return lax.fori_loop(np.int32(0), groups(slots, form, GROUP), group, out)


def spread(values: Array, slots: Slots, form: Form, along: tuple[int, ...], block: Array) -> Array:
    values, slots = _opaque(values, slots)

    def group(turn: Array, block: Array) -> Array:
        at, first, last, tables = _group(turn, slots, form, along)

        def point(coil: Array, i: Array, block: Array) -> Array:
            cell, parts = _point(at, i, slots, tables)
            value = lax.dynamic_slice(values, [coil, at + i], (1, 1))[0, 0]
            value = jnp.where(cell[0] >= 0, value, 0)
            re, im = value.real[None] * parts[-1], value.imag[None] * parts[-1]
            for part in parts[-2::-1]:
                part = part.reshape(-1, *[1] * re.ndim)
                re, im = re[None] * part, im[None] * part
            old = lax.dynamic_slice(block, [coil, *cell], (1, *re.shape))
            return lax.dynamic_update_slice(block, lax.complex(old.real + re[None], old.imag + im[None]), [coil, *cell])

        return _over(values.shape[0], 3 * _bytes(slots, block, form), first, last, point, block)

    return lax.fori_loop(np.int32(0), groups(slots, form, GROUP), group, block)


def _opaque(array: Array, slots: Slots) -> tuple[Array, Slots]:
    """Hides constants: XLA on a CPU would put them inside the function of the loop, and fail."""
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


def _group(turn: Array, slots: Slots, form: Form, along: tuple[int, ...]) -> tuple[Array, Array, Array, list[Array]]:
    """First slot of a group, the range of its slots that no other group has, and the weights (reach, group)."""
    at, cell, tables = group_at(turn, slots, form, along, GROUP)
    return at, turn * len(cell) - at, jnp.minimum(slots.count * form.chunk - at, len(cell)), tables


def _point(at: Array, i: Array, slots: Slots, tables: list[Array]) -> tuple[list[Array], list[Array]]:
    row = lax.dynamic_slice(slots.cell, [at + i, jnp.zeros_like(i)], (1, len(tables)))[0]
    return [row[j] for j in range(len(tables))], [lax.dynamic_slice_in_dim(t, i, 1, 1)[:, 0] for t in tables]
