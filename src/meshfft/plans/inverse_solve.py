"""The inverse of the KDFT: a Vandermonde system per dimension, solved once on the host, applied over the ring.

    x = W X,  then  x += W (X - V x)      W_i the inverse, or pseudo-inverse, of V_i, made in float64

The second step removes the rounding of W.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from ..layout.layout import mapped_axes
from ..layout.memory import check_held
from ..layout.padded_array import AnyStored, padded, stored_of
from ..numerics.dtypes import real_dtype
from ..operators.conjugate_gradients import STEPS, TRACED_ENTRIES, about_the_circle, condition_number
from ..operators.inverses import Inverse, invert
from ..operators.matrices import Dense, Matrix, Roots
from ..operators.points import Points
from ..operators.transform import Transform
from ..steps.problem import Problem
from .execute import applied, sound_walk
from .iterative_solve import ATTAINABLE, System, solved_line
from .request import formed

Arrays = tuple[AnyStored, ...]
SOLVERS = ("direct", "iterative", "auto")
ITERATIVE = "conjugate gradients"
ITERATIONS = 1000  # per round
DIRECT = 1024  # most samples and unknowns that "auto" inverts on the host, in 1.5 s, once
CONJUGATE = "conjugate transform"  # of uniform samples; needs no table


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("value", "residual", "conditions", "iterations"),
    meta_fields=("methods", "bounded"),
)
@dataclasses.dataclass(frozen=True, repr=False)
class Solution:
    """An inverse transform, and its accuracy.

    Attributes:
        value: the array whose transform was given.
        residual: ||X - V x|| / ||X|| of the x returned.
        conditions: 2-norm condition number of each dimension's matrix (or
            regularised inverse), within 10 %, its columns scaled by r^n for
            the mean radius r. A relative error of X may be larger by this
            factor in x or, off the unit circle, in x_n r^-n, whose small
            entries are accurate only relative to large ones.
        bounded: whether the condition is only a lower bound, as at scattered
            points: iterations do not reach components that the samples hardly
            see, such as the corners of k-space in a radial scan, and the true
            condition may be millions of times larger.
        methods: how each dimension was solved.
        iterations: conjugate gradient steps along each dimension, over all
            rounds of refinement. A round at its limit did not converge; see the
            residual.

    >>> found = mf.ikdftn(mf.kdftn(np.ones(4)))
    >>> found.methods, found.condition
    (('conjugate transform',), 1.0)
    >>> mf.ikdftn(np.ones(2), mf.Points.turns([0, 0.25]))
    <Solution: residual 0, condition 2.41, by LU>
    """

    value: Any
    residual: Array
    conditions: tuple[float | Array, ...]
    methods: tuple[str, ...]
    iterations: tuple[int | Array, ...] = ()
    bounded: bool = False

    @property
    def condition(self) -> float | Array:
        """The transform's condition number: the product over dimensions."""
        return math.prod(self.conditions)

    def __repr__(self) -> str:
        known = [np.max(one) for one in (self.residual, self.condition) if not isinstance(one, Tracer)]  # of a batch
        words = f"residual {{:.3g}}, condition {'at least ' * self.bounded}{{:.3g}}"
        words = words.format(*known) if len(known) == 2 else "traced"
        return f"<Solution: {words}, by {', '.join(self.methods)}>"


def solution(given: Arrays, system: System) -> Solution:
    """The array in layout `goal` whose transform is `given`."""
    mapped = mapped_axes(system.mesh) & system.start.mesh_axes
    given = tuple(x.astype(real_dtype(system.dtype) if len(given) == 2 else system.dtype) for x in given)
    iterative = _iterative(system)
    answer = _by_gradients(given, system, iterative) if any(iterative) else _by_inverses(given, system)
    x, conditions, methods, counts = answer
    rest = _missing(given, x, system)
    residual = jnp.sqrt(_energy(rest, mapped) / jnp.maximum(_energy(given, mapped), jnp.finfo(system.dtype).tiny))
    return Solution(formed(x), residual, conditions, methods, counts)


def _missing(given: Arrays, x: Arrays, system: System) -> Arrays:
    how = (system.machine, system.dtype.itemsize, system.dots, system.options)
    there = sound_walk(Problem(system.goal, system.forward, *how, system.start))
    found = applied(x, there, system.points, system.mesh, system.machine.chip, system.dtype)
    return tuple(a - b for a, b in zip(given, found, strict=True))


Answer = tuple[Arrays, tuple[Any, ...], tuple[str, ...], tuple[Any, ...]]


