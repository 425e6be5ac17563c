"""Power and cross spectra: the mean of |X|^2, or of X conj(Y), over the modes of each shell of wavenumbers.

    power[b] = sum over modes with edges[b] <= |k| < edges[b+1] of X[k] conj(Y[k]) / counts[b],   X = fftn(x) / N

Invariant: where the bins hold all modes, sum(power * counts) is the mean of x conj(y) (Parseval).
"""

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.bins import binned
from ..layout.layout import Spec
from ..layout.memory import Room, check_held, host, room
from ..layout.padded_array import stored_of
from ..numerics.dtypes import promoted, real_dtype
from ..numerics.split_complex import scaled
from ..operators.transform import is_integer, reals
from ..plans.plan import Plan
from ..plans.request import received
from .derivatives import squares
from .fields import check_whole, field, in_one, joined
from .wavenumbers import harmonics, multiplicities, periods

MOST = 2**20  # bins by default
BIN_BYTES = 32  # of a bin on each device: its edge, middle and three sums, and what they are worked out from
ROUNDING = 8 * 2.0**-52  # of an edge that was worked out from lengths in float64


class PowerSpectrum(NamedTuple):
    """Power by wavenumber, whole on every device.

    Attributes:
        k: the mean wavenumber of each bin's modes; the middle of a bin that has none.
        power: the mean of |X|^2, or of X conj(Y), over them; 0 where there are none.
        counts: how many they are.
    """

    k: Array
    power: Array
    counts: Array


def power_spectrum(
    x: Any,
    lengths: Sequence[float] | None = None,
    *,
    bins: int | Sequence[float] | None = None,
    axes: Sequence[int] | None = None,
    spec: Spec | None = None,
) -> PowerSpectrum:
    """The power of a periodic sharded array by the magnitude of the wavenumber.

        power = mean of |X[k]|^2 over the modes of a bin,   X[k] = 1/N sum_n x[n] exp(-i k n)

    Args:
        x: a sharded, replicated or single-device array, or its planes (re, im).
        lengths: the period along each axis; None means as many as there are samples, which are 1 apart.
        bins: how many equal ones from 0 to the largest |k|; or their edges, ascending. None: as wide as the least
            wavenumber 2 pi / max(lengths), around its multiples, as many as hold all modes.
        axes: the dimensions to transform; None means all. The modes of the lines along all others are counted together.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.

    Returns:
        A PowerSpectrum. Where the bins hold all modes, sum(power * counts) is the mean of |x|^2 along the axes, summed
        over all other dimensions. Modes that half a spectrum leaves out are counted. A bin has its lower edge, the last
        one both. |k| is worked out in the precision of the array: a mode that near an edge may be on either side.

    Raises:
        ValueError, TypeError: lengths, bins, axes or a spec that do not fit, with what would.

    Costs half a transform's traffic, of any order, a few real arrays of a block's size, and a sum over devices of the
    bins alone. Differentiable in x. For a density in wavenumber space multiply the power by the box's volume.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.power_spectrum(jnp.array([1.0, 0.0, -1.0, 0.0]), (6.283185307179586,)).power.round(4).tolist()
    [0.0, 0.25, 0.0]
    """
    array, plan = field(x, axes, spec, norm="forward")
    return _spectrum(plan, (array,), lengths, bins)


def cross_spectrum(
    x: Any,
    y: Any,
    lengths: Sequence[float] | None = None,
    *,
    bins: int | Sequence[float] | None = None,
    axes: Sequence[int] | None = None,
    spec: Spec | None = None,
) -> PowerSpectrum:
    """The cross power of two periodic sharded arrays by the magnitude of the wavenumber.

        power = mean of X[k] conj(Y[k]) over the modes of a bin,   X[k] = 1/N sum_n x[n] exp(-i k n)

    Of two real arrays it is real: the modes k and -k are each other's conjugates, so the imaginary part is 0 in every
    shell. Of complex ones it is complex. The correlation of two fields, scale by scale, is

        r = power of (x, y) / sqrt(power of x times power of y),   all with the same bins

    Args:
        x: a sharded, replicated or single-device array, or its planes (re, im).
        y: one of the same shape, sharded alike.
        lengths, bins, axes, spec: as `power_spectrum`.

    Returns:
        A PowerSpectrum, its `k` and `counts` those of `power_spectrum`. Where the bins hold all modes,
        sum(power * counts) is the mean of x conj(y) along the axes, summed over all other dimensions.

    Raises:
        ValueError, TypeError: as `power_spectrum`; arrays of two shapes or shardings.

    Costs half a transform's traffic for each array, of any order, and a sum over devices of the bins alone.
    Differentiable in both.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> x, y = jnp.array([1.0, 0.0, -1.0, 0.0]), jnp.array([2.0, 2.0, -2.0, -2.0])
    >>> mf.cross_spectrum(x, y, (6.283185307179586,)).power.round(4).tolist()
    [0.0, 0.5, 0.0]
    """
    first, second = joined(received(x)), joined(received(y))
    if first.shape != second.shape:
        raise ValueError(f"x has shape {first.shape}, y {second.shape}: give two of one shape")
    dtype = promoted(first.dtype, second.dtype)
    array, plan = field(first.astype(dtype), axes, spec, norm="forward")
    other, beside = field(second.astype(dtype), axes, spec, norm="forward")
    alike = (plan.mesh, plan.in_layout) == (beside.mesh, beside.in_layout)
    if not alike:
        raise ValueError(
            f"x is sharded as {plan.in_layout.spec}, y as {beside.in_layout.spec}: shard them alike, on one mesh"
        )
    return _spectrum(plan, (array, other), lengths, bins)


