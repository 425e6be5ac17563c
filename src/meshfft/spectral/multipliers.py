"""A spectrum times functions of the wavenumbers: filters and derivatives.

    y = F^-1 (f(k) F x),   f = (i k)^order for d/dx

Factors are made for the spectrum as stored, so nothing is sent between the two walks.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..functions.calls import Ints
from ..layout.padded_array import AnyArray, AnyStored, PaddedArray, Transformed, is_padded, stored_of
from ..layout.reading import mesh_here
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import scaled
from ..operators.transform import integers, is_integer
from ..operators.trig import FAMILIES, Trig, trig
from ..plans.deferred_primitive import deferred
from ..plans.options import FieldHow, options_of, spelled, with_options
from ..plans.plan import Plan
from ..plans.planning import plan_for
from ..plans.request import Setting
from ..steps import Band, Bands
from .fields import PROGRAMS, AxisValues, Lengths, along, back, field, grids, in_one, in_radians, placed, returned
from .walls import boundaries, walled

POWERS_OF_I = (1, 1j, -1, -1j)
SIGNS = {"cos": (1, -1, -1, 1), "sin": (1, 1, -1, -1)}  # signs of their derivatives, by order
OTHER = dict(zip(FAMILIES, FAMILIES[::-1], strict=True))


@deferred
@spelled
def multiply_spectrum(
    x: AnyArray,
    f: Callable[..., object],
    *,
    axes: Ints = None,
    lengths: Lengths = None,
    odd: bool = False,
    **how: Unpack[FieldHow],
) -> Any:
    """Multiplies the spectrum of a periodic array by a function of wavenumbers.

        y = F^-1 (f(k_1, ..., k_d) F x),   k = 2 pi j / length along each axis

    Args:
        x: samples of a periodic function, as a sharded, replicated or
            single-device array, or its parts (re, im).
        f: called with the wavenumbers of each axis, which broadcast against
            one another and are 0 in padding; returns a factor, or a pytree of
            factors. If f(-k) is not the conjugate of f(k), make x complex;
            this is not checked. Differentiable in arrays that f uses.
        axes: the dimensions to transform, in the order of f's arguments; None
            means all.
        lengths: the period along each axis, or one for all; None means samples
            1 apart.
        odd: call f(*k, odd=q), where q is k, but 0 at the Nyquist frequency,
            for odd functions of k (see `wavenumbers`).
        spec, out_spec: as `fftn`.
        other options: as `fftn`. Lossy messages add an L2 error of at most 2 e
            |x| max|f|, where `print(mf.plan(...))` shows e.

    Returns:
        The product, or a pytree of products, sharded as x; real if x is real.

    Raises:
        ValueError, TypeError: an argument, or a factor of f, that does not fit.

    Costs a transform in the cheapest order, and an inverse for each result.

    >>> x = jnp.array([1.0, 2.0, 1.0, 0.0])
    >>> box = (6.283185307179586,)
    >>> y = mf.multiply_spectrum(x, lambda k: 1 / (1 + k**2), lengths=box)
    >>> y.round(4).tolist()
    [1.0, 1.5, 1.0, 0.5]
    """
    if not callable(f):
        raise TypeError(f"f is {f!r}: give a function of the wavenumbers, such as lambda kx, ky: 1j * kx")
    options, spec = options_of(how, FieldHow), how.get("spec")
    array, plan = field(x, axes, options, spec)
    factors = f(*grids(plan, lengths), **({"odd": grids(plan, lengths, odd=True)} if odd else {}))
    products = _products(plan, array, factors)
    return jax.tree.map(lambda y: returned(y, x, options, spec), products, is_leaf=is_padded)


def _products(plan: Plan, array: AnyStored, factors: object) -> object:
    if not jax.tree.leaves(factors):
        raise TypeError(f"f made {factors!r}: let it return a factor, or a tuple of factors")
    spectrum = plan(array)

    def product(factor: ArrayLike | PaddedArray) -> Array | PaddedArray:
        return back(plan, lambda stored: _times(stored, stored_of(factor), plan), spectrum)

    return jax.tree.map(product, factors, is_leaf=is_padded)


@with_options
def derivative(
    x: AnyArray,
    axis: int | Sequence[int],
    *,
    order: int | Sequence[int] = 1,
    lengths: Lengths = None,
    boundary: str | Sequence[str] = "periodic",
    **how: Unpack[FieldHow],
) -> Transformed:
    """The derivative of a sharded array along one axis or several, in a
    periodic box or between walls.

        y = F^-1 ((i k)^order F x),   k = 2 pi j / length

    Between walls x is a series of cosines or of sines, and a derivative of odd
    order is of the other kind: d/dx cos(k x) = -k sin(k x), k = pi j / length.

    Args:
        x, lengths, method, ..., out_spec: as `multiply_spectrum`; lengths
            between walls are from wall to wall.
        axis: the dimension; several for a mixed derivative, such as
            axis=(0, 1), order=(1, 2).
        order: order of the derivative.
        boundary: "periodic", "dirichlet" (x = 0 at the walls), "neumann" (slope
            0), or one for each of `axis`; samples as `poisson`.

    Returns:
        The derivative at the same points, sharded as x; real if x is. It is
        exact for waves of less than N / 2 periods, and between walls for sines
        or cosines. At a wall it does not converge if x ("dirichlet") or its
        slope ("neumann") is not 0 there. Derivatives of odd order are 0 for
        the wave of N / 2 periods (see `wavenumbers`) and for the last sine
        between walls.

    Raises:
        ValueError, TypeError: an argument that does not fit.

    Costs a transform along the axis and an inverse: for p shards of the axis,
    two all-to-alls of (p - 1)/p of a device's block. Differentiable.

    >>> x = jnp.array([0.0, 1.0, 0.0, -1.0])
    >>> mf.derivative(x, 0, lengths=6.283185307179586).round(4).tolist()
    [1.0, 0.0, -1.0, 0.0]
    """
    options, spec = options_of(how, FieldHow), how.get("spec")
    axes, orders = integers(axis, "axis"), integers(order, "order")
    orders = orders * len(axes) if is_integer(order) else orders
    if len(orders) != len(axes):
        raise ValueError(f"there are {len(orders)} orders for {len(axes)} axes: give one for each axis")
    if min(orders, default=0) < 0:
        raise ValueError(f"order is {order}: give how often to differentiate, 0 or more")
    kinds = boundaries(boundary, len(axes))
    array, plan, box, places = walled(x, axes, kinds, lengths, options, spec)
    orders = tuple(orders[j] for j in places)
    onto = _onto_others(plan, orders)
    lines = _differentiators(plan, in_radians(onto, box, [order % 2 == 1 for order in orders]), orders)
    return returned(in_one(_from(plan, orders), onto, array, lines), x, options, spec)


def _differentiators(there: Plan, k: Sequence[np.ndarray], orders: tuple[int, ...]) -> AxisValues:
    """Factors of each wave; between walls without i, as the series changes its kind."""
    factors = []
    for dim, wave, order, matrix in zip(there.transform.dims, k, orders, there.transform.matrices, strict=True):
        sign = SIGNS[matrix.family][order % 4] if isinstance(matrix, Trig) else POWERS_OF_I[order % 4]
        kind = there.dtype if isinstance(sign, complex) else real_dtype(there.dtype)
        factors.append(along(there, dim, sign * wave**order, kind))
    return tuple(factors)


def _turned(there: Plan, orders: tuple[int, ...]) -> list[tuple[int, str]]:
    """Axes and families of walls whose series changes its kind."""
    series = zip(there.transform.dims, there.transform.matrices, orders, strict=True)
    return [(dim, one.family) for dim, one, order in series if isinstance(one, Trig) and order % 2]


@functools.lru_cache(maxsize=PROGRAMS)
def _onto_others(there: Plan, orders: tuple[int, ...]) -> Plan:
    """The plan of the derivative's series, in which `_turned` axes have the other family."""
    if not (turned := dict(_turned(there, orders))):
        return there
    transform, layout = there.transform, there.out_layout
    matrices = tuple(
        trig(OTHER[turned[dim]], 2, matrix.columns, False, False) if dim in turned else matrix
        for dim, matrix in zip(transform.dims, transform.matrices, strict=True)
    )
    transform = transform._replace(matrices=matrices)
    setting = Setting(there.in_layout, there.mesh, there.machine, there.in_dtype)
    onto = plan_for(setting, transform, there.options, evades=False)
    if onto.out_layout != layout:
        options = there.options._replace(order="natural", out_spec=layout.spec)
        onto = plan_for(setting, transform, options, evades=False)
    return onto


