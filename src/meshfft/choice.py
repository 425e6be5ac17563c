"""The choice: from a transform and a layout to the cheapest walk, or to a line that says why there is none. Cached."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

from .apart import Grid
from .arguments import Transform
from .errors import check
from .layout import Cut, Layout, even_cuts
from .machine import Machine
from .moves import METHODS, Problem
from .phase import MAX_LENGTH
from .search import search
from .steps import Exchange, LocalFFT, Step
from .tiers import Dot
from .trig import Trig
from .walk import Walk

ORDERS = ("natural", "any")
CHUNKED_BYTES = 2**22  # of a block: below it messages are short


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
    """The cheapest walk; with `even`, one whose result needs no padding; with `goal`, one that ends there.

    The array comes complex or `real`; `itemsize` is that of its complex numbers.

    Raises:
        ValueError: the method or order is unknown, or the method has no walk for these sizes; says what has.
    """
    check(method in METHODS, f"method {method!r} is unknown: use one of " + ", ".join(map(repr, METHODS)))
    check(order in ORDERS, f"order {order!r} is unknown: use 'natural' or 'any'")
    natural = goal or natural_end(start, transform)
    goals: list[Layout | None] = [natural, None] if order == "any" else [natural]
    if even and not natural.even:
        goals = [None] if order == "any" else [*_evasive(natural)] or [None]
    problems = [Problem(start, transform, method, goal, even, machine, itemsize, dots, real) for goal in goals]
    found = [steps for problem in problems if (steps := search(problem)) is not None]
    if not found:
        raise ValueError(_no_walk(problems[-1]))
    walks = [
        Walk(start, _aligned(start, steps, itemsize), transform.scale, machine.chip.planes, real) for steps in found
    ]
    return min(walks, key=lambda walk: sum(map(machine.price, walk.works(itemsize, machine.chip))))


def _aligned(start: Layout, steps: tuple[Step, ...], itemsize: int) -> tuple[Step, ...]:
    """The steps with exchanges in chunks, and where local ones take the block apart as the exchange after them does, or
    as the one before them.
    """
    chunks = _chunks(start, steps, itemsize)
    steps = tuple(dataclasses.replace(step, chunks=chunks) if isinstance(step, Exchange) else step for step in steps)
    pairs = itertools.zip_longest((None, *steps), steps, steps[1:])
    return tuple(_between(before, step, after) for before, step, after in pairs if step is not None)


def _chunks(start: Layout, steps: tuple[Step, ...], itemsize: int) -> Grid:
    """Halves of the last dimension but one whose pieces divide: while one travels, the other is computed."""
    layouts = itertools.accumulate(steps, lambda layout, step: step.after(layout), initial=start)
    exchanges = [(step, at) for step, at in zip(steps, layouts, strict=False) if isinstance(step, Exchange)]
    pieces = [step.piece(at) for step, at in exchanges]
    if any(math.prod(at.block) * itemsize < CHUNKED_BYTES for _, at in exchanges):
        return ()
    halves = [dim for dim in range(start.ndim - 1) if all(piece[dim] % 2 == 0 for piece in pieces)]
    return ((halves[-1], 2),) if halves else ()


def _between(before: Step | None, step: Step, after: Step | None) -> Step:
    if not (isinstance(step, LocalFFT) and step.engine == "cached"):
        return step
    grids = [after.taken] if isinstance(after, Exchange) else []
    grids += [before.joined] if isinstance(before, Exchange) else []
    finest = max(grids, key=lambda grid: math.prod(parts for _, parts in grid), default=())
    return dataclasses.replace(step, grid=finest)


def natural_end(layout: Layout, transform: Transform) -> Layout:
    """The layout of the result when it is cut as the input came."""
    for dim, length in zip(transform.dims, transform.lengths, strict=True):
        layout = layout.resize(dim, length)
    return layout


def _evasive(layout: Layout) -> Iterator[Layout]:
    """The layouts that divide evenly once the innermost axes of dimensions that do not have moved to others."""
    moving: list[Cut] = []
    for dim, cuts in enumerate(layout.cuts):
        kept = max(j for j in range(len(cuts) + 1) if layout.shape[dim] % math.prod(c.parts for c in cuts[:j]) == 0)
        moving, layout = [*moving, *cuts[kept:]], layout.replace(dim, layout.shape[dim], cuts[:kept])
    for targets in itertools.product(range(layout.ndim), repeat=len(moving)):
        found = layout
        for dim, cut in zip(targets, moving, strict=True):
            axes = [(c.axis, c.parts) for c in (*found.cuts[dim], cut)]
            found = found.replace(dim, found.shape[dim], even_cuts(found.shape[dim], axes))
        if found.even:
            yield found


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
    if problem.even and not natural_end(start, problem.transform).even:
        return (
            f"no layout over this mesh divides the result {problem.transform.lengths} of {start.label()} evenly: "
            "use mf.plan(...) with mf.shard and mf.gather, which keep padded storage"
        )
    return (
        f"method {method!r} has no walk for shape {start.shape} cut as {start.label()}: a transpose needs a second "
        "dimension to move the mesh axes to; use method='auto'"
    )
