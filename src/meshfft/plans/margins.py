"""Margins: halo or ghost cells around every block of an array, which a transform leaves out (`plan`).

    cells along a dimension over p blocks   p (n / p + 2 m)   of which n are transformed

Host integers only. Invariant: blocks are equal, before and after, so that all of them have their margins.
"""

import dataclasses
import functools
from collections.abc import Sequence

from ..layout.layout import Layout
from ..operators.transform import check_once, integers, is_integer
from ..steps import Margin
from ..walks.walk import Walk

Widths = tuple[tuple[int, int], ...]  # dimensions, and the margins of their blocks


def widths_of(margin: int | Sequence[int], start: Layout, dims: tuple[int, ...]) -> Widths:
    """The dimensions that have margins, and how wide these are; none is left where they are 0.

    Raises:
        TypeError, ValueError: a margin is no integer or negative, does not fit the blocks, or leaves none of their
            cells.
    """
    given = integers(margin, "margin")
    each = given * len(dims) if is_integer(margin) else given
    if len(each) != len(dims):
        raise ValueError(f"margin {given} has {len(each)} widths for {len(dims)} axes: give one, or one for each axis")
    check_once(dims)
    for dim, width in zip(dims, each, strict=True):
        if width < 0:
            raise ValueError(f"margin {width} of axis {dim} is negative: give the number of cells, 0 or more")
        if width:
            _check_blocks(dim, width, start.shape[dim], start.parts[dim])
    return tuple(sorted((dim, width) for dim, width in zip(dims, each, strict=True) if width))


def _check_blocks(dim: int, width: int, size: int, parts: int) -> None:
    block, rest = divmod(size, parts)
    if rest:
        whole, over = f"p (n + 2 m) with p = {parts} and m = {width}", f"{block * parts} or {(block + 1) * parts}"
        raise ValueError(f"axis {dim} has {size} cells over {parts} blocks: with margins it has {whole}, as {over}")
    if block <= 2 * width:
        most = max(block - 1, 0) // 2
        raise ValueError(
            f"margin {width} on both sides leaves nothing of the blocks of axis {dim}, which have {block} cells: give "
            f"at most {most}, or larger blocks (shape counts the margins of every block)"
        )


def without(start: Layout, widths: Widths) -> Layout:
    """The layout of what is transformed."""
    return Margin(widths, onto=False).after(start) if widths else start


@functools.lru_cache(maxsize=1024)
def framed(walk: Walk, widths: Widths) -> Walk:
    """The walk of arrays with margins: they are left out first, and in the end put on as zeros.

    Raises:
        ValueError: the blocks of the result are not equal.
    """
    for dim, width in widths:
        size, parts = walk.end.shape[dim], walk.end.parts[dim]
        if size % parts or walk.end.block[dim] * parts != size:
            raise ValueError(
                f"the result has {size} points along axis {dim}, which {parts} blocks do not divide, so margin {width} "
                "does not fit: give an out_spec= that cuts it evenly or not at all, or margin 0 along it"
            )
    before = Margin(widths, onto=True).after(walk.start)
    steps = (Margin(widths, onto=False), *walk.steps, Margin(widths, onto=True))
    return dataclasses.replace(walk, start=before, steps=steps)
