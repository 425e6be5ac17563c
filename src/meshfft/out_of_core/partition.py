"""How an array is cut into tiles that fit, and which of its dimensions are transformed together.

Tiles are devices in time: a layout over a mesh of tiles says which positions each has. A file is written in one layout
and read in any other, so it does every redistribution. Host integers only. Invariant: no tile is empty.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from ..layout.layout import Cut, Layout

AXES = "pqrstuvw"  # names of the axes of a mesh of tiles; no more dimensions can be cut
Shape = tuple[int, ...]


def partitions(items: Shape, many: int) -> Iterator[tuple[Shape, ...]]:
    """The ways to put items into `many` sets, none of them empty."""
    if not items:
        if many == 0:
            yield ()
        return
    first, rest = items[0], items[1:]
    for sets in partitions(rest, many):
        for j, one in enumerate(sets):
            yield (*sets[:j], (first, *one), *sets[j + 1 :])
    if many > 0:
        for sets in partitions(rest, many - 1):
            yield ((first,), *sets)


def cut(
    shape: Shape,
    uncut: Sequence[int],
    fits: Callable[[Shape], bool],
    unit: Shape,
    *,
    strict: bool = False,
    fortran: bool = False,
) -> Layout | None:
    """The layout that cuts the fewest dimensions, none of `uncut`, into the fewest parts whose blocks fit, if any do.

    Several are cut into about as many parts each, so that a block of one pass and one of the next have much in common.
    Of sets of as many dimensions it cuts the one with the longest runs, as `runs`. A block has a multiple of `unit` if
    one fits in, or always if `strict`. What is smaller than a block that fits must fit too.
    """
    free = [d for d in range(len(shape)) if d not in uncut and shape[d] > 1]
    for many in range(min(len(free), len(AXES)) + 1):
        ways = (_cut(shape, dims, fits, unit, strict) for dims in itertools.combinations(free, many))
        if layouts := [layout for layout in ways if layout is not None]:
            return min(layouts, key=lambda layout: (runs(layout, fortran=fortran), math.prod(layout.parts)))
    return None


def runs(layout: Layout, *, fortran: bool = False) -> int:
    """The number of runs on the disk of all blocks of an array that is stored in C order, or in Fortran order."""
    order = slice(None, None, -1 if fortran else 1)
    shape, parts = layout.shape[order], layout.parts[order]
    last = max((d for d, count in enumerate(parts) if count > 1), default=None)
    return 1 if last is None else math.prod(shape[:last]) * parts[last]


def alike(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts with the least block of all along each dimension that they cut, so that they have much in common."""
    blocks = [{d: one.block[d] for d in range(one.ndim) if one.parts[d] > 1} for one in layouts]
    smallest = {d: min(block[d] for block in blocks if d in block) for d in itertools.chain(*blocks)}
    return tuple(_of_blocks(one.shape, {d: smallest[d] for d in of}) for one, of in zip(layouts, blocks, strict=True))


def least(most: int, right: Callable[[int], bool]) -> int:
    """The least number for which something holds, that holds for `most` and all between."""
    return bisect.bisect_left(range(1, most), True, key=right) + 1


def _cut(shape: Shape, dims: Shape, fits: Callable[[Shape], bool], unit: Shape, strict: bool) -> Layout | None:
    """The fewest parts of all of these dimensions alike, and then the fewest of each."""

    def fitting(parts: Sequence[int]) -> Layout | None:
        sides = {d: -(-shape[d] // min(p, shape[d])) for d, p in zip(dims, parts, strict=True)}
        units = {d: n // unit[d] * unit[d] or (unit[d] if strict else n) for d, n in sides.items()}
        layout = _of_blocks(shape, units)
        return layout if fits(layout.block) else None

    longest = max((shape[d] for d in dims), default=1)
    if fitting([longest] * len(dims)) is None:
        return None
    parts = [least(longest, lambda p: fitting([p] * len(dims)) is not None)] * len(dims)
    for j in range(len(dims)):
        parts[j] = least(parts[j], lambda p, j=j: fitting([*parts[:j], p, *parts[j + 1 :]]) is not None)  # type: ignore[misc]
    return fitting(parts)


def _of_blocks(shape: Shape, blocks: dict[int, int]) -> Layout:
    """The layout of blocks that have at most as many positions of some dimensions as `blocks` gives."""
    counts = {dim: -(-shape[dim] // block) for dim, block in blocks.items() if block < shape[dim]}
    cuts = {dim: (Cut(name, counts[dim], blocks[dim]),) for dim, name in zip(counts, AXES, strict=False)}
    return Layout(shape, tuple(cuts.get(dim, ()) for dim in range(len(shape))))
