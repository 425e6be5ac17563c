"""Cutting: which dimensions are transformed together, and how an array is cut into pieces that fit.

Pieces are devices in time: a layout over a mesh of pieces says which positions each has. A store can be written in one
layout and read in any other, so it does every swap; what is left to choose is which dimensions a pass transforms, and
the dimensions that its pieces cut instead. Host integers only. Invariant: every piece has something of the array.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from ..layout.layout import Cut, Layout

AXES = "pqrstuvw"  # names of the axes of a mesh of pieces; no more dimensions can be cut
Shape = tuple[int, ...]


def partitions(items: Shape, many: int) -> Iterator[tuple[Shape, ...]]:
    """The ways to put items into `many` groups, none of them empty."""
    if not items:
        if many == 0:
            yield ()
        return
    first, rest = items[0], items[1:]
    for groups in partitions(rest, many):
        for j, group in enumerate(groups):
            yield (*groups[:j], (first, *group), *groups[j + 1 :])
    if many > 0:
        for groups in partitions(rest, many - 1):
            yield ((first,), *groups)


def cut(
    shape: Shape,
    whole: Sequence[int],
    fits: Callable[[Shape], bool],
    unit: Shape | None = None,
    *,
    strict: bool = False,
) -> Layout | None:
    """The layout that cuts the fewest dimensions into the fewest parts whose blocks fit.

    Several dimensions are cut into about as many parts each, so that a block of one pass and one of the next have much
    in common: a file between them holds just that. Of the sets of as many dimensions, it cuts the one with the longest
    runs in C order.

    Args:
        shape: that of the array.
        whole: the dimensions that may not be cut.
        fits: whether a block of some shape does; one that is smaller must fit too.
        unit: the chunks that the array is stored in: a block of at least one along a dimension has whole ones.
        strict: whether no block may have less than one.

    Returns:
        The layout; None where even the smallest block does not fit.

    Takes log2(max(shape)) questions for each set of dimensions.
    """
    rounded = functools.partial(_blocks, shape, unit=unit or (1,) * len(shape), strict=strict)
    free = [d for d in range(len(shape)) if d not in whole and shape[d] > 1]
    for many in range(min(len(free), len(AXES)) + 1):
        ways = (_cut(shape, dims, fits, rounded) for dims in itertools.combinations(free, many))
        if found := [layout for layout in ways if layout is not None]:
            return min(found, key=lambda layout: (runs(layout), math.prod(layout.parts)))
    return None


def runs(layout: Layout) -> int:
    """The number of runs on the disk of all blocks of an array that is stored in C order."""
    last = max((d for d in range(layout.ndim) if layout.parts[d] > 1), default=None)
    return 1 if last is None else math.prod(layout.shape[:last]) * layout.parts[last]


def alike(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts with blocks of one extent along a dimension, the least, in all of those that cut it.

    So what a block of one and a block of another have in common is as large as it can be.
    """
    cutting = [[dim for dim in range(layout.ndim) if layout.parts[dim] > 1] for layout in layouts]
    pairs = list(zip(layouts, cutting, strict=True))
    blocks = {dim: min(one.block[dim] for one, cut in pairs if dim in cut) for dim in itertools.chain(*cutting)}
    return tuple(_of_blocks(one.shape, {dim: blocks[dim] for dim in cut}) for one, cut in pairs)


def covered(layout: Layout, chunk: Shape) -> int:
    """How many positions are read where every block is read in whole chunks: a chunk in two blocks counts twice."""
    sides = []
    for dim, (size, side) in enumerate(zip(layout.shape, chunk, strict=True)):
        starts, counts = layout.starts(dim), layout.counts(dim)
        ends = [min(size, -(-int(end) // side) * side) for end in starts + counts]
        sides.append(sum(end - int(start) // side * side for start, end in zip(starts, ends, strict=True)))
    return math.prod(sides)


def _cut(
    shape: Shape, dims: Shape, fits: Callable[[Shape], bool], blocks: Callable[[Shape, Sequence[int]], dict[int, int]]
) -> Layout | None:
    """The fewest parts of all of these dimensions alike, and then the fewest of each."""

    def fit(parts: Sequence[int]) -> bool:
        return fits(_of_blocks(shape, blocks(dims, parts)).block)

    longest = max((shape[d] for d in dims), default=1)
    if not fit([longest] * len(dims)):
        return None
    parts = [least(longest, lambda p: fit([p] * len(dims)))] * len(dims)
    for j in range(len(dims)):
        parts[j] = least(parts[j], functools.partial(_fits_with, fit, parts, j))
    return _of_blocks(shape, blocks(dims, parts))


def _fits_with(fit: Callable[[Sequence[int]], bool], parts: Sequence[int], place: int, p: int) -> bool:
    return fit([*parts[:place], p, *parts[place + 1 :]])


def _blocks(shape: Shape, dims: Shape, parts: Sequence[int], unit: Shape, strict: bool) -> dict[int, int]:
    """How many positions of each dimension its blocks have: whole units where one fits in, or always."""
    sides = {dim: -(-shape[dim] // min(p, shape[dim])) for dim, p in zip(dims, parts, strict=True)}
    return {dim: n // unit[dim] * unit[dim] or (unit[dim] if strict else n) for dim, n in sides.items()}


def _of_blocks(shape: Shape, blocks: dict[int, int]) -> Layout:
    """The layout of blocks that have at most as many positions of some dimensions as `blocks` gives."""
    counts = {dim: -(-shape[dim] // block) for dim, block in blocks.items() if block < shape[dim]}
    names = dict(zip(counts, AXES, strict=False))
    cuts = {dim: (Cut(names[dim], count, blocks[dim]),) for dim, count in counts.items()}
    return Layout(shape, tuple(cuts.get(dim, ()) for dim in range(len(shape))))


def least(most: int, right: Callable[[int], bool]) -> int:
    """The least number for which something holds, that holds for `most` and all between."""
    low = 1
    while low < most:
        middle = (low + most) // 2
        low, most = (low, middle) if right(middle) else (middle + 1, most)
    return low
