"""Derivatives and the Poisson equation on a periodic box, through the spectrum: exact for what the grid resolves.

d/dx: multiply by i k,   inverse of the Laplacian: divide by -|k|^2
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..layout.layout import Spec
from ..layout.padded_array import mapped
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import scaled
from ..operators.transform import integers, is_integer
from ..plans.execute import moved
from ..plans.plan import Plan
from .fields import field, in_form_of, in_one
from .wavenumbers import along, harmonics, in_radians, periods

TURNS = (1, 1j, -1, -1j)


def derivative(
    x: Any,
    axis: int | Sequence[int],
    *,
    order: int | Sequence[int] = 1,
    length: float | Sequence[float] | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """The derivative of a periodic sharded array along an axis, or a mixed one along several, through its spectrum.

        y = F^-1 ((i k)^order F x),   k = 2 pi j / length

    Args:
        x: a sharded, replicated or single-device array of samples of a periodic function, or its planes (re, im).
        axis: the dimension; several for a mixed derivative, with an order for each, as axis=(0, 1), order=(1, 2).
        order: how often to differentiate.
        length: the period along the axis, or along each; None means as many as there are samples, which are 1 apart.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        out_spec: the result's PartitionSpec; None means that of the array.

    Returns:
        The derivative, sharded as the array came; real where it is real. It is exact for waves of less than N / 2
        periods. The wave of N / 2 periods, which an even N has, has no derivative of odd order on the grid: 0, as with
        the k of `wavenumbers(plan, odd=True)`; with the plain k `rfftn` and `fftn` would differ by several per cent
        of the derivative of white noise.

    Raises:
        ValueError, TypeError: an axis, order, length or spec that does not fit, with what would.

    Costs a transform along the axis and back, of any order: for an axis that is cut into p shards, two all-to-alls of
    (p - 1)/p of a device's block, real where the array is. Differentiable.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.derivative(jnp.array([0.0, 1.0, 0.0, -1.0]), 0, length=6.283185307179586).round(4).tolist()
    [1.0, 0.0, -1.0, 0.0]
    """
    axes, orders = integers(axis, "axis"), integers(order, "order")
    orders = orders * len(axes) if is_integer(order) else orders
    if len(orders) != len(axes):
        raise ValueError(f"there are {len(orders)} orders for {len(axes)} axes: give one for each axis")
    if not min(orders, default=0) >= 0:
        raise ValueError(f"order is {order}: give how often to differentiate, 0 or more")
    array, plan = field(x, axes, spec)
    lengths = (length,) * len(axes) if length is not None and np.ndim(length) == 0 else length
    y = in_one(_multiplied, plan, array, _differentiators(plan, lengths, orders))
    return moved(in_form_of(x, y), out_spec, spec)


def poisson(
    f: Any,
    lengths: Sequence[float] | None = None,
    *,
    axes: Sequence[int] | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """The periodic solution u of the Poisson equation, laplacian u = f, whose mean is zero.

        u = F^-1 (-F f / |k|^2),   and 0 at k = 0

    No periodic u has a Laplacian with a mean, so that of f is dropped: the Laplacian of u is f minus its mean.

    Args:
        f: a sharded, replicated or single-device array of samples of a periodic function, or its planes (re, im).
        lengths: the period along each axis; None means as many as there are samples, which are 1 apart.
        axes: the dimensions of the Laplacian; None means all. Along all others the equations, and means, are apart.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        out_spec: the result's PartitionSpec; None means that of the array.

    Returns:
        The solution, sharded as the array came; real where it is real. It is exact for what the grid resolves.

    Raises:
        ValueError, TypeError: axes, lengths or a spec that does not fit, with what would.

    Costs a transform and one back, of any order: half the traffic of `fftn` and `ifftn`. Differentiable.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.poisson(jnp.array([1.0, 0.0, -1.0, 0.0]), (6.283185307179586,)).round(4).tolist()
    [-1.0, 0.0, 1.0, 0.0]
    """
    array, plan = field(f, axes, spec)
    lengths = periods(plan, lengths)
    unit = max(lengths) / (2 * np.pi)
    u = in_one(_solved, plan, array, squares(plan, lengths), real_dtype(plan.dtype).type(unit))
    return moved(in_form_of(f, u), out_spec, spec)


def squares(plan: Plan, lengths: tuple[float, ...]) -> tuple[np.ndarray, ...]:
    """The squared wavenumbers along each dimension, in units of the least: integers in a cube, so rounded to none."""
    real, parts = real_dtype(plan.dtype), zip(plan.transform.dims, harmonics(plan), lengths, strict=True)
    return tuple(along(plan, dim, (j * (max(lengths) / n)) ** 2, real) for dim, j, n in parts)


def _differentiators(plan: Plan, lengths: Any, orders: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """(i k)^order along each dimension, real for even orders; for odd ones 0 at the Nyquist frequency."""
    lines = []
    numbers = in_radians(plan, lengths, [order % 2 == 1 for order in orders])
    for dim, k, order in zip(plan.transform.dims, numbers, orders, strict=True):
        dtype = plan.dtype if order % 2 else real_dtype(plan.dtype)
        lines.append(along(plan, dim, TURNS[order % 4] * k**order, dtype))
    return tuple(lines)


def _multiplied(plan: Plan, x: Any, lines: tuple[Array, ...]) -> Any:
    """The array whose spectrum is that of x times a line along each dimension."""
    return plan.inverse(mapped(lambda y: functools.reduce(scaled, lines, y), plan(x)))


def _solved(plan: Plan, f: Any, squares: tuple[Array, ...], unit: Array) -> Any:
    """The solution for squared wavenumbers in units of 1 / unit, by which it is multiplied twice lest it overflow."""
    square = functools.reduce(operator.add, squares)
    response = jnp.where(square > 0, -1 / jnp.where(square > 0, square, 1), 0)
    return plan.inverse(mapped(lambda y: scaled(scaled(scaled(y, unit), response), unit), plan(f)))
