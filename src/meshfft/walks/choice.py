"""The cheapest walk for a transform and a layout, or the reason why none exists. Cached."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ..layout.layout import Cut, Layout, Spec, entries_of, from_spec, resized
from ..layout.padded_array import OVER_HOST
from ..machine.machine import Machine
from ..numerics.dtypes import Dot
from ..numerics.phases import MAX_LENGTH
from ..operators.matrices import Roots
from ..operators.transform import Transform
from ..operators.trig import Trig
from ..steps import Bands, Margin, Problem
from ..steps.base import Step
from ..steps.phase_fft import line_length
from ..steps.problem import USUAL, Options
from ..steps.rows import Band
from .search import search
from .walk import Walk, fused

ORDERS = ("natural", "any")
NOTHING = Transform((), (), 1.0)
AT_ONCE = 9  # ranks besides the first that one search finds


@functools.lru_cache(maxsize=1024)
def find_walk(problem: Problem) -> Walk:
    """The cheapest walk within the problem's error; method "auto" takes only FFTs if the cheapest exceeds it.

    If the problem is `even`, so is the result, where some walk allows it. Without a goal the result is cut like the
    input, or in any way if the order is "any". An ending is priced with the walk. Raises ValueError if the method has
    no walk.
    """
    walk, options = _cheapest(problem), problem.options
    how = problem.itemsize, problem.machine.chip.rounding
    if options.method == "auto" and walk.error(*how) > options.within:
        for method in ("transpose", "cooley-tukey"):
            with contextlib.suppress(ValueError):
                other = _cheapest(dataclasses.replace(problem, options=options._replace(method=method)))
                if other.error(*how) <= options.within:
                    return other
    return walk


def _cheapest(problem: Problem) -> Walk:
    start, transform, machine, itemsize = problem.start, problem.transform, problem.machine, problem.itemsize
    natural, even = problem.goal or natural_end(start, transform), problem.even and problem.goal is None
    evades = even and not natural.even and problem.ending is None
    goals: list[Layout | None]
    if problem.options.order == "any":
        goals = [None] if evades or problem.ending is not None else [natural, None]
    else:
        goals = [*_evasive(natural)] or [None] if evades else [natural]
    rank, plain = problem.options.rank, problem.options._replace(rank=0)
    problems = [dataclasses.replace(problem, goal=goal, even=even, options=plain) for goal in goals]
    paths = [steps for one in problems for steps in _ranked(one, -(-rank // AT_ONCE))]  # one search finds several ranks
    if not paths and even:  # the result is padded, and cut like the input
        return _cheapest(dataclasses.replace(problem, even=False, ending=None))
    if not paths:
        raise ValueError(_no_walk(problems[-1]))
    paths = [(*_unread(problem), *steps) for steps in paths]
    real, planes = problem.real, machine.chip.planes
    walks = [Walk(start, fused(start, steps, itemsize), transform.scale, planes, real) for steps in paths]
    walks.sort(key=lambda walk: price_of(walk, machine, itemsize))
    return walks[min(rank, len(walks) - 1)]


def price_of(walk: Walk, machine: Machine, itemsize: int) -> float:
    return sum(map(machine.price, walk.works(itemsize, machine.chip)))


@functools.lru_cache(maxsize=64)
def _ranked(problem: Problem, searches: int) -> list[tuple[Step, ...]]:
    return search(problem, 1 + searches * AT_ONCE)


def moves(
    start: Layout,
    goal: Layout | None,
    machine: Machine,
    itemsize: int,
    dots: tuple[Dot, ...],
    real: bool = False,
    options: Options = USUAL,
) -> Walk:
    how = options._replace(method="auto", order="natural", rank=0)
    return find_walk(Problem(start, NOTHING, machine, itemsize, dots, how, goal, real=real))


@functools.lru_cache(maxsize=1024)
def followed(walk: Walk, move: Walk) -> Walk:
    return dataclasses.replace(walk, steps=(*walk.steps, *move.steps))


@functools.lru_cache(maxsize=1024)
def framed(walk: Walk, widths: tuple[tuple[int, int], ...]) -> Walk:
    """The walk for arrays with margins, dropped first and added as zeros last."""
    for dim, width in widths:
        size, parts = walk.end.shape[dim], walk.end.parts[dim]
        if walk.end.storage[dim] != size:
            what = f"the result has {size} points along axis {dim}, which {parts} blocks do not divide"
            remedy = "give an out_spec= that cuts it evenly or not at all, or margin 0 along it"
            raise ValueError(f"{what}, so margin {width} does not fit: {remedy}")
    before = Margin(widths, onto=True).after(walk.start)
    steps = (Margin(widths, onto=False), *walk.steps, Margin(widths, onto=True))
    return dataclasses.replace(walk, start=before, steps=steps)


def _unread(problem: Problem) -> Iterator[Bands]:
    """Steps that clear rows a matrix does not read; those rows would change the scales of lossy messages."""
    start, transform = problem.start, problem.transform
    for dim, matrix in zip(transform.dims, transform.matrices, strict=True):
        if problem.wires.lossy and start.mesh_axes and matrix.columns < start.shape[dim]:
            yield Bands(dim, start.shape[dim], start.cuts[dim], (Band(0, 0, matrix.columns),))


def natural_end(layout: Layout, transform: Transform) -> Layout:
    return resized(layout, transform.dims, transform.lengths)


def goal_of(
    start: Layout, transform: Transform, order: str, out_spec: Spec | None, sizes: Mapping[str, int]
) -> Layout | None:
    """The caller's layout, or that of a half spectrum's real array; None leaves it to the walk. Raises ValueError or
    TypeError if the spec does not fit or contradicts the order.
    """
    natural = natural_end(start, transform)
    if out_spec is not None:
        if order == "any":
            raise ValueError(f"order 'any' leaves the layout open and out_spec {out_spec} says it: give one of the two")
        return recut(natural, out_spec, sizes, start)
    back = bool(transform.matrices) and transform.matrices[-1].becomes == "real"
    return _returned(start, natural, transform.dims[-1], list(sizes)) if back and order == "natural" else None


def recut(layout: Layout, spec: Spec, sizes: Mapping[str, int], given: Layout) -> Layout:
    """The layout with its mesh axes on other dimensions; ValueError for other axes. `given`: the caller's array."""
    sizes = sizes or dict.fromkeys(itertools.chain(*entries_of(spec)), 1)  # on one device, JAX may show no mesh
    goal = from_spec(layout.shape, sizes, spec)
    if goal.mesh_axes != layout.mesh_axes:
        own, wanted = sorted(layout.mesh_axes), sorted(goal.mesh_axes)
        remedy = " (jax.device_put gathers, or cuts further)" if given.even else f", or {OVER_HOST}"
        what = f"out_spec {spec} has the mesh axes {wanted}, the array is cut by {own}"
        raise ValueError(f"{what}: name the same axes{remedy}")
    return goal


