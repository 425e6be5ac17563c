"""The local form of gridding: how a device groups its points, their cost, and their weights.

A point is at offset v in (-1/2, 1/2] cells from the middle of the W = width + 2 slack cells that it may touch. Cell l
of these has the weight phi(l - (W - 1)/2 - v). Invariant: an empty slot has cell -1 and weight 0.

On a core of an EPYC 9004 (complex64) a point costs LEAST + ROW W^(d-1) + CELL W^d. Gathers take 1.5 to 7 times the
time, tiles 3 to 15 times. GPU costs are operation counts.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from .window import Window, phi

KINDS = {"cpu": "points", "gpu": "gather", "tpu": "tiles", "xla": "tiles"}  # "xla": a TPU without kernels
Outs = tuple[tuple[int, ...], ...]  # for each value of a point, dimensions whose window is replaced by its derivative
CHUNKS = {"points": 4, "gather": 4, "tiles": 32, "strips": 128}  # slots per chunk
TILES = {"points": (256, 16), "gather": (256, 16), "tiles": (32, 16, 8)}  # cells of a tile side, by dimensions
# Operations of the chip "cpu" (eight devices on two cores) in the time of each part
LEAST, ROW, CELL = 240, 16, 14


class Slots(NamedTuple):
    cell: Array  # lowest touched cell, (slots, d); -1 in empty slots
    offset: Array  # (slots, d)
    start: Array  # first cell of each chunk's tile, (chunks, d)
    count: Any  # chunks with points, which are first


@dataclasses.dataclass(frozen=True)
class Form:
    kind: str  # "points", "gather", "tiles", or "strips": tiles with shapes for TPUs
    tile: tuple[int, ...]  # tile of the lowest cells of a chunk's points
    chunk: int
    width: int
    slack: int  # cells by which a point may have moved
    coefficients: tuple[float, ...]  # of the window, see `window.phi`

    @property
    def reach(self) -> int:
        return self.width + 2 * self.slack


def chosen(window: Window, slack: int, block: tuple[int, ...], platform: str) -> Form:
    kind, d = KINDS.get(platform, "gather"), len(block)
    if platform == "tpu" and d in (2, 3):
        kind, sides = "strips", tpu_form(window.width + 2 * slack, d)[0]
    else:
        sides = (TILES[kind][:d][-1],) * d
    tile = tuple(min(side, size) for side, size in zip(sides, block, strict=True))
    return Form(kind, tile, CHUNKS[kind], window.width, slack, window.coefficients)


def tpu_form(reach: int, d: int) -> tuple[tuple[int, ...], int]:
    """Tile and chunk for points on a TPU in two or three dimensions.

    In 3-D the cells of the leading two dimensions, with halo, fill the 128 lanes of a product once or twice. A tile has
    about 200 points at a density of 1/4 (2-D) or 1/8 (3-D) per cell, so that chunks of 128 are mostly full.
    """
    if d == 2:
        sides: tuple[int, ...] = (40, 32)
    else:
        sides = (8, 16, 32) if reach <= 4 else (16, 16, 24)
    return tuple(max(side - (reach - 1), 2) for side in sides), CHUNKS["strips"]


def cost(form: Form, points: int, coils: int, itemsize: int) -> tuple[int, int]:
    """Operations and memory bytes for a device's points."""
    d = len(form.tile)
    rows, cells = form.reach ** (d - 1), form.reach**d
    ends = points * (coils * itemsize + (d + 1) * itemsize // 2)
    if form.kind == "points":
        wide = itemsize // 8  # a register holds half as many float64
        return points * (LEAST + coils * wide * (ROW * rows + CELL * cells)), ends
    if form.kind == "gather":
        return 4 * cells * coils * points, ends + points * coils * cells * itemsize
    sides = [t + form.reach - 1 for t in form.tile]
    if form.kind == "strips":  # vector unit: weights; matrix unit, 16 times as fast: six bfloat16 products
        depth, evaluated = math.prod(sides[:-1]), 8 + 2 * len(form.coefficients)
        made = evaluated * sum(sides) + 9 * depth
        return points * (made + 12 * depth * sides[-1] * coils // 16), ends
    dense = math.prod(sides)
    return 4 * dense * coils * points, ends + 2 * dense * coils * itemsize * points // form.chunk


def weights(offset: Array, lowest: Array | None, cells: int, form: Form, order: int, dim: int = -1) -> Array:
    """Weights of `cells` cells, or their derivative in the offset. `lowest`: the first that the point touches."""
    shape = list(offset.shape)
    shape.insert(dim % (offset.ndim + 1), cells)
    cell = lax.broadcasted_iota(jnp.int32, shape, dim % (offset.ndim + 1))
    if lowest is not None:
        cell = cell - jnp.expand_dims(lowest, dim)
    x = cell.astype(offset.dtype) - (form.reach - 1) / 2 - jnp.expand_dims(offset, dim)
    return phi(x, form.width, form.coefficients, order)


def groups(slots: Slots, form: Form, size: int) -> Array:
    size = min(size, slots.cell.shape[0])
    return (slots.count * form.chunk + size - 1) // size


def group_at(
    turn: Array, slots: Slots, form: Form, outs: Outs, size: int
) -> tuple[Array, Array, list[dict[int, Array]]]:
    """First slot of a group, its cells (size, d), and for each dimension the weights (reach, size) by their order.

    The last group may overlap the one before.
    """
    size = min(size, slots.cell.shape[0])
    at = jnp.minimum(turn * size, slots.cell.shape[0] - size)
    cell = lax.dynamic_slice_in_dim(slots.cell, at, size, 0)
    offset = jnp.where(cell >= 0, lax.dynamic_slice_in_dim(slots.offset, at, size, 0), 0)
    orders = [dict.fromkeys(along.count(j) for along in outs) for j in range(offset.shape[1])]
    tables = [
        {order: weights(offset[:, j], None, form.reach, form, order, 0) for order in some}
        for j, some in enumerate(orders)
    ]
    return at, cell, tables
