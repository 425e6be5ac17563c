"""The inverse of the KDFT: a Vandermonde system for each dimension, solved once on the host, applied over the ring.

    x = W X,  then  x += W (X - V x)      W_i the inverse, or pseudo-inverse, of V_i, made in float64

One step of refinement by the forward transform removes the rounding of W. The condition of every V_i and the residual
say what the answer is worth.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
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
from .request import AnyStored, formed

Arrays = tuple[AnyStored, ...]
CONJUGATE = "conjugate transform"  # the method of uniform samples, whose inverse has no numbers of its own


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
        """The condition number of the transform: the product over the dimensions."""
        return math.prod(self.conditions)


class System(NamedTuple):
    """What is to be solved: a transform from layout `goal` to layout `start`, and what computes it.

    `tikhonov` or `truncation` make up for a missing inverse: see `ikdftn`.
    """

    goal: Layout
    start: Layout
    forward: Transform
    points: tuple[Points | None, ...]
    method: str
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    dots: tuple[Dot, ...]
    tikhonov: float | None = None
    truncation: float | None = None


def solution(given: Arrays, system: System) -> Solution:
    """The array in the system's layout `goal` whose transform is stored in its layout `start`."""
    goal, start, forward, points, method, mesh, machine, dtype, dots, *_ = system
    transform, inverses = _inverted(system)
    sources = tuple(None if inverse.method == CONJUGATE else inverse.matrix for inverse in inverses)
    how = (method, "natural", machine, dtype.itemsize, dots)
    back, there = find_walk(start, transform, *how, goal=goal), find_walk(goal, forward, *how, goal=start)

    def solved(y: Arrays) -> Arrays:
        return applied(y, back, sources, mesh, machine.chip, dtype)

    def missing(x: Arrays) -> Arrays:
        return tuple(a - b for a, b in zip(given, applied(x, there, points, mesh, machine.chip, dtype), strict=True))

    given = tuple(x.astype(real_dtype(dtype) if len(given) == 2 else dtype) for x in given)
    x = solved(given)
    rest = missing(x)
    if system.tikhonov is None:  # which a second step would undo; a truncated W is left as it is: W V W = W
        x = tuple(a + b for a, b in zip(x, solved(rest), strict=True))
        rest = missing(x)
    mapped = mapped_axes(mesh) & start.mesh_axes
    residual = jnp.sqrt(_energy(rest, mapped) / jnp.maximum(_energy(given, mapped), jnp.finfo(dtype).tiny))
    return Solution(formed(x), residual, tuple(i.condition for i in inverses), tuple(i.method for i in inverses))


def _inverted(system: System) -> tuple[Transform, list[Inverse]]:
    """The inverse of every dimension, made on the host and kept, and what each is worth."""
    forward, dtype = system.forward, system.dtype
    if any(points is not None and not points.known for points in system.points):
        raise ValueError("the points are traced: an inverse is computed from numbers, so give them as NumPy arrays")
    sizes = tuple(system.goal.shape[d] for d in forward.dims)
    weights = (system.tikhonov, system.truncation)
    pairs = [_invert(*one, *weights) for one in zip(system.points, forward.matrices, sizes, strict=True)]
    matrices, inverses = tuple(matrix for matrix, _ in pairs), [inverse for _, inverse in pairs]
    if weights == (None, None):
        _check_condition([inverse.condition for inverse in inverses], forward, sizes, float(jnp.finfo(dtype).eps))
    for dim, inverse in zip(forward.dims, inverses, strict=True):
        largest = float(np.abs(inverse.matrix).max(initial=0.0))
        if not largest <= float(jnp.finfo(dtype).max):
            raise ValueError(
                f"the inverse along axis {dim} has entries up to {largest:.2g}, beyond {dtype}: use precision='float64'"
            )
    scale = 1 / forward.scale / math.prod(m.length for m in matrices if isinstance(m, Roots))
    return Transform(forward.dims, matrices, scale), inverses


@functools.lru_cache(maxsize=64)
def _invert(
    points: Points | None, matrix: Matrix, size: int, tikhonov: float | None, truncation: float | None
) -> tuple[Matrix, Inverse]:
    """The matrix of the inverse; of all uniform samples it is the conjugate transform, without numbers of its own."""
    if isinstance(matrix, Roots) and size <= matrix.rows and tikhonov is None and truncation is None:
        back = Roots(matrix.length, -matrix.sign, size, matrix.rows)
        return back, Inverse(np.zeros(0), 1.0, CONJUGATE)
    what = f"an inverse of {size} unknowns by {matrix.rows} samples, with the matrix that it is of,"
    check_held(2 * 16 * size * matrix.rows, what, "solve for fewer unknowns, or of fewer samples along an axis")
    samples = points or Points.uniform(matrix.rows)
    inverse = invert(samples.in_turns, samples.log_radius, size, tikhonov=tikhonov, truncation=truncation)
    return Dense(size, matrix.rows), inverse


def _check_condition(conditions: Sequence[float], forward: Transform, sizes: tuple[int, ...], eps: float) -> None:
    remedy = "give tikhonov= or truncation= for the best there is"
    for dim, condition, samples, size in zip(forward.dims, conditions, forward.lengths, sizes, strict=True):
        if samples < size:
            raise ValueError(f"axis {dim} has {samples} samples of {size} unknowns: take more, or {remedy}")
        if not condition < math.inf:
            raise ValueError(f"the points of axis {dim} do not determine {size} unknowns: {remedy}")
    total = math.prod(conditions)
    if not total * eps < 1:
        worst = forward.dims[int(np.argmax(conditions))]
        raise ValueError(
            f"the condition number is {total:.2g}, most of it along axis {worst} ({max(conditions):.2g}): no digit "
            f"of the inverse is right in a type of precision {eps:.1g}. Take points nearer to uniform, "
            "precision='float64' where that helps, s= for fewer unknowns than samples, "
            "or tikhonov= or truncation= for the best there is"
        )


def _energy(arrays: Arrays, mapped: frozenset[str]) -> Array:
    """The sum of squares, over all blocks where the arrays are blocks of mapped axes."""
    energy = functools.reduce(jnp.add, (jnp.sum(jnp.square(jnp.abs(x))) for x in map(stored_of, arrays)))
    return jax.lax.psum(energy, tuple(sorted(mapped))) if mapped else energy
