"""Candidates: the steps that each method may take from a layout."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

from ..kernels.bluestein import is_awkward
from ..kernels.line_batches import fits_groups
from ..kernels.stockham import by_columns
from ..layout.layout import Cut, Cuts, Layout, even_cuts, nested
from ..numerics.phases import MAX_LENGTH
from ..operators.matrices import HalfRoots, Matrix, Roots
from ..operators.trig import Trig
from ..steps import (
    Exchange,
    LocalFFT,
    LocalTrig,
    PackedFFT,
    PhaseFFT,
    Pipeline,
    RealFFT,
    RingDense,
    SixStep,
    Step,
    Swap,
)
from ..steps.six_step import sides
from .problem import Problem

XLA_DIMS = 3  # of one real FFT
LEAST_BYTES = 2**18  # of a block that is worked on in a cache, piece by piece: a smaller one lies in it anyway
MOST_PIECES = 16  # of an exchange: each is an array of its own in the program
CHUNKS = 8  # of a pipeline: the first is computed while nothing travels, and each costs a message more


def moves(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Step]:
    """The steps that may be taken from a layout."""
    for offered in METHODS[problem.method]:
        yield from offered(problem, layout, todo)


def _ready(todo: dict[int, Matrix]) -> dict[int, Matrix]:
    """The dimensions that may come next: real lines become complex first, and complex ones real last."""
    turning = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is not None}
    others = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is None}
    last = any(matrix.becomes == "real" for matrix in turning.values())
    return others if last and others else turning or others


def _local(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[LocalFFT]:
    """All whole dimensions in one call of XLA, or in groups, or those that a cache can take a few lines at a time.

    Groups cost more passes, so that a search takes them only where all at once does not fit.
    """
    roots = _whole(layout, _ready(todo))
    if roots:
        chip, sign = problem.machine.chip, next(iter(roots.values())).sign
        lengths = {dim: matrix.length for dim, matrix in roots.items()}
        near = {dim: n for dim, n in lengths.items() if _large(problem, layout) and _near(layout, dim, n)}
        if near:
            yield _local_fft(near, sign, "cached")
        awkward = any(is_awkward(length, chip.cached) for length in lengths.values())
        yield _local_fft(lengths, sign, "chirp" if awkward else "xla")
        if _tight(problem, layout, roots):
            yield _local_fft(lengths, sign, "grouped")


def _local_fft(lengths: dict[int, int], sign: int, engine: str) -> LocalFFT:
    points = tuple(lengths.values())
    return LocalFFT(tuple(lengths), sign, points, points, engine)


def _tight(problem: Problem, layout: Layout, roots: dict[int, Roots]) -> bool:
    """True where memory has a limit and a group of lines can take the place of its own transform."""
    chip, whole = problem.machine.chip, all(layout.block[dim] == matrix.length for dim, matrix in roots.items())
    limited = chip.capacity is not None and chip.side == 1
    return limited and whole and fits_groups(layout.block, tuple(roots), problem.itemsize)


def _large(problem: Problem, layout: Layout) -> bool:
    """True where devices share a memory, and a block is so large that passes over it are what costs."""
    return problem.machine.chip.cached and math.prod(layout.block) * problem.itemsize >= LEAST_BYTES


def _near(layout: Layout, dim: int, length: int) -> bool:
    """True where a dimension may be done a few lines at a time; one device by itself has all cores for many."""
    if math.prod(layout.parts) == 1:
        return False
    return not is_awkward(length, True) if dim == layout.ndim - 1 else by_columns(layout.block, dim, length)


def _whole(layout: Layout, todo: dict[int, Matrix]) -> dict[int, Roots]:
    """The dimensions of a complex FFT that every device holds whole."""
    return {d: m for d, m in sorted(todo.items()) if isinstance(m, Roots) and m.whole and layout.parts[d] == 1}


def _real(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[RealFFT]:
    """The halved dimension with all others that are whole in one call of XLA, or alone."""
    for dim, matrix in todo.items():
        if isinstance(matrix, HalfRoots) and layout.parts[dim] == 1:
            others = {d: m.length for d, m in _whole(layout, todo).items()}
            joint = 0 < len(others) <= XLA_DIMS - 1
            if joint and (not matrix.onto_real or len(todo) == len(others) + 1):
                yield _real_fft({**others, dim: matrix.length}, matrix, "xla")
            if not matrix.onto_real or len(todo) == 1:
                yield _real_fft({dim: matrix.length}, matrix, "matmul" if problem.machine.chip.side > 1 else "xla")


def _trig(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[LocalTrig]:
    """The first whole dimension of a cosine or sine transform: in which order they come does not matter."""
    for dim, matrix in sorted(todo.items()):
        if isinstance(matrix, Trig) and layout.parts[dim] == 1:
            yield LocalTrig(dim, matrix, matrix.rows, problem.real_at(todo))
            return


def _real_fft(lengths: dict[int, int], matrix: HalfRoots, engine: str) -> RealFFT:
    points = tuple(lengths.values())
    return RealFFT(tuple(lengths), matrix, points, (*points[:-1], matrix.rows), engine)


def _pipelines(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Pipeline]:
    """Whole dimensions transformed and a swap, a chunk at a time, where devices send while they compute."""
    for local in _local(problem, layout, todo) if problem.machine.chip.overlaps else ():
        left = {dim: matrix for dim, matrix in todo.items() if dim not in local.dims}
        for swap in _swaps(problem, local.after(layout), left):
            if (dim := _chunked(layout, local, swap)) is not None:
                narrowest = problem.machine.chip.side if dim == layout.ndim - 1 else 1
                if (chunks := min(CHUNKS, layout.block[dim] // narrowest)) > 1:
                    yield Pipeline((local, swap), dim, chunks)


def _chunked(layout: Layout, local: LocalFFT, swap: Swap) -> int | None:
    """The dimension to cut into chunks: the longest that neither step touches, else what the swap's source has."""
    free = [d for d in range(layout.ndim) if d not in (*local.dims, swap.source, swap.target)]
    longest = max(free, key=layout.block.__getitem__, default=swap.source)
    dim = longest if layout.block[longest] >= CHUNKS else swap.source
    return dim if dim not in local.dims and layout.block[dim] > 1 else None