@functools.lru_cache(maxsize=PROGRAMS)
def _from(there: Plan, orders: tuple[int, ...]) -> Callable[[Plan, AnyStored, tuple[Array, ...]], AnyStored]:
    """The way there, a product, and the way back by another plan.

    cos(pi j x / length) is number j of cosines, sin(pi j x / length) number j - 1 of sines: numbers move by one.
    """
    layout, moves = there.out_layout, list[Bands]()
    if not (turned := _turned(there, orders)):
        return _multiplied
    for dim, family in turned:
        band = Band(0, 1, layout.shape[dim] - 1)
        moves.append(Bands(dim, layout.shape[dim], layout.cuts[dim], (band.transpose() if family == "cos" else band,)))
    walk = dataclasses.replace(there.walk, steps=(*there.walk.steps, *moves))
    moved = dataclasses.replace(there, walk=walk)
    return lambda onto, x, lines: _multiplied(onto, x, lines, moved)


def _multiplied(plan: Plan, x: AnyStored, lines: tuple[Array, ...], there: Plan | None = None) -> AnyStored:
    return back(plan, lambda y: functools.reduce(scaled, lines, y), (there or plan)(x))


def _times(spectrum: Array, factor: ArrayLike, plan: Plan) -> Array:
    factor = jnp.asarray(factor)
    sizes = zip(factor.shape[::-1], spectrum.shape[::-1], strict=False)
    fits = factor.ndim <= spectrum.ndim and all(n in (1, many) for n, many in sizes)
    if factor.dtype.kind not in "biufc" or not fits:
        made = f"f made factors of shape {factor.shape} and type {factor.dtype} for a spectrum of {spectrum.shape}"
        raise ValueError(f"{made}: make them of the wavenumbers it is called with")
    product, mesh = _product(spectrum, factor), mesh_here(plan.mesh)
    traced = isinstance(spectrum, jax.core.Tracer) or isinstance(factor, jax.core.Tracer)
    return product if mesh is None or traced else placed(product, mesh, plan.out_layout.spec)


@jax.jit
def _product(spectrum: Array, factor: Array) -> Array:
    aligned = jax.lax.expand_dims(factor, range(spectrum.ndim - factor.ndim))
    return scaled(spectrum, aligned.astype(spectrum.dtype if jnp.iscomplexobj(factor) else real_dtype(spectrum.dtype)))
