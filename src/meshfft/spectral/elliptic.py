"""Poisson's and Helmholtz' equations in a box: periodic, between walls, and in open space.

    (laplacian + k2) u = f,   u = T^-1 (T f / (k2 - |k|^2)),   T: Fourier, cosine or sine transforms by axis

Open space has the Green's function of the free Laplacian, cut off at the length L of the box's diagonal, which changes
nothing in the box. Its transform is smooth (source: see `poisson`):

    1 / (4 pi r) for r < L   <->   (1 - cos(L |k|)) / |k|^2
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Unpack

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..functions.calls import Ints
from ..functions.helpers import next_fast_len
from ..layout.padded_array import AnyArray, AnyStored, Transformed
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import scaled
from ..operators.transform import reals, resolve_once
from ..plans.options import FieldHow, options_of, with_options
from ..plans.plan import Plan
from ..plans.request import read
from .fields import AxisValues, Lengths, along, back, field, harmonics, in_one, of_each, periods, returned
from .walls import BOUNDARIES, boundaries, walled


@with_options
def poisson(
    f: AnyArray,
    lengths: Lengths = None,
    *,
    axes: Ints = None,
    boundary: str | Sequence[str] = "periodic",
    **how: Unpack[FieldHow],
) -> Transformed:
    """The solution u of Poisson's equation, laplacian u = f, in a periodic box,
    between walls, or in open space.

        u = T^-1 (-T f / |k|^2),   and 0 at k = 0

    T is Fourier's transform along periodic axes, the sine transform (type II)
    between walls where u = 0, the cosine transform between walls where its
    slope is 0. If all axes are periodic or have slope 0, the mean of f is
    dropped, and that of u is 0.

    Args:
        f: as x of `multiply_spectrum`.
        lengths: the period along each axis, or the length from wall to wall,
            or one for all axes; None means samples 1 apart.
        axes: the dimensions of the Laplacian; None means all. Other dimensions
            are a batch.
        boundary: "periodic", "dirichlet" (u = 0), "neumann" (slope 0), or one
            for each axis; samples between walls are at (n + 1/2) length / N.
            "open": three axes without a boundary; u falls off as 1 / r, and f
            must be 0 near the edge.
        method, ..., out_spec: as `multiply_spectrum`.

    Returns:
        The solution, sharded as f; real if f is. It is exact for the waves of
        the grid (between walls sines or cosines). For other f, such as a
        constant between walls where u = 0, errors fall as N^-2.

    Raises:
        ValueError, TypeError: an argument that does not fit.

    Costs a transform and an inverse: half the traffic of `fftn` and `ifftn`.
    "open" transforms 1 + sqrt(3) times as many points along each axis of a
    cube. Differentiable. Source: Vico, Greengard, Ferrando, "Fast convolution
    with free-space Green's functions", J. Comput. Phys. 323, 2016.

    >>> x = jnp.array([1.0, 0.0, -1.0, 0.0])
    >>> mf.poisson(x, (6.283185307179586,)).round(4).tolist()
    [-1.0, 0.0, 1.0, 0.0]
    """
    return _solution(f, 0.0, lengths, axes, boundary, how)


@with_options
def helmholtz(
    f: AnyArray,
    k2: float,
    lengths: Lengths = None,
    *,
    axes: Ints = None,
    boundary: str | Sequence[str] = "periodic",
    **how: Unpack[FieldHow],
) -> Transformed:
    """The solution u of Helmholtz' equation, laplacian u + k2 u = f.

        u = T^-1 (T f / (k2 - |k|^2)),   and 0 where |k|^2 = k2

    Args:
        k2: a real number; below 0 this is the screened Poisson equation.
        f, lengths, axes, boundary, method, ..., out_spec: as `poisson`, but
            not "open".

    Returns, raises and costs as `poisson`. Waves with |k|^2 = k2 resonate: the
    equation has no solution for these, so they are dropped.

    >>> x = jnp.array([1.0, 0.0, -1.0, 0.0])
    >>> mf.helmholtz(x, -1.0, (6.283185307179586,)).round(4).tolist()
    [-0.5, 0.0, 0.5, 0.0]
    """
    given = reals([k2])
    if given is None or not math.isfinite(given[0]):
        error = TypeError if given is None else ValueError
        remedy = "give a real number, finite and known before tracing, or divide a plan's spectrum by k2 - |k|^2"
        raise error(f"k2 is {k2!r}: {remedy}")
    return _solution(f, given[0], lengths, axes, boundary, how)


def _solution(
    f: AnyArray, k2: float, lengths: Lengths, axes: Ints, boundary: str | Sequence[str], how: FieldHow
) -> Transformed:
    options, spec = options_of(how, FieldHow), how.get("spec")
    shape = read(f, spec).shape
    dims, _ = resolve_once(shape, None, axes)
    kinds = boundaries(boundary, len(dims), (*BOUNDARIES, "open"))
    if "open" in kinds:
        box = _open_box(k2, lengths, [shape[dim] for dim in dims], kinds)
        diagonal = math.hypot(*box)
        s = [next_fast_len(math.ceil(shape[d] * (1 + diagonal / n)), True) for d, n in zip(dims, box, strict=True)]
        array, plan = field(f, dims, options, spec, s=s)
        box = tuple(length * n / shape[d] for d, n, length in zip(dims, s, box, strict=True))
        work, unit = _convolved, max(box) / (2 * np.pi)
        scale = diagonal / unit
    else:
        array, plan, lengths, _ = walled(f, dims, kinds, lengths, options, spec)
        box = periods(plan, lengths)
        work, unit = _solved, max(box) / (2 * np.pi)
        scale = k2 * unit**2
    real = real_dtype(plan.dtype)
    scales = real.type(unit), real.type(scale)
    return returned(in_one(work, plan, array, squares(plan, box), *scales), f, options, spec)


def _open_box(k2: float, lengths: Lengths, sizes: Sequence[int], kinds: tuple[str, ...]) -> tuple[float, ...]:
    if k2 or len(sizes) != 3 or set(kinds) != {"open"}:
        what = f"{len(sizes)} axes with the boundaries {kinds}" if not k2 else f"k2 = {k2}"
        raise ValueError(f"boundary 'open' is for poisson along three axes, all of them open: the call has {what}")
    box = of_each(sizes if lengths is None else lengths, 3)
    if box is None or len(box) != 3 or not all(0 < length < math.inf for length in box):
        raise ValueError(f"lengths is {lengths!r}: give three positive numbers, the edges of the box")
    return box


def squares(plan: Plan, lengths: Sequence[float]) -> AxisValues:
    """Squared wavenumbers by dimension, in units of the least: exact integers in a cube."""
    real, parts = real_dtype(plan.dtype), zip(plan.transform.dims, harmonics(plan), lengths, strict=True)
    return tuple(along(plan, dim, (j * (max(lengths) / length)) ** 2, real) for dim, (j, _), length in parts)


def _solved(plan: Plan, f: AnyStored, squares: tuple[Array, ...], unit: Array, k2: Array, /) -> AnyStored:
    """For squares in units of 1 / unit; multiplies twice by unit to avoid overflow."""
    gap = k2 - functools.reduce(operator.add, squares)
    return _times(plan, f, jnp.where(gap != 0, 1 / jnp.where(gap != 0, gap, 1), 0), unit)


def _convolved(plan: Plan, f: AnyStored, squares: tuple[Array, ...], unit: Array, radius: Array, /) -> AnyStored:
    square = functools.reduce(operator.add, squares)
    safe = jnp.where(square > 0, square, 1)
    half = jnp.sin(jnp.sqrt(safe) * (radius / 2))  # 1 - cos(L k) = 2 sin(L k / 2)^2, which loses no digits at small k
    return _times(plan, f, -jnp.where(square > 0, 2 * half**2 / safe, radius**2 / 2), unit)


def _times(plan: Plan, f: AnyStored, response: Array, unit: Array) -> AnyStored:
    return back(plan, lambda y: scaled(scaled(scaled(y, unit), response), unit), plan(f))
