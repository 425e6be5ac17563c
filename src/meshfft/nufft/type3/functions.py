"""Sums at scattered frequencies of values at scattered positions: the request, and the extents of traced points.

    X_j = sum_i c_i exp(-2 pi i s_j . x_i)

Points on the host have a plan (known.py), traced points a grid of static size (traced.py).
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.typing import ArrayLike

from ...layout.layout import Spec
from ...layout.memory import check_blocks
from ...layout.padded_array import AnyArray, Transformed, padded, stored_of
from ...layout.placement import to_host
from ...plans.execute import moved
from ...plans.request import Request, Setting, formed, on_arrays, on_seen_arrays, read
from ...steps.problem import Options
from ...walks.walk import Walk
from ..grid.window import LEAST_TOL
from ..planning import ring_plan
from ..points import Scattered, anywhere
from ..problem import ScatteredProblem, check_alike, plain_number, products
from .known import type3_plan
from .traced import at_points, ends, middles, operands_of, sums_for


@on_seen_arrays
def nufftn_type3(
    c: AnyArray,
    positions: ArrayLike | Scattered,
    frequencies: Scattered,
    *,
    tol: float = 1e-5,
    space_bandwidth: float | Sequence[float] | None = None,
    precision: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Transformed:
    """Fourier sums between scattered positions and scattered frequencies: the
    nonuniform FFT of type 3.

        X_j = sum_i c_i exp(-2 pi i s_j . x_i)

    Args:
        c: values at the positions, with any batch dimensions first.
        positions: x, of shape (..., d), in any unit of length; also as
            `Scattered.lengths`.
        frequencies: s, in cycles (`Scattered.turns`) or radians
            (`Scattered.radians`) per unit of length.
        tol: as `nufftn`, at least 2e-6, or 2e-12 in complex128, because the
            errors of two windows add up.
        space_bandwidth: the largest product X S of half the extents of
            positions and frequencies along each dimension, or one number for
            all. Required if `jit` traces the points, to size the grid; if they
            exceed it, all sums are NaN.
        precision: as `nufftn`.
        spec, out_spec: sharding of c, if JAX hides it, and of the sums.

    Returns:
        The sums, batch dimensions first and then the shape of the frequencies,
        cut by the mesh axes that cut c along the positions.

    Raises:
        ValueError, TypeError: values of another shape than the positions,
            another number of coordinates, points traced by `jit` without
            space_bandwidth.

    Costs two windows and a fine grid of 4 sigma^2 X S cells along each
    dimension, |x - x0| <= X, |s - s0| <= S. Differentiable in c,
    positions and frequencies to any order, with full accuracy: a gradient
    costs two sums of batch 1 + d.

    Source: Lee and Greengard, "The type 3 nonuniform FFT and its
    applications", JCP 2005.

    >>> s = mf.Scattered.turns([[1.0], [0.5]])
    >>> y = mf.nufftn_type3(np.ones(2), [[0.0], [2.5]], s)
    >>> [f"{size:.3f}" for size in abs(y)]
    ['0.000', '1.414']
    """
    if not isinstance(frequencies, Scattered):
        raise TypeError(
            f"frequencies is a {type(frequencies).__name__}: say what they are, as mf.Scattered.turns(s) or .radians(s)"
        )
    lengths = positions if isinstance(positions, Scattered) else Scattered.lengths(positions)
    if lengths.unit != "turns":
        raise TypeError("positions are in radians, but have no period: give numbers, or mf.Scattered.lengths(x)")
    frequencies = frequencies.settled
    if lengths.dims != frequencies.dims:
        raise ValueError(
            f"positions have {lengths.dims} coordinates, frequencies {frequencies.dims}: give one for each dimension"
        )
    found, bound = None, _bound(space_bandwidth, lengths.dims, frequencies.unit)
    if lengths.size and frequencies.size and not (lengths.known and frequencies.known):
        found, bound = _traced_ends(lengths, frequencies, bound)
    given: Any = c
    result: Transformed = _summed(
        given, lengths, frequencies, found, bound, tol, precision=precision, spec=spec, out_spec=out_spec
    )
    return result


@on_arrays
def _summed(
    c: AnyArray,
    lengths: Scattered,
    frequencies: Scattered,
    found: Array | None,
    bound: tuple[float, ...] | None,
    tol: float,
    *,
    precision: str | None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Transformed:
    request = read(c, spec)
    setting = request.setting
    start = setting.start
    if start.shape[-len(lengths.shape) :] != lengths.shape:
        raise ValueError(f"the values have shape {start.shape}, the positions {lengths.shape}: give one for each")
    dtype, dots = products(setting, Options(precision=precision))
    what = (setting.mesh, setting.machine, dtype, dots)
    if lengths.size == 0 or frequencies.size == 0:  # a sum of nothing, or at no frequency
        dims = tuple(range(start.ndim - len(lengths.shape), start.ndim))
        anyhow = Scattered.turns(np.zeros((*frequencies.shape, len(dims))))
        return moved(ring_plan(ScatteredProblem(start, dims, anyhow, *what)).execute(request), out_spec)
    problem = ScatteredProblem(start, (), frequencies.settled, *what, tol=_half(plain_number(tol), dtype.name))
    if found is not None:
        assert bound is not None
        return moved(_at_traced(request, lengths, problem, found, bound), out_spec)
    plan = type3_plan(start, lengths, problem)
    _check_grid(plan.walk, setting, dtype)
    return moved(plan.execute(request), out_spec)


def _check_grid(walk: Walk, setting: Setting, dtype: np.dtype) -> None:
    for _, layout in walk.pairs:
        check_blocks(layout, dtype.itemsize, setting.room, "the grid between positions and frequencies")


def _at_traced(
    request: Request, lengths: Scattered, problem: ScatteredProblem, found: Array, bound: tuple[float, ...]
) -> Transformed:
    for points in (lengths, problem.points):
        check_alike(points, problem.start)
    shapes = problem._replace(points=anywhere(problem.points))
    sums = sums_for(problem.start, anywhere(lengths), shapes, bound)
    _check_grid(sums.walk, request.setting, problem.dtype)
    first, *others = map(stored_of, request.arrays)
    c = (lax.complex(first, *others) if others else first).astype(problem.dtype)
    x, s = jnp.asarray(lengths.coords), jnp.asarray(problem.points.coords)
    y = at_points(sums, c, x, s, operands_of(sums, *lax.stop_gradient((x, s)), found))
    planes = (y.real, y.imag) if request.planes else (y,)
    return formed(tuple(padded(one, sums.walk.end, problem.mesh, request.arrays[0]) for one in planes))


def _bound(given: float | Sequence[float] | None, dims: int, unit: str) -> tuple[float, ...] | None:
    if given is None:
        return None
    try:
        numbers = np.broadcast_to(np.asarray(plain_number(given), float), (dims,))
    except (TypeError, ValueError):
        numbers = np.full(dims, np.nan)
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ValueError(f"space_bandwidth is {given!r}: give a positive number, or one for each of {dims} dimensions")
    return tuple(map(float, numbers if unit == "turns" else numbers / (2 * math.pi)))


def _traced_ends(
    lengths: Scattered, frequencies: Scattered, bound: tuple[float, ...] | None
) -> tuple[Array, tuple[float, ...]]:
    """Ends of positions and frequencies (2, 2, d) in turns, and the grid's products."""
    coords = [jnp.asarray(points.coords) for points in (lengths, frequencies)]
    wider = max((one.dtype for one in coords), key=lambda dtype: dtype.itemsize)
    positions, waves = (ends(lax.stop_gradient(one)).astype(wider) for one in coords)
    found = jnp.stack([positions, waves if frequencies.unit == "turns" else waves / (2 * math.pi)])
    if isinstance(found, Tracer):
        if bound is None:
            raise ValueError(
                "jit traces the points, and the grid for them needs a size: give space_bandwidth=, the largest product "
                "of half the extents of positions and frequencies, or call outside of jit"
            )
        return found, bound
    (_, extent), (_, band) = (middles(np, one.astype(float)) for one in to_host(found))
    widest = extent * band
    if not np.isfinite(widest).all():
        raise ValueError(f"positions and frequencies extend by {extent} and {band}: give finite ones")
    if bound is not None and (widest > np.array(bound) * (1 + 1e-6)).any():
        unit = 1.0 if frequencies.unit == "turns" else 2 * math.pi
        raise ValueError(
            f"space_bandwidth allows {[unit * one for one in bound]}, and half the extents of positions and "
            f"frequencies have the products {(unit * widest).tolist()}: give those, or leave it out"
        )
    steps = np.ceil(8 * np.log2(np.maximum(widest * 1.001, 1)))  # points that move a little keep the program
    return found, tuple(map(float, 2 ** (steps / 8))) if bound is None else bound


def _half(tol: object, name: str) -> float:
    """Half the tolerance, for each of two windows; raises ValueError."""
    if not isinstance(tol, int | float) or not 0 < tol < 1:
        raise ValueError(f"tol is {tol!r}: give a relative error, such as 1e-6")
    if tol < 2 * LEAST_TOL[name] * (1 - 1e-6):
        other = "precision='float64'" if name == "complex64" else "sums of NumPy"
        raise ValueError(
            f"tol={tol:g} is below what {name} holds through the two windows of type 3: use tol >= "
            f"{2 * LEAST_TOL[name]:g}, or {other}"
        )
    return tol / 2
