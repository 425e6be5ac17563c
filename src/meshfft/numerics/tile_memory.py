"""Memory of `products.product_in_tiles` beside its blocks and its result, by what XLA makes of it on CPUs.

    bytes = columns of matrices at once * rows + 2 * (slices of a tile + their products)

A matrix needs no data, so that XLA makes all of them at once that no loop makes, and one more in a loop. Loops of one
turn are unrolled. Tiles of one loop lie where those of another lay; their slices and products are there twice, as they
are cut and as two-dimensional matrices.
"""

import math
from collections.abc import Sequence

from .chunks import runs
from .products import COLUMNS, TERMS, TILE, WIDE_TILE


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
    tile = width * (cut + math.ceil(cut / TERMS) * rows) * itemsize
    return planes * real * rows * at_once + 2 * tile


def columns_at_once(columns: int, terms: Sequence[int]) -> int:
    """Columns of all matrices that are made at once."""
    unrolled, looped = 0, 0
    for many in terms:
        first, single, several = runs(columns, COLUMNS // many)
        unrolled += many * first + COLUMNS * ((single == 1) + (several == 1))
        looped = max(looped, COLUMNS * (single > 1 or several > 0))
    return unrolled + looped