def _by_inverses(given: Arrays, system: System) -> Answer:
    transform, inverses = _inverted(system)
    sources = tuple(None if inverse.method == CONJUGATE else inverse.matrix for inverse in inverses)
    how = (system.machine, system.dtype.itemsize, system.dots, system.options)
    back = sound_walk(Problem(system.start, transform, *how, system.goal))

    def solved(y: Arrays) -> Arrays:
        return applied(y, back, sources, system.mesh, system.machine.chip, system.dtype)

    x = solved(given)
    if system.tikhonov is None:  # it would undo tikhonov, and leaves a truncated W unchanged: W V W = W
        x = tuple(a + b for a, b in zip(x, solved(_missing(given, x, system)), strict=True))
    return x, tuple(i.condition for i in inverses), tuple(i.method for i in inverses), (0,) * len(inverses)


def _by_gradients(given: Arrays, system: System, iterative: tuple[bool, ...]) -> Answer:
    """Dimension by dimension, so that each solve has the condition of one; without iterations first."""
    dims, eps = system.forward.dims, float(jnp.finfo(system.dtype).eps)
    direct = [j for j, one in enumerate(iterative) if not one]
    conditions: list[Any] = [_settled(system, j, eps) if one else 1.0 for j, one in enumerate(iterative)]
    methods, counts, x = [ITERATIVE] * len(dims), list[Any]([0] * len(dims)), given
    layout = functools.reduce(lambda at, j: at.resize(dims[j], system.goal.shape[dims[j]]), direct, system.start)
    if direct:
        part = Transform(tuple(dims[j] for j in direct), tuple(system.forward.matrices[j] for j in direct), 1.0)
        points = tuple(system.points[j] for j in direct)
        x, found, names, _ = _by_inverses(x, system._replace(goal=layout, forward=part, points=points))
        for j, condition, name in zip(direct, found, names, strict=True):
            conditions[j], methods[j] = condition, name
    known = math.prod(condition for condition in conditions if condition is not None)
    if not known * eps < 1:
        what = f"the condition number is {known:.2g}: no digit is right in a type of precision {eps:.1g}"
        raise ValueError(f"{what}. Use precision='float64', or tikhonov=")
    stored = tuple(stored_of(one) * (1 / system.forward.scale) for one in x)
    for j in (j for j, one in enumerate(iterative) if one):
        goal = layout.resize(dims[j], system.goal.shape[dims[j]])
        samples = system.points[j] or Points.uniform(layout.shape[dims[j]])
        limits = (system.tol or least_tol(system.dtype), system.iterations or ITERATIONS, _rounds(conditions[j], eps))
        stored, counts[j], estimate = solved_line(stored, layout, goal, dims[j], samples, system, limits)
        layout, conditions[j] = goal, conditions[j] if estimate is None else estimate
    x = tuple(padded(one, layout, system.mesh, given[0]) for one in stored)
    return x, tuple(conditions), tuple(methods), tuple(counts)


def _iterative(system: System) -> tuple[bool, ...]:
    if system.solver not in SOLVERS:
        raise ValueError(f"method {system.solver!r} is unknown: use 'direct', 'iterative' or 'auto'")
    check_limits(system.tol, system.iterations)
    weighted = system.tikhonov is not None or system.truncation is not None
    if weighted and system.solver == "iterative":
        raise ValueError("tikhonov and truncation need singular values: use method='direct' with them")
    return tuple(not weighted and _chosen(system, j) for j in range(len(system.points)))


def _chosen(system: System, j: int) -> bool:
    """Whether conjugate gradients solve a dimension: for traced points, and large well-conditioned systems."""
    points, matrix, size = system.points[j], system.forward.matrices[j], system.goal.shape[system.forward.dims[j]]
    if points is None or points.angle is None or system.solver == "direct":
        return False
    if not points.known and points.log_radius is not None and size * matrix.rows > TRACED_ENTRIES:
        what = f"{matrix.rows} points of {size} unknowns are traced and off the unit circle"
        raise ValueError(f"{what}, where the limit is 4096 by 4096: give them as NumPy arrays, not traced")
    if system.solver == "iterative" or not points.known:
        return True
    if size * matrix.rows <= DIRECT**2 or matrix.rows < size:
        return False
    return condition_number(about_the_circle(points)[0], size) ** 2 * float(jnp.finfo(system.dtype).eps) < ATTAINABLE


def _settled(system: System, j: int, eps: float) -> float | None:
    dim, matrix = system.forward.dims[j], system.forward.matrices[j]
    points, size = system.points[j], system.goal.shape[dim]
    if matrix.rows < size:
        also = "" if points is None or points.known else " and points that are not traced"
        raise ValueError(f"axis {dim} has {matrix.rows} samples of {size} unknowns: take more, or give tikhonov={also}")
    if points is None or not points.known:
        return None
    condition = condition_number(about_the_circle(points)[0], size)
    if not condition**2 * eps < ATTAINABLE:
        what = f"is {condition:.2g}" if condition < math.inf else f"did not converge in {STEPS} iterations"
        most = f"{math.sqrt(ATTAINABLE / eps):.2g} in a type of precision {eps:.1g}"
        what = f"the condition number along axis {dim} {what}, and conjugate gradients need one below {most}"
        raise ValueError(f"{what}: use method='direct', precision='float64', or tikhonov=")
    return condition


