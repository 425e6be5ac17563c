"""Partition of an array into tiles that fit, and of its dimensions into sets that are transformed together.

Tiles are devices in time: a layout over a mesh of tiles gives the positions of each. A file that is written in one
layout and read in another does the redistribution. Host integers only. Invariant: no tile is empty.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from ..layout.layout import Cut, Layout
from ..numerics.split_complex import Shape

AXES = "pqrstuvw"  # axes of a mesh of tiles; no more dimensions can be cut


def partitions(items: Shape, many: int) -> Iterator[tuple[Shape, ...]]:
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
    """The layout with blocks that fit, and the fewest cut dimensions, none of `uncut`, and parts; None if none fits.

    Several dimensions are cut into similar numbers of parts, so that blocks of successive passes overlap in large
    boxes.
    Among equal numbers of dimensions, the set with the longest runs wins. Block sides are multiples of `unit` if one
    fits,
    or always if `strict`. Every block smaller than one that fits has to fit too.
    """
    free = [d for d in range(len(shape)) if d not in uncut and shape[d] > 1]
    for many in range(min(len(free), len(AXES)) + 1):
        ways = (_cut(shape, dims, fits, unit, strict) for dims in itertools.combinations(free, many))
        if layouts := [layout for layout in ways if layout is not None]:
            return min(layouts, key=lambda layout: (runs(layout, fortran=fortran), math.prod(layout.parts)))
    return None


def runs(layout: Layout, *, fortran: bool = False) -> int:
    """Number of contiguous runs on disk of all blocks of an array in C order, or in Fortran order."""
    order = slice(None, None, -1 if fortran else 1)
    shape, parts = layout.shape[order], layout.parts[order]
    last = max((d for d, count in enumerate(parts) if count > 1), default=None)
    return 1 if last is None else math.prod(shape[:last]) * parts[last]


def alike(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts with the smallest block of all along each cut dimension, so that blocks overlap in large boxes."""
    blocks = [{d: one.block[d] for d in range(one.ndim) if one.parts[d] > 1} for one in layouts]
    smallest = {d: min(block[d] for block in blocks if d in block) for d in itertools.chain(*blocks)}
    return tuple(_of_blocks(one.shape, {d: smallest[d] for d in of}) for one, of in zip(layouts, blocks, strict=True))


def least(most: int, right: Callable[[int], bool]) -> int:
    """The smallest number for which `right` holds; `right` is monotonic and holds for `most`."""
    return bisect.bisect_left(range(1, most), True, key=right) + 1


def _cut(shape: Shape, dims: Shape, fits: Callable[[Shape], bool], unit: Shape, strict: bool) -> Layout | None:
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
    counts = {dim: -(-shape[dim] // block) for dim, block in blocks.items() if block < shape[dim]}
    cuts = {dim: (Cut(name, counts[dim], blocks[dim]),) for dim, name in zip(counts, AXES, strict=False)}
    return Layout(shape, tuple(cuts.get(dim, ()) for dim in range(len(shape))))