def _evasive(layout: Layout) -> list[Layout]:
    """Layouts without padding: innermost axes leave dimensions that they do not divide, and become the outermost axes
    of a cut dimension if possible, as `_returned` expects.
    """
    moving: list[Cut] = []
    for dim, cuts in enumerate(layout.cuts):
        kept = _kept(layout.shape[dim], cuts)
        moving, layout = [*moving, *cuts[kept:]], layout.replace(dim, layout.shape[dim], cuts[:kept])
    before = (layout.cut_by(dim, (*moving, *cuts)) for dim, cuts in enumerate(layout.cuts) if cuts)
    if outermost := [one for one in before if one.even]:
        return outermost
    return [one for one in spread(layout, moving, range(layout.ndim)) if one.even]


def spread(layout: Layout, cuts: Sequence[Cut], dims: Sequence[int]) -> list[Layout]:
    """Every layout with these axes as innermost cuts of some of the dimensions."""
    found = [layout]
    for cut in cuts:
        found = [one.cut_by(d, (*one.cuts[d], cut)) for one in found for d in dims]
    return found


def _reordered(layout: Layout) -> Iterator[Layout]:
    """The same axes along each dimension, in every order."""
    for orders in itertools.product(*map(itertools.permutations, layout.cuts)):
        yield functools.reduce(lambda at, pair: at.cut_by(*pair), enumerate(orders), layout)


def _kept(size: int, cuts: Sequence[Cut]) -> int:
    return max(j for j in range(len(cuts) + 1) if size % math.prod(cut.parts for cut in cuts[:j]) == 0)


def _returned(spectrum: Layout, layout: Layout, halved: int, order: Sequence[str]) -> Layout | None:
    """The layout of a half spectrum's real array, if axes of the halved dimension had to move. They precede another
    dimension's axes, so mesh order has exactly one drop there; the axes before the drop move back. None without one.
    """
    for dim, cuts in enumerate(layout.cuts):
        rank = [order.index(cut.axis) for cut in cuts]
        steps = [j for j in range(1, len(rank)) if rank[j] < rank[j - 1]]
        if dim != halved and len(steps) == 1:
            moved, stayed = cuts[: steps[0]], cuts[steps[0] :]
            returned = (*layout.cuts[halved], *moved)
            real = layout.cut_by(dim, stayed).cut_by(halved, returned)
            half = spectrum.shape[halved]
            had_to = half == real.shape[halved] // 2 + 1 and _kept(half, returned) == len(layout.cuts[halved])
            return real if real.even and had_to else None
    return None


def _no_walk(problem: Problem) -> str:
    start, method = problem.start, problem.options.method
    fft = method == "cooley-tukey"
    for dim, matrix in problem.todo().items():
        if method in ("transpose", "cooley-tukey") and not matrix.has_fft:
            return f"the points of dimension {dim} need dense products: use method='auto' or 'kdft', not {method!r}"
    if problem.sliced and fft and not all(isinstance(matrix, Roots) for matrix in problem.transform.matrices):
        tier = problem.dots[0].tier
        return f"method {method!r} has no real lines in {tier} products: use method='auto' or 'kdft'"
    for dim, matrix in problem.todo().items():
        parts, length = start.parts[dim], max(matrix.rows, matrix.columns)
        what, limit = f"dimension {dim} has {length} points over {parts} shards", "a ring takes fewer than 2^29"
        if parts > 1 and length >= MAX_LENGTH and method != "transpose":
            return f"{what}: {limit}; cut another dimension instead"
        if fft and parts > 1 and isinstance(matrix, Trig):
            return f"method 'cooley-tukey' has no cosines of the cut dimension {dim}: use method='auto' or 'transpose'"
        if fft and parts > 1 and (line := line_length(length, parts, problem.sliced)) >= MAX_LENGTH:
            what += f", which do not divide it: its transforms have {line} points"
            return f"{what}, and {limit}; use method='auto'"
    if method == "auto" and problem.goal is not None:
        others = (one.spec for one in _reordered(problem.goal) if search(dataclasses.replace(problem, goal=one)))
        remedy = f"give the spec {other}" if (other := next(others, None)) else f"give another spec, or {OVER_HOST}"
        what = f"no all-to-all leads from {start.label()} to {problem.goal.label()} for shape {start.shape}"
        return f"{what}, as blocks are padded: {remedy}"
    remedy = "a transpose needs a second dimension to move the mesh axes to; use method='auto'"
    return f"method {method!r} has no walk for shape {start.shape} cut as {start.label()}: {remedy}"