def check_limits(tol: float | None, iterations: int | None) -> None:
    if tol is not None and not 0 < tol < 1:
        raise ValueError(f"tol is {tol}: give a number between 0 and 1, such as 1e-6")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations is {iterations}: give at least 1")


def least_tol(dtype: np.dtype) -> float:
    """The default relative residual of the normal equations."""
    return 1e-6 if dtype.itemsize == 8 else 1e-13


def _rounds(condition: float | None, eps: float) -> int:
    """Rounds until refinement converges, by a factor of eps condition^2 each."""
    if condition is None:
        return 3
    return min(max(math.ceil(math.log(eps * condition) / math.log(eps * condition**2)), 2), 5)


def _inverted(system: System) -> tuple[Transform, list[Inverse]]:
    forward, dtype, weights = system.forward, system.dtype, (system.tikhonov, system.truncation)
    if any(points is not None and not points.known for points in system.points):
        other = "use method='iterative'" if weights == (None, None) else "leave out tikhonov and truncation"
        raise ValueError(f"the points are traced, an inverse needs numbers: give NumPy arrays, or {other}")
    sizes = tuple(system.goal.shape[d] for d in forward.dims)
    pairs = [_invert(*one, *weights) for one in zip(system.points, forward.matrices, sizes, strict=True)]
    matrices, inverses = tuple(matrix for matrix, _ in pairs), [inverse for _, inverse in pairs]
    if weights == (None, None):
        _check_condition([inverse.condition for inverse in inverses], forward, sizes, float(jnp.finfo(dtype).eps))
    for dim, inverse in zip(forward.dims, inverses, strict=True):
        largest = float(np.abs(inverse.matrix).max(initial=0.0))
        if not largest <= float(jnp.finfo(dtype).max):
            what = f"the inverse along axis {dim} has entries up to {largest:.2g}, beyond {dtype}"
            raise ValueError(f"{what}: use precision='float64'")
    scale = 1 / forward.scale / math.prod(m.length for m in matrices if isinstance(m, Roots))
    return Transform(forward.dims, matrices, scale), inverses


@functools.lru_cache(maxsize=64)
def _invert(
    points: Points | None, matrix: Matrix, size: int, tikhonov: float | None, truncation: float | None
) -> tuple[Matrix, Inverse]:
    """The inverse and its matrix; for all uniform samples the conjugate transform."""
    if isinstance(matrix, Roots) and size <= matrix.rows and tikhonov is None and truncation is None:
        back = Roots(matrix.length, -matrix.sign, size, matrix.rows)
        return back, Inverse(np.zeros(0), 1.0, CONJUGATE)
    what = f"an inverse of {size} unknowns by {matrix.rows} samples, with its matrix,"
    check_held(2 * 16 * size * matrix.rows, what, "solve for fewer unknowns, or take fewer samples along an axis")
    samples = points or Points.uniform(matrix.rows)
    inverse = invert(samples.in_turns, samples.log_radius, size, tikhonov=tikhonov, truncation=truncation)
    return Dense(size, matrix.rows), inverse


def _check_condition(conditions: Sequence[float], forward: Transform, sizes: tuple[int, ...], eps: float) -> None:
    remedy = "give tikhonov= or truncation= for an approximation"
    for dim, condition, samples, size in zip(forward.dims, conditions, forward.lengths, sizes, strict=True):
        if samples < size:
            raise ValueError(f"axis {dim} has {samples} samples of {size} unknowns: take more, or {remedy}")
        if not condition < math.inf:
            raise ValueError(f"the points of axis {dim} do not determine {size} unknowns: {remedy}")
    total = math.prod(conditions)
    if not total * eps < 1:
        worst = forward.dims[int(np.argmax(conditions))]
        what = f"the condition number is {total:.2g}, most of it along axis {worst} ({max(conditions):.2g})"
        what += f": no digit of the inverse is right in a type of precision {eps:.1g}"
        fewer = "precision='float64' where that helps, s= for fewer unknowns than samples"
        more = "or tikhonov= or truncation= for an approximation"
        raise ValueError(f"{what}. Take points nearer to uniform, {fewer}, {more}")


def _energy(arrays: Arrays, mapped: frozenset[str]) -> Array:
    """Sum of squares over all blocks of mapped axes."""
    energy = functools.reduce(jnp.add, (jnp.sum(jnp.square(jnp.abs(x))) for x in map(stored_of, arrays)))
    return jax.lax.psum(energy, tuple(sorted(mapped))) if mapped else energy