def _phase(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[PhaseFFT]:
    for dim, matrix in _ready(todo).items():
        parts, size = layout.parts[dim], layout.shape[dim]
        fits = nested(layout.cuts[dim]) and size == matrix.rows < MAX_LENGTH
        if isinstance(matrix, Roots) and matrix.whole and fits and parts > 1 and size % parts**2 == 0:
            yield PhaseFFT(dim, matrix.sign, size)


def _six_step(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[SixStep]:
    """As `_phase`, where exchanges are cheap and a cache takes a few lines at a time."""
    for step in _phase(problem, layout, todo) if _large(problem, layout) else ():
        if layout.parts[step.dim] <= MOST_PIECES and sides(step.length, layout.parts[step.dim]) is not None:
            yield SixStep(step.dim, step.sign, step.length)


def _packed(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[PackedFFT]:
    """Real lines that are cut, as half as many complex numbers."""
    for dim, matrix in _ready(todo).items():
        if isinstance(matrix, HalfRoots) and layout.parts[dim] > 1 and matrix.length < MAX_LENGTH:
            lines, half = layout.resize(dim, matrix.length), layout.resize(dim, matrix.half)
            stored = layout == lines.resize(dim, matrix.columns) and nested(lines.cuts[dim])
            if stored and matrix.length % (2 * layout.parts[dim] ** 2) == 0 and half.parts == lines.parts:
                yield PackedFFT(dim, matrix)


def _ring(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[RingDense]:
    real = problem.real_at(todo)
    for dim, matrix in _ready(todo).items():
        slot = None if matrix.row_axis is None else problem.transform.dims.index(dim)
        if (matrix.turn if isinstance(matrix, Trig) else max(matrix.rows, matrix.columns)) < MAX_LENGTH:
            cuts, parts = layout.resize(dim, matrix.rows).cuts[dim], layout.parts[dim]
            for dot in problem.dots:
                step = RingDense(dim, matrix, matrix.rows, cuts, dot, slot, real=real)
                if problem.machine.chip.cached:
                    yield dataclasses.replace(step, tiled=True, two_way=parts > 1)
                    continue
                yield step
                if parts > 2 and problem.machine.network is not None:
                    yield dataclasses.replace(step, two_way=True)


def _exchanges(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Swap | Exchange]:
    """Swaps; where devices share a memory piece by piece, and several onto one dimension, or all from one, at once."""
    if not _large(problem, layout):
        yield from _swaps(problem, layout, todo)
        return
    reached = set[Layout]()
    queue: list[tuple[tuple[Swap, ...], Layout]] = [((), layout)]
    while queue:
        queue, before = [], queue
        for swaps, at in before:
            for swap in _swaps(problem, at, todo):
                exchange, after = Exchange((*swaps, swap)), swap.after(at)
                few = exchange.parts <= MOST_PIECES
                if after not in reached and _at_once(swaps, swap) and (few or not swaps):
                    reached.add(after)
                    yield exchange if few else swap
                    queue += [(exchange.swaps, after)] if few else []


def _at_once(swaps: tuple[Swap, ...], swap: Swap) -> bool:
    """True where a swap may be done together with these: all onto one dimension or all from one, no axis twice."""
    every = (*swaps, swap)
    axes = [axis for one in every for axis in one.axes]
    ends = {one.source for one in every}, {one.target for one in every}
    return len(set(axes)) == len(axes) and 1 in map(len, ends)


def _swaps(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Swap]:
    """Axes leave a dimension that is still to be transformed, or where the goal does not want them."""
    for source, cuts in enumerate(layout.cuts):
        for first in range(0 if source in todo else _settled(problem, source, cuts), len(cuts)):
            if nested(cuts[first:]) and real_cuts(cuts[first:]):
                for target in _targets(problem, layout, source, todo):
                    yield from _leaving(problem, layout, source, target, cuts[first:])


def _evasions(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Swap | Exchange]:
    """Axes may leave only where the result would not divide as it came."""
    settled = problem.goal is not None and problem.goal.axes == problem.start.axes
    return iter(()) if settled or not problem.even else _exchanges(problem, layout, todo)


def _targets(problem: Problem, layout: Layout, source: int, todo: dict[int, Matrix]) -> list[int]:
    """Where axes may go. A plain transpose sends least, unless copies cost more than sending: axes that need not come
    back move once, so not onto a cut dimension that is still to be opened."""
    others = [d for d in range(layout.ndim) if d != source]
    free = [d for d in others if d not in todo or layout.parts[d] == 1]
    least = problem.goal is None and problem.method == "transpose" and not problem.machine.chip.cached
    return free or others if least else others


def _settled(problem: Problem, dim: int, cuts: Cuts) -> int:
    """How many outer cuts of a dimension may stay, which are those of the goal, or without one all that nest."""
    if problem.goal is None:
        return max(j for j in range(len(cuts) + 1) if nested(cuts[:j]))
    pairs = zip(cuts, problem.goal.cuts[dim], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _leaving(problem: Problem, layout: Layout, source: int, target: int, moved: Cuts) -> Iterator[Swap]:
    """Equal blocks in the target, or the very cuts the goal has there: they differ where sizes do not divide."""
    equal = even_cuts(layout.block[target], [(cut.axis, cut.parts) for cut in moved])
    yield Swap(source, target, equal)
    if problem.goal is not None:
        begun, wanted = layout.cuts[target], problem.goal.cuts[target]
        last: tuple[Cut, ...] = wanted[len(begun) : len(begun) + len(moved)]
        if wanted[: len(begun)] == begun and [c.axis for c in last] == [c.axis for c in moved] and last != equal:
            if nested(last) and layout.block[target] <= last[0].parts * last[0].span:
                yield Swap(source, target, last)


Offer = Callable[[Problem, Layout, dict[int, Matrix]], Iterator[Step]]
METHODS: dict[str, tuple[Offer, ...]] = {
    "auto": (_local, _real, _trig, _exchanges, _pipelines, _ring, _phase, _six_step, _packed),
    "transpose": (_local, _real, _trig, _exchanges, _pipelines),
    "cooley-tukey": (_local, _real, _trig, _phase, _packed),
    "kdft": (_ring, _evasions),
}


def real_cuts(cuts: Cuts) -> Cuts:
    """The cuts that cut: an axis of size 1 does not."""
    return tuple(cut for cut in cuts if cut.parts > 1)
