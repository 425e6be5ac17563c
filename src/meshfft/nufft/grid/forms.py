"""Which local form of gridding is taken, and what it costs: host numbers.

Measured, ns of one core of an EPYC 9004 a point, complex64, interpolate / spread, 1e6 random points in eight blocks:

    blocks, cells of the window       points      gather        tiles
    128 x 1024, 4                    17 / 24     25 / 38     140 / 200
    128 x 1024, 7                    35 / 43    55 / 147     193 / 289
    32 x 256 x 256, 4                83 / 96   149 / 187    1270 / 475
    32 x 256 x 256, 7               198 / 306  476 / 2050   2386 / 816
    24 x 192 x 192, 5                86 / 114
    16 x 160 x 160, 6               117 / 170

Hence of one point LEAST + ROW W^(d-1) + CELL W^d, and the block besides. A GPU wants many points at a time: none was
timed, and costs there are counts. On a TPU tiles lie in strips, for kernels of its own (tpu/gridding/kernels.py),
whose compiled schedules are within a third of the operations counted here.
"""

import math

from .weights import Form
from .window import Window

KINDS = {"cpu": "points", "gpu": "gather", "tpu": "tiles", "xla": "tiles"}  # "xla": a TPU without kernels
# Slots of a chunk: those of tiles share products, others an order
CHUNKS = {
    "points": 4,
    "gather": 4,
    "tiles": 32,
    "strips": 128,
}
TILES = {"points": (256, 16), "gather": (256, 16), "tiles": (32, 16, 8)}  # cells of a tile along each dimension, by d
# Operations that eight devices on two cores, as the chip "cpu" is meant, make in the time of each part
LEAST, ROW, CELL = 240, 16, 14


def chosen(window: Window, slack: int, block: tuple[int, ...], points: int, platform: str) -> Form:
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

    In three dimensions the cells of the leading two, with the halo, fill the 128 lanes that a product sums over once
    or twice. The tiles hold some 200 points at a quarter (two dimensions) and an eighth (three) of a point a cell, so
    that chunks of 128, a point to each lane, are mostly full. Where there are more points, smaller tiles cost less.
    """
    halo = reach - 1
    if d == 2:
        sides: tuple[int, ...] = (40, 32)
    else:
        sides = (8, 16, 32) if reach <= 4 else (16, 16, 24)
    return tuple(max(side - halo, 2) for side in sides), CHUNKS["strips"]


def cost(form: Form, points: int, d: int, coils: int, itemsize: int, platform: str) -> tuple[int, int]:
    """Operations, and bytes of memory, of a device's points: values and tables, and what lies scattered."""
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
