"""The form in which one device works on scattered points: how points are grouped, what that costs, and their weights.

A point is at an offset v in (-1/2, 1/2] cells from the middle of the W = width + 2 slack cells that it may touch. The
weight of cell l, counted from the lowest of these, is phi(l - (W - 1)/2 - v). Invariant: an empty slot has cell -1 and
weighs nothing, whatever its offset.

Measured on one core of an EPYC 9004 (complex64, 1e6 random points in eight blocks), a point costs LEAST + ROW W^(d-1)
+ CELL W^d: 17 ns in 2-D with 4 cells, 306 ns in 3-D with 7; by gathers 1.5 to 7 times that, by tiles 3 to 15 times. A
GPU wants many points at a time: none was timed, and its costs are counts. On a TPU tiles are in strips, for kernels of
its own (tpu/gridding/kernels.py), whose compiled schedules are within a third of the operations counted here.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from .window import Window, phi

KINDS = {"cpu": "points", "gpu": "gather", "tpu": "tiles", "xla": "tiles"}  # "xla": a TPU without kernels
CHUNKS = {"points": 4, "gather": 4, "tiles": 32, "strips": 128}  # slots: those of tiles share products, others an order
TILES = {"points": (256, 16), "gather": (256, 16), "tiles": (32, 16, 8)}  # cells of a tile along each dimension, by d
# Operations that eight devices on two cores, as the chip "cpu" is meant, make in the time of each part
LEAST, ROW, CELL = 240, 16, 14


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Slots:
    """The points of one device in slots, a chunk of them for each tile or more; see binning.py."""

    cell: Array  # the lowest cell touched, (slots, d), -1 where there is no point
    offset: Array  # (slots, d)
    start: Array  # the first cell of every chunk's tile, (chunks, d)
    count: Array  # chunks that hold points, which come first


@dataclasses.dataclass(frozen=True)
class Form:
    """How one device interpolates and spreads: point by point, by gathers, or by dense products of tiles."""

    kind: str  # "points", "gather", "tiles", or "strips", which are tiles of shapes for TPUs
    tile: tuple[int, ...]  # lowest cells of a chunk's points are in a tile of this shape
    chunk: int  # slots of a chunk
    width: int  # cells of the window in every dimension
    slack: int  # cells by which a point may have moved since it was placed, to either side
    coefficients: tuple[float, ...]  # of the window, see `window.phi`

    @property
    def reach(self) -> int:
        """Cells that a point may touch in each dimension."""
        return self.width + 2 * self.slack


def chosen(window: Window, slack: int, block: tuple[int, ...], platform: str) -> Form:
    """The form for a window in blocks of a shape."""
    kind, d = KINDS.get(platform, "gather"), len(block)
    if platform == "tpu" and d in (2, 3):
        kind, sides = "strips", tpu_form(window.width + 2 * slack, d)[0]
    else:
        sides = (TILES[kind][:d][-1],) * d
    tile = tuple(min(side, size) for side, size in zip(sides, block, strict=True))
    return Form(kind, tile, CHUNKS[kind], window.width, slack, window.coefficients)


def tpu_form(reach: int, d: int) -> tuple[tuple[int, ...], int]:
    """The tile and the chunk for points on a TPU in two or three dimensions, each of which may touch `reach` cells.

    In three dimensions the cells of the leading two, with the halo, fill the 128 lanes of a product once or twice. The
    tiles hold some 200 points at a quarter (2-D) and an eighth (3-D) of a point a cell: chunks of 128 are mostly full.
    """
    if d == 2:
        sides: tuple[int, ...] = (40, 32)
    else:
        sides = (8, 16, 32) if reach <= 4 else (16, 16, 24)
    return tuple(max(side - (reach - 1), 2) for side in sides), CHUNKS["strips"]


def cost(form: Form, points: int, d: int, coils: int, itemsize: int, platform: str) -> tuple[int, int]:
    """Operations, and bytes of memory, of a device's points: values and tables, and what is scattered."""
    rows, cells = form.reach ** (d - 1), form.reach**d
    ends = points * (coils * itemsize + (d + 1) * itemsize // 2)
    if form.kind == "points":
        wide = itemsize // 8  # registers hold half as many numbers of double precision
        return points * (LEAST + coils * wide * (ROW * rows + CELL * cells)), ends
    if form.kind == "gather":
        return 4 * cells * coils * points, ends + points * coils * cells * itemsize
    sides = [t + form.reach - 1 for t in form.tile]
    if form.kind == "strips":  # weights by the vector unit; six products of bfloat16, at sixteen of its operations
        depth, evaluated = math.prod(sides[:-1]), 8 + 2 * len(form.coefficients)
        made = evaluated * sum(sides) + 9 * depth
        return points * (made + 12 * depth * sides[-1] * coils // 16), ends
    dense = math.prod(sides)
    return 4 * dense * coils * points, ends + 2 * dense * coils * itemsize * points // form.chunk


def weights(offset: Array, lowest: Array | None, cells: int, form: Form, order: int, dim: int = -1) -> Array:
    """Weights of `cells` cells on a new dimension, or a derivative of them in the offset.

    `lowest` is the first cell among them that the point may touch; None stands for 0.
    """
    shape = list(offset.shape)
    shape.insert(dim % (offset.ndim + 1), cells)
    cell = lax.broadcasted_iota(jnp.int32, shape, dim % (offset.ndim + 1))
    if lowest is not None:
        cell = cell - jnp.expand_dims(lowest, dim)
    x = cell.astype(offset.dtype) - (form.reach - 1) / 2 - jnp.expand_dims(offset, dim)
    return phi(x, form.width, form.coefficients, order)


def groups(slots: Slots, form: Form, size: int) -> Array:
    """Groups of `size` slots, at most, that hold points."""
    size = min(size, slots.cell.shape[0])
    return (slots.count * form.chunk + size - 1) // size


def group_at(
    turn: Array, slots: Slots, form: Form, along: tuple[int, ...], size: int
) -> tuple[Array, Array, list[Array]]:
    """First slot of a group, its cells (size, d), and the weights (reach, size) of every dimension.

    The last group overlaps the one before it if groups do not divide the slots.
    """
    size = min(size, slots.cell.shape[0])
    at = jnp.minimum(turn * size, slots.cell.shape[0] - size)
    cell = lax.dynamic_slice_in_dim(slots.cell, at, size, 0)
    offset = jnp.where(cell >= 0, lax.dynamic_slice_in_dim(slots.offset, at, size, 0), 0)
    tables = [weights(offset[:, j], None, form.reach, form, along.count(j), 0) for j in range(offset.shape[1])]
    return at, cell, tables
