"""How an array is cut into tiles that fit a budget, and which of its dimensions are transformed together.

    bytes of a process = a tile as it comes + one as it goes + devices x Plan.peak_bytes + 3 transfers in + 3 out

Tiles are devices in time: a layout over a mesh of tiles says which positions each has. A file is written in one layout
and read in any other, so it does every redistribution. What is left to choose is which dimensions a pass transforms,
and which ones its tiles cut instead. Host integers only. Invariant: no tile is empty.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..io.grid import Box
from ..layout.layout import Cut, Layout, axis_sizes
from ..numerics.dtypes import real_dtype
from ..plans.plan import Plan

TRANSFER_BYTES = 2**25  # larger ones are no faster
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
    Of sets of as many dimensions it cuts the one with the longest runs, as `runs`. A block has a multiple of `unit`
    where one fits in, or always where `strict`. What is smaller than a block that fits must fit too.
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
    least = {d: min(block[d] for block in blocks if d in block) for d in itertools.chain(*blocks)}
    return tuple(_of_blocks(one.shape, {d: least[d] for d in of}) for one, of in zip(layouts, blocks, strict=True))


def covered(layout: Layout, chunk: Shape) -> int:
    """How many positions are read where every block is read in whole chunks: a chunk in two blocks counts twice."""
    sides = []
    for dim, (size, side) in enumerate(zip(layout.shape, chunk, strict=True)):
        starts = layout.starts(dim)
        ends = np.minimum(size, -(-(starts + layout.counts(dim)) // side) * side)
        sides.append(int((ends - starts // side * side).sum()))
    return math.prod(sides)


def least(most: int, right: Callable[[int], bool]) -> int:
    """The least number for which something holds, that holds for `most` and all between."""
    return bisect.bisect_left(range(1, most), True, key=right) + 1


def transfer_bytes(budget: int) -> int:
    """How much a process with a budget reads or writes at a time."""
    return min(budget // 16, TRANSFER_BYTES)


def buffer_bytes(budget: int, chunk_bytes: int = 1) -> int:
    """Bytes of its buffers: a transfer, of one chunk at least, as part of a tile, in chunks, and as a file's bytes."""
    return min(3 * budget // 8, 6 * TRANSFER_BYTES) + 3 * max(0, chunk_bytes - transfer_bytes(budget))


def given_dtype(plan: Plan, dtype: np.dtype) -> np.dtype:
    """The type in which a plan is given numbers that are stored as `dtype`: a real one where they are real."""
    return plan.in_dtype if dtype.kind == "c" else real_dtype(plan.dtype)


def held_bytes(plan: Plan, dtype: np.dtype, shared: bool) -> int:
    """Bytes of the host's copies of a tile stored as `dtype`; with all devices at their peak where memory is shared.

    A tile comes, and is converted where it has to be; the one before it may still be on its way out.
    """
    given = given_dtype(plan, dtype)
    comes = math.prod(plan.shape) * (dtype.itemsize + (given.itemsize if given != dtype else 0))
    devices = math.prod(axis_sizes(plan.mesh).values()) if shared else 0
    return comes + math.prod(plan.out_shape) * plan.out_dtype.itemsize + devices * plan.peak_bytes


def boxes_of(layout: Layout) -> Iterator[Box]:
    """The logical part of every block, in C order."""
    starts = [layout.starts(dim) for dim in range(layout.ndim)]
    sides = (map(slice, at.tolist(), (at + layout.counts(dim)).tolist()) for dim, at in enumerate(starts))
    return itertools.product(*sides)


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
