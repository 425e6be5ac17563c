"""The inverse of the KDFT: a Vandermonde system for each dimension, solved once on the host, applied over the ring.

    x = W X,  then  x += W (X - V x)      W_i the inverse, or pseudo-inverse, of V_i, made in float64

One step of refinement by the forward transform takes away what rounding W cost. What the answer is worth comes with it:
the condition of every V_i, and the residual.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..layout.layout import AnyMesh, Layout, mapped_axes
from ..layout.memory import check_held
from ..layout.padded_array import stored_of
from ..machine.machine import Machine
from ..numerics.dtypes import Dot, real_dtype
from ..operators.inverses import Inverse, invert
from ..operators.matrices import Dense, Matrix, Roots
from ..operators.points import Points
from ..operators.transform import Transform
from ..walks.choice import find_walk
from .execute import applied
from .request import formed

Arrays = tuple[Any, ...]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("value", "residual"), meta_fields=("conditions", "methods")
)
@dataclasses.dataclass(frozen=True)
class Solution:
    """An inverse transform, and what it is worth.

    Attributes:
        value: the array whose transform was given.
        residual: ||X - V x|| / ||X|| of the x returned.
        conditions: the condition number of each dimension's matrix in the 2-norm, within 10 %, its columns scaled by
            the mean radius to the power n. An error of X, relative to X, may come out that much larger in x; off the
            unit circle, in x weighted by r^-n: samples of small weight are right only relative to the large ones.
        methods: how each dimension was solved.
    """

    value: Any
    residual: Array
    conditions: tuple[float, ...]
    methods: tuple[str, ...]

    @property
    def condition(self) -> float:
        """The condition number of the whole transform: the product over the dimensions."""
        return math.prod(self.conditions)


class Weights(NamedTuple):
    """What makes up for a missing inverse: a weight of the solution's norm, or the least singular value kept."""

    tikhonov: float | None
    truncation: float | None


NO_WEIGHTS = Weights(None, None)


class PseudoInverse(NamedTuple):
    """The inverse along each dimension, with what it is worth."""

    transform: Transform
    sources: tuple[Any, ...]
    conditions: tuple[float, ...]
    methods: tuple[str, ...]


def pseudo_inverse(
    forward: Transform, points: tuple[Points | None, ...], sizes: tuple[int, ...], weights: Weights, dtype: np.dtype
) -> PseudoInverse:
    """Inverts every dimension on the host, cached; `sizes` are the numbers of inputs wanted.

    Raises:
        ValueError: points that are traced; a weight that does not fit; or a condition that leaves no digit of `dtype`
            where no weight regularises.
    """
    for taken in points:
        known = taken is None or taken.known
        if not known:
            raise ValueError("the points are traced: an inverse is computed from numbers, so give them as NumPy arrays")
    pairs = zip(points, forward.matrices, sizes, strict=True)
    found = [_invert(chosen, matrix, size, weights) for chosen, matrix, size in pairs]
    conditions = tuple(part.condition for _, part in found)
    if weights == NO_WEIGHTS:
        _check_condition(conditions, forward, sizes, float(jnp.finfo(dtype).eps))
    _check_finite(found, forward.dims, dtype)
    matrices = tuple(matrix for matrix, _ in found)
    sources = tuple(None if isinstance(matrix, Roots) else part.matrix for matrix, part in found)
    scale = 1 / forward.scale / math.prod(m.length for m in matrices if isinstance(m, Roots))
    return PseudoInverse(
        Transform(forward.dims, matrices, scale), sources, conditions, tuple(part.method for _, part in found)
    )


class System(NamedTuple):
    """What is to be solved: a transform from layout `goal` to layout `start`, and what computes it."""

    goal: Layout
    start: Layout
    forward: Transform
    points: tuple[Points | None, ...]
    method: str
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    dots: tuple[Dot, ...]


