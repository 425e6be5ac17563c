"""Memory of `tiles.product_in_tiles` beside its blocks and its result, by what XLA makes of it on CPUs.

    bytes = 2 * (columns of matrices at once * rows + slices of a tile + their products)

A matrix needs no data, so that XLA makes all of them at once that no loop makes, and one more in a loop. Loops of one
turn are unrolled. Tiles of one loop lie where those of another lay. All is there twice: matrices as they are made and
in groups, whole ones; slices and products as they are cut and as two-dimensional matrices.
"""

import math
from collections.abc import Sequence

from .chunks import runs
from .products import GROUP
from .tiles import COLUMNS, TILE, WIDE_TILE


def bytes_at_once(
    shape: tuple[int, int], lines: int, terms: Sequence[int], planes: int, itemsize: int, real: int, wide: bool
) -> int:
    """Bytes of matrices and tiles.

    Args:
        shape: rows and columns of each matrix.
        lines: positions beside the dimension.
        terms: how many matrices each call multiplies by.
        planes: real matrices that one is made of.
        itemsize, real: bytes of the larger of a block's and a result's elements, and of its real part.
        wide: one device has all cores.
    """
    rows, columns = shape
    width, at_once = min(lines, WIDE_TILE if wide else TILE), columns_at_once(columns, terms)
    cut = at_once if lines < 2 * width else min(max(terms) * columns, 2 * COLUMNS)  # else tiles are in loops
    tile = width * (cut + math.ceil(cut / GROUP) * rows) * itemsize
    return 2 * (planes * real * rows * at_once + tile)


def columns_at_once(columns: int, terms: Sequence[int]) -> int:
    """Columns of all matrices that are made at once."""
    unrolled, looped = 0, 0
    for many in terms:
        first, single, _ = runs(columns, COLUMNS // many, together=False)
        unrolled += many * math.ceil(first / GROUP) * GROUP + COLUMNS * (single == 1)
        looped = max(looped, COLUMNS * (single > 1))
    return unrolled + looped