def _spectrum(plan: Plan, arrays: tuple[Any, ...], lengths: Any, bins: Any) -> PowerSpectrum:
    """The spectrum of one array, or of two, with the plan of each."""
    check_whole(plan.mesh, "power spectra")
    lengths = periods(plan, lengths)
    unit, real = 2 * np.pi / max(lengths), real_dtype(plan.dtype)
    first, *rest = arrays
    where = host() if isinstance(stored_of(first), jax.core.Tracer) else room(tuple(first.sharding.device_set))
    edges = _edges(bins, unit, _largest(plan, lengths), where)
    steps = edges**2 * (1 - ROUNDING)
    steps[-1] = edges[-1] ** 2 * (1 + 8 * jnp.finfo(real).eps)
    values = (squares(plan, lengths), multiplicities(plan), steps.astype(real))
    middles = ((edges[1:] + edges[:-1]) / 2).astype(real)
    beside = 8 * len(edges)  # counts are two integers
    k, power, counts = in_one(_binned, plan, first, rest, *values, middles, beside=beside)
    return PowerSpectrum(k * real.type(unit), power, counts)


def _largest(plan: Plan, lengths: tuple[float, ...]) -> float:
    """The largest wavenumber, in units of the least."""
    parts = zip(harmonics(plan), lengths, strict=True)
    return math.hypot(*(float(abs(j).max()) * (max(lengths) / length) for j, length in parts))


def _edges(bins: Any, unit: float, largest: float, where: Room) -> np.ndarray:
    """The edges of the bins, in units of the least wavenumber.

    Raises:
        ValueError, TypeError: bins that are none.
    """
    if bins is None:
        many = f"the default bins would be {largest:.3g}, of boxes so long and thin: give bins=, such as 64"
        if not largest < MOST:
            raise ValueError(many)
        return np.array([0, *(np.arange(round(largest) + 1) + 0.5)])
    if is_integer(bins):
        count = operator.index(bins)
        if not count >= 1:
            raise ValueError(f"bins is {bins}: give one at least, or their edges")
        check_held(BIN_BYTES * count, f"bins is {bins}, which", "give fewer bins", where)
        return np.linspace(0, largest or 1.0, count + 1)
    given = reals(bins)
    if given is None:
        raise TypeError(f"bins is {bins!r}: give how many, or a sequence of edges, such as (0.0, 1.0, 2.0)")
    edges = np.array(given)
    rises = len(edges) > 1 and np.all(edges >= 0) and np.all(np.diff(edges) > 0)
    if not (rises and np.isfinite(edges[-1])):
        raise ValueError(f"bins has the edges {bins}: give two or more, ascending from 0 or above")
    return edges / unit


def _binned(
    plan: Plan, x: Any, others: Sequence[Any], squares: Any, weights: Any, edges: Array, middles: Array
) -> tuple[Array, Array, Array]:
    """Mean wavenumber in units of the least, mean power, and counts."""
    product = _product([stored_of(plan(x)) for x in (x, *others)], plan.walk.real)
    sums, roots, counts = binned(product, squares, weights, edges, plan.out_layout, plan.mesh)
    some = jnp.maximum(counts, 1)
    return jnp.where(counts > 0, roots / some, middles), scaled(sums, 1 / some), counts


def _product(spectra: Sequence[Array], half: bool) -> Array:
    """|x|^2, whose gradient at 0 is 0; or x conj(y), of half spectra the real part: modes left out cancel the other."""
    if len(spectra) == 1:
        return jnp.square(spectra[0].real) + jnp.square(spectra[0].imag)
    x, y = spectra
    re = x.real * y.real + x.imag * y.imag
    return re if half else lax.complex(re, x.imag * y.real - x.real * y.imag)
