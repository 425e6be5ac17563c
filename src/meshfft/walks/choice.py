"""The choice: from a transform and a layout to the cheapest walk, or to a line that says why there is none. Cached."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ..errors import check
from ..layout.layout import Cut, Layout, Spec, even_cuts, from_spec
from ..machine.machine import Machine
from ..numerics.phases import MAX_LENGTH
from ..numerics.tiers import Dot
from ..operators.transform import Transform
from ..operators.trig import Trig
from ..steps import Exchange, LocalFFT, Step
from .candidates import METHODS
from .problem import Problem
from .search import search
from .walk import Walk

ORDERS = ("natural", "any")
MATCHED_BYTES = 2**21  # of a block whose exchanges all send pieces of one size: below it more messages cost more
HALVED_BYTES = 2**22  # of a block whose pieces are halved
MATCHED_PIECES = 32  # of a block


@functools.lru_cache(maxsize=1024)
def find_walk(
    start: Layout,
    transform: Transform,
    method: str,
    order: str,
    machine: Machine,
    itemsize: int,
    dots: tuple[Dot, ...],
    even: bool = False,
    goal: Layout | None = None,
    real: bool = False,
) -> Walk:
    """The cheapest walk; with `even`, one whose result needs no padding if any is; with `goal`, one that ends there.

    The array comes complex or `real`; `itemsize` is that of its complex numbers.

    Raises:
        ValueError: the method or order is unknown, or the method has no walk for these sizes; says what has.
    """
    check(method in METHODS, f"method {method!r} is unknown: use one of " + ", ".join(map(repr, METHODS)))
    check(order in ORDERS, f"order {order!r} is unknown: use 'natural' or 'any'")
    natural = goal or natural_end(start, transform)
    goals: list[Layout | None] = [natural, None] if order == "any" else [natural]
    if even and goal is None and not natural.even:
        goals = [None] if order == "any" else [*_evasive(natural)] or [None]
    even = even and goal is None
    problems = [Problem(start, transform, method, goal, even, machine, itemsize, dots, real) for goal in goals]
    found = [steps for problem in problems if (steps := search(problem)) is not None]
    if not found and even:  # no layout of the result is even: padded, it lies as the array came
        return find_walk(start, transform, method, order, machine, itemsize, dots, real=real)
    if not found:
        raise ValueError(_no_walk(problems[-1]))
    walks = [
        Walk(start, _aligned(start, steps, itemsize), transform.scale, machine.chip.planes, real) for steps in found
    ]
    return min(walks, key=lambda walk: sum(map(machine.price, walk.works(itemsize, machine.chip))))


def _aligned(start: Layout, steps: tuple[Step, ...], itemsize: int) -> tuple[Step, ...]:
    """The steps with exchanges in chunks, and where local ones take the block apart as the exchange before them does,
    or as the one after them.
    """
    pairs = Walk(start, steps).pairs
    exchanges = [(step, at) for step, at in pairs if isinstance(step, Exchange)]
    pieces = iter(_pieces(exchanges, itemsize) if exchanges else ())
    steps = tuple(_in_chunks(step, at, next(pieces)) if isinstance(step, Exchange) else step for step, at in pairs)
    return tuple(map(_between, (None, *steps), steps, (*steps[1:], None)))


def _pieces(exchanges: Sequence[tuple[Exchange, Layout]], itemsize: int) -> list[tuple[int, ...]]:
    """What each exchange sends to a device at a time. All the same where that leaves few pieces: what one joins need
    not be cut anew for the next. Half of it where blocks are large: while one half travels, the other is computed.
    """
    whole = [step.piece(at) for step, at in exchanges]
    nbytes = min(math.prod(at.block) * itemsize for _, at in exchanges)
    if nbytes < MATCHED_BYTES:
        return whole
    common = tuple(math.gcd(*sizes) for sizes in zip(*whole, strict=True))
    parts = (math.prod(piece) * step.parts for piece, (step, _) in zip(whole, exchanges, strict=True))
    many = max(parts) // max(math.prod(common), 1)
    matched = many <= MATCHED_PIECES
    sent = [common] * len(whole) if matched else whole
    halves = [dim for dim in range(len(common) - 1) if all(piece[dim] % 2 == 0 for piece in sent)]
    if not halves or nbytes < HALVED_BYTES or (matched and 2 * many > MATCHED_PIECES):
        return sent
    longest = max(reversed(halves), key=lambda dim: min(piece[dim] for piece in sent))
    return [tuple(size // 2 if dim == longest else size for dim, size in enumerate(piece)) for piece in sent]


def _in_chunks(step: Exchange, layout: Layout, piece: tuple[int, ...]) -> Exchange:
    """The exchange of such pieces."""
    chunks = [(dim, size // piece[dim]) for dim, size in enumerate(step.piece(layout)) if size > piece[dim]]
    return dataclasses.replace(step, chunks=tuple(chunks))


def _between(before: Step | None, step: Step, after: Step | None) -> Step:
    if not (isinstance(step, LocalFFT) and step.engine == "cached"):
        return step
    grids = [before.joined] if isinstance(before, Exchange) else []
    grids += [after.taken] if isinstance(after, Exchange) else []
    finest = max(grids, key=lambda grid: math.prod(parts for _, parts in grid), default=())
    many = {dim: math.prod(parts for d, parts in finest if d == dim) for dim, _ in finest}  # most parts: joined last
    grid = tuple(sorted(finest, key=lambda cut: (-many[cut[0]], cut[0])))
    return dataclasses.replace(step, grid=grid, whole=before is None)


def natural_end(layout: Layout, transform: Transform) -> Layout:
    """The layout of the result when it is cut as the input came."""
    for dim, length in zip(transform.dims, transform.lengths, strict=True):
        layout = layout.resize(dim, length)
    return layout


def goal_of(
    start: Layout, transform: Transform, order: str, out_spec: Spec | None, sizes: Mapping[str, int]
) -> Layout | None:
    """The layout that a result must have: the caller's, or where the real array of a half spectrum came from.

    None leaves it to the walk.

    Raises:
        ValueError, TypeError: the spec does not fit, or an order is asked for that leaves the layout open.
    """
    natural = natural_end(start, transform)
    if out_spec is not None:
        remedy = "give one of the two"
        check(order != "any", f"order 'any' leaves the layout open and out_spec {out_spec} says it: {remedy}")
        goal = from_spec(natural.shape, sizes, out_spec)
        check(
            goal.cutting == natural.cutting,
            f"out_spec {out_spec} has the mesh axes {sorted(goal.cutting)}, the array is cut by "
            f"{sorted(natural.cutting)}: name the same ones (jax.device_put gathers, or cuts further)",
        )
        return goal
    back = bool(transform.matrices) and transform.matrices[-1].becomes == "real"
    return _returned(natural, transform.dims[-1], list(sizes)) if back and order == "natural" else None


def _evasive(layout: Layout) -> list[Layout]:
    """The layouts that divide evenly once the innermost axes of dimensions that do not have moved to others.

    Where they can, they move to a dimension that is cut already, in front of the axes there: `_returned` knows them
    by that.
    """
    moving: list[Cut] = []
    for dim, cuts in enumerate(layout.cuts):
        kept = max(j for j in range(len(cuts) + 1) if layout.shape[dim] % math.prod(c.parts for c in cuts[:j]) == 0)
        moving, layout = [*moving, *cuts[kept:]], layout.replace(dim, layout.shape[dim], cuts[:kept])
    found = [_cut_by(layout, dim, (*moving, *cuts)) for dim, cuts in enumerate(layout.cuts) if cuts]
    return [one for one in found if one.even] or [one for one in _anywhere(layout, moving) if one.even]


def _anywhere(layout: Layout, moving: Sequence[Cut]) -> Iterator[Layout]:
    """The layouts with each axis added to some dimension."""
    for targets in itertools.product(range(layout.ndim), repeat=len(moving)):
        found = layout
        for dim, cut in zip(targets, moving, strict=True):
            found = _cut_by(found, dim, (*found.cuts[dim], cut))
        yield found


def _returned(layout: Layout, halved: int, order: Sequence[str]) -> Layout | None:
    """The layout of the real array whose half spectrum lies so, where axes of the halved dimension had to move.

    Those stand in front of the axes of another dimension: its axes are in the mesh's order but for one step back, and
    what is before that step goes back. None where nothing says so, or the sizes do not divide.
    """
    for dim, cuts in enumerate(layout.cuts):
        rank = [order.index(cut.axis) for cut in cuts]
        steps = [j for j in range(1, len(rank)) if rank[j] < rank[j - 1]]
        if dim != halved and len(steps) == 1:
            moved, stayed = cuts[: steps[0]], cuts[steps[0] :]
            found = _cut_by(_cut_by(layout, dim, stayed), halved, (*layout.cuts[halved], *moved))
            return found if found.even else None
    return None


def _cut_by(layout: Layout, dim: int, cuts: Sequence[Cut]) -> Layout:
    """The layout with a dimension cut by the axes of these cuts, outermost first."""
    size = layout.shape[dim]
    return layout.replace(dim, size, even_cuts(size, [(cut.axis, cut.parts) for cut in cuts]))


def _no_walk(problem: Problem) -> str:
    """Why a method has no walk, and what to use."""
    start, method = problem.start, problem.method
    for dim, matrix in problem.todo(frozenset()).items():
        if method in ("transpose", "cooley-tukey") and not matrix.whole:
            return f"the points of dimension {dim} need dense products: use method='auto' or 'kdft', not {method!r}"
    for dim, matrix in problem.todo(frozenset()).items():
        parts, size, length = start.parts[dim], start.shape[dim], max(matrix.rows, matrix.columns)
        if parts > 1 and length >= MAX_LENGTH and method != "transpose":
            return (
                f"dimension {dim} has {length} points over {parts} shards: a ring takes fewer than 2^29; "
                "cut another dimension instead"
            )
        if method == "cooley-tukey" and parts > 1 and isinstance(matrix, Trig):
            return f"method 'cooley-tukey' has no cosines of the cut dimension {dim}: use method='auto' or 'transpose'"
        square, what = (2 * parts**2, "2 p^2") if matrix.becomes else (parts**2, "p^2")
        if method == "cooley-tukey" and parts > 1 and (length % square or matrix.columns != size):
            return (
                f"method 'cooley-tukey' needs {what} to divide n: dimension {dim} has n = {length} over p = {parts} "
                "shards"
                + f" (input size {size})" * (matrix.columns != size)
                + f"; the next larger size is {-(-length // square) * square}, or use method='auto'"
            )
    return (
        f"method {method!r} has no walk for shape {start.shape} cut as {start.label()}: a transpose needs a second "
        "dimension to move the mesh axes to; use method='auto'"
    )