def solution(given: Arrays, system: System, weights: Weights) -> Solution:
    """The array in the system's layout `goal` whose transform is stored in its layout `start`."""
    goal, start, forward, points, method, mesh, machine, dtype, dots = system
    inverse = pseudo_inverse(forward, points, tuple(goal.shape[d] for d in forward.dims), weights, dtype)
    how = (method, "natural", machine, dtype.itemsize, dots)
    back, there = find_walk(start, inverse.transform, *how, goal=goal), find_walk(goal, forward, *how, goal=start)

    def invert(given: Arrays) -> Arrays:
        return applied(given, back, inverse.sources, mesh, machine.chip, dtype)

    def missing(x: Arrays) -> Arrays:
        return tuple(a - b for a, b in zip(given, applied(x, there, points, mesh, machine.chip, dtype), strict=True))

    computed = real_dtype(dtype) if len(given) == 2 else dtype
    given = tuple(x.astype(computed) for x in given)
    x = invert(given)
    rest = missing(x)
    if weights.tikhonov is None:  # which a second step would undo; a truncated W is left as it is: W V W = W
        x = tuple(a + b for a, b in zip(x, invert(rest), strict=True))
        rest = missing(x)
    mapped = mapped_axes(mesh) & start.mesh_axes
    residual = jnp.sqrt(_energy(rest, mapped) / jnp.maximum(_energy(given, mapped), jnp.finfo(dtype).tiny))
    return Solution(formed(x), residual, inverse.conditions, inverse.methods)


@functools.lru_cache(maxsize=64)
def _invert(points: Points | None, matrix: Matrix, size: int, weights: Weights) -> tuple[Matrix, Inverse]:
    """The matrix of the inverse; of all uniform samples it is the conjugate transform, without numbers of its own."""
    if isinstance(matrix, Roots):
        if size <= matrix.rows and weights == NO_WEIGHTS:
            return Roots(matrix.length, -matrix.sign, size, matrix.rows), Inverse(
                np.zeros(0), 1.0, "conjugate transform"
            )
    many = f"an inverse of {size} unknowns by {matrix.rows} samples, with the matrix that it is of,"
    check_held(2 * 16 * size * matrix.rows, many, "solve for fewer unknowns, or of fewer samples along an axis")
    taken = points or Points.uniform(matrix.rows)
    return Dense(size, matrix.rows), invert(taken.in_turns, taken.log_radius, size, **weights._asdict())


def _check_condition(conditions: tuple[float, ...], forward: Transform, sizes: tuple[int, ...], eps: float) -> None:
    for dim, condition, samples, size in zip(forward.dims, conditions, forward.lengths, sizes, strict=True):
        remedy = "give tikhonov= or truncation= for the best there is"
        if not samples >= size:
            raise ValueError(f"axis {dim} has {samples} samples of {size} unknowns: take more, or {remedy}")
        if not condition < math.inf:
            raise ValueError(f"the points of axis {dim} do not determine {size} unknowns: {remedy}")
    total = math.prod(conditions)
    worst = forward.dims[int(np.argmax(conditions))]
    if not total * eps < 1:
        raise ValueError(
            f"the condition number is {total:.2g}, most of it along axis {worst} ({max(conditions):.2g}): no digit "
            f"of the inverse is right in a type of precision {eps:.1g}. Take points nearer to uniform, "
            "precision='float64' where that helps, s= for fewer unknowns than samples, "
            "or tikhonov= or truncation= for the best there is"
        )


def _check_finite(found: list[tuple[Matrix, Inverse]], dims: tuple[int, ...], dtype: np.dtype) -> None:
    for dim, (_, part) in zip(dims, found, strict=True):
        largest = float(np.abs(part.matrix).max(initial=0.0))
        if not largest <= float(jnp.finfo(dtype).max):
            raise ValueError(
                f"the inverse along axis {dim} has entries up to {largest:.2g}, beyond {dtype}: use precision='float64'"
            )


def _energy(arrays: tuple[Array, ...], mapped: frozenset[str]) -> Array:
    """The sum of squares, over all blocks where the arrays are blocks of mapped axes."""
    seen = functools.reduce(jnp.add, (jnp.sum(jnp.square(jnp.abs(x))) for x in map(stored_of, arrays)))
    return jax.lax.psum(seen, tuple(sorted(mapped))) if mapped else seen
