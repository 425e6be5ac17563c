"""The inverse along one dimension by conjugate gradients on the normal equations.

    T x = V^H X,   T = V^H V      then   x += S(V^H (X - V x)),   S the solve, V the dense transform

On a circle FFTs apply T (see operators.conjugate_gradients), if possible in a layout that does not cut the dimension.
All lines are solved together, so devices exchange single numbers.

For any fixed x the second formula is T^-1 V^H X exactly. So derivatives in samples and points, with the last S
differentiated implicitly, are exact to every order.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..layout.in_flight import in_turn
from ..layout.layout import AnyMesh, Layout, axis_sizes, line_shape, mapped_axes
from ..layout.placement import local_slice, reshard
from ..machine.machine import Machine
from ..numerics.dtypes import Dot, real_dtype
from ..numerics.split_complex import Planes, scaled
from ..operators.conjugate_gradients import about_the_circle, eigenvalues, growth, solved, traced_condition
from ..operators.points import Points
from ..operators.transform import Transform, fast_length, transform_of
from ..steps.problem import Options, Problem
from ..walks.choice import find_walk, moves, spread
from ..walks.walk import Walk
from .execute import furnish, sound_walk, walked
from .primitive import Operands

ATTAINABLE = 0.1  # most precision times squared condition number with which refinement converges
PADDED = 2  # most storage of an uncut layout, relative to the array
# Operands of V and V^H, eigenvalues on the circle, growth of the radii.
SolveNumbers = tuple[Operands, Operands, Array | None, Array]


class System(NamedTuple):
    """A transform from `goal` to `start` to invert."""

    goal: Layout
    start: Layout
    forward: Transform
    points: tuple[Points | None, ...]
    options: Options
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    dots: tuple[Dot, ...]
    tikhonov: float | None = None
    truncation: float | None = None
    solver: str = "auto"
    tol: float | None = None
    iterations: int | None = None


class Line(NamedTuple):
    dim: int
    there: Walk  # V, from unknowns to samples
    back: Walk  # V^H
    away: Walk  # to the layout of T, and back
    home: Walk
    fft: Walk | None  # on the circle
    mesh: AnyMesh | None
    tol: float
    iterations: int
    rounds: int


def solved_line(
    given: Planes, start: Layout, goal: Layout, dim: int, points: Points, system: System, limits: tuple[float, int, int]
) -> tuple[Planes, Array, Array | None]:
    """The stored unknowns, the iterations, and for traced points the condition number."""
    mesh, how = system.mesh, (system.machine, system.dtype.itemsize, system.dots)
    size, real, (rest, mean) = goal.shape[dim], real_dtype(system.dtype), about_the_circle(points)
    transform = Transform((dim,), (rest.matrix(size),), 1.0)
    there = find_walk(Problem(goal, transform, *how, system.options._replace(method="kdft"), start))
    chip = system.machine.chip.name
    (there, v), (back, w) = (furnish(walk, (rest,), chip, real) for walk in (there, there.adjoint()))
    place = _uncut(goal, dim, mesh) if rest.log_radius is None else goal
    fft, symbol, length = None, None, 1
    if rest.log_radius is None:
        length = fast_length(2 * size - 1, place.parts[dim] ** 2, real=True)
        fourier = transform_of((dim,), (length,), None, False)
        fft = sound_walk(Problem(place, fourier, *how))
        symbol = eigenvalues(rest, size, length, real) / length
    line = Line(dim, there, back, moves(goal, place, *how), moves(place, goal, *how), fft, mesh, *limits)
    values = None if symbol is None else jnp.asarray(symbol, real)
    numbers = (v, w, values, jnp.asarray(growth(mean, size, real), real))
    x, count = in_turn(_solve, given, numbers, line)
    if rest.known:
        return x, count, None
    symbol, rest = lax.stop_gradient((symbol, rest))
    condition = traced_condition(rest, None if symbol is None else symbol * length, size, real)
    valid = condition**2 * jnp.finfo(real).eps < ATTAINABLE
    trust = jnp.where(valid, jnp.ones_like(condition), jnp.full_like(condition, jnp.nan))
    return tuple(scaled(part, trust) for part in x), count, condition


def _uncut(layout: Layout, dim: int, mesh: AnyMesh | None) -> Layout:
    """The layout with a dimension's axes moved elsewhere, if that needs little padding."""
    mapped, cuts = mapped_axes(mesh), layout.cuts[dim]
    if layout.parts[dim] == 1 or (mapped and mapped != set(axis_sizes(mesh))):
        return layout  # mapped axes cut first, which not every layout allows
    free, most = layout.replace(dim, layout.shape[dim], ()), PADDED * math.prod(layout.shape)
    others = [d for d in range(layout.ndim) if d != dim]
    found = [one for one in spread(free, cuts, others) if math.prod(one.storage) <= most]
    return min(found, key=lambda one: math.prod(one.storage), default=layout)


@functools.partial(jax.jit, static_argnums=2)
def _solve(given: Planes, numbers: SolveNumbers, line: Line) -> tuple[Planes, Array]:
    """Rounds of refinement; only the last is differentiated."""
    fixed, samples = lax.stop_gradient(numbers), lax.stop_gradient(given)
    x, count = _corrected(None, samples, fixed, line)
    for _ in range(line.rounds - 2):
        x, more = _corrected(x, samples, fixed, line)
        count += more
    x, more = _corrected(lax.stop_gradient(x), given, numbers, line)
    return tuple(_times(part, numbers[3], line.there.start, line) for part in x), count + more


def _corrected(x: Planes | None, given: Planes, numbers: SolveNumbers, line: Line) -> tuple[Planes, Array]:
    v, w, symbol, _ = numbers
    go = functools.partial(walked, mesh=line.mesh, planes=len(given) == 2)
    rest = given
    if x is not None:
        rest = tuple(a - b for a, b in zip(given, go(x, line.there, operands=v), strict=True))
    right = go(rest, line.back, operands=w)

    def normal(y: Planes) -> Planes:
        if line.fft is None or symbol is None:
            return go(go(y, line.there, operands=v), line.back, operands=w)
        spectrum = tuple(_times(part, symbol, line.fft.end, line) for part in go(y, line.fft))
        return go(spectrum, line.fft.adjoint())

    mapped = tuple(sorted(mapped_axes(line.mesh) & line.home.start.mesh_axes))
    gradients = functools.partial(solved, mapped=mapped, tol=line.tol, iterations=line.iterations)
    away = go(right, line.away)
    change, count = lax.custom_linear_solve(normal, away, gradients, gradients, has_aux=True)
    count = lax.pmax(count, mapped) if mapped else count
    change = go(change, line.home)
    return change if x is None else tuple(a + b for a, b in zip(x, change, strict=True)), count


def _times(x: Array, values: Array, layout: Layout, line: Line) -> Array:
    positions = np.minimum(layout.positions(line.dim), values.shape[0] - 1)
    if not np.array_equal(positions, np.arange(values.shape[0])):
        values = values[positions]
    mapped, cuts = mapped_axes(line.mesh), layout.cuts[line.dim]
    values = jnp.asarray(local_slice(values, 0, cuts, mapped)).reshape(line_shape(line.dim, x.ndim))
    spec = [part if d == line.dim else None for d, part in enumerate(layout.spec)]
    return scaled(x, reshard(values, line.mesh, jax.sharding.PartitionSpec(*spec)))
