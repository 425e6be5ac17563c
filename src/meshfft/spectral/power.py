"""Power and cross spectra: the mean of |X|^2, or of X conj(Y), over the modes of each shell of wavenumbers.

    power[b] = sum over modes with edges[b] <= |k| < edges[b+1] of X[k] conj(Y[k]) / counts[b],   X = fftn(x) / N

Invariant: if the bins hold all modes, sum(power * counts) is the mean of x conj(y) (Parseval).
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.bins import PerDim, binned
from ..functions.calls import Ints
from ..layout.memory import Room, check_held, host, room
from ..layout.padded_array import AnyArray, AnyStored, stored_of
from ..layout.placement import same_mesh
from ..numerics.dtypes import promoted, real_dtype
from ..numerics.split_complex import scaled
from ..operators.transform import is_integer, reals
from ..plans.deferred_primitive import deferred
from ..plans.options import SpectrumHow, options_of, spelled
from ..plans.plan import Plan
from ..plans.request import received
from .elliptic import squares
from .fields import Lengths, check_all_mapped, field, harmonics, in_one, joined, periods, seen

MOST = 2**20  # most bins by default
BIN_BYTES = 32  # on each device: edge, middle, three sums and temporaries
ROUNDING = 8 * 2.0**-52  # of an edge computed from lengths in float64
Bins = int | Sequence[float] | None


class PowerSpectrum(NamedTuple):
    """Power by wavenumber, replicated on every device.

    Attributes:
        k: the mean wavenumber of each bin's modes; the middle of an empty bin.
        power: the mean of |X|^2, or of X conj(Y), over them; 0 if there are
            none.
        counts: the number of modes in each bin.

    >>> found = mf.power_spectrum(jnp.array([1.0, 0.0, -1.0, 0.0]))
    >>> found.counts.tolist()
    [1.0, 2.0, 1.0]
    """

    k: Array
    power: Array
    counts: Array


@functools.partial(deferred, linear=False)
@spelled
def power_spectrum(
    x: AnyArray, lengths: Lengths = None, *, bins: Bins = None, axes: Ints = None, **how: Unpack[SpectrumHow]
) -> PowerSpectrum:
    """The power of a periodic sharded array by the magnitude of the
    wavenumber.

        power = mean of |X[k]|^2 over the modes of a bin,
        X[k] = 1/N sum_n x[n] exp(-i k n)

    Args:
        x, lengths, and options: as `multiply_spectrum`.
        bins: the number of equal bins from 0 to the largest |k|; or their
            edges, nonnegative and ascending. None means bins around the
            multiples of the smallest wavenumber, 2 pi / max(lengths).
        axes: the dimensions to transform; None means all. Modes of all batch
            elements are counted together.

    Returns:
        A PowerSpectrum. If the bins hold all modes, sum(power * counts) is the
        mean of |x|^2 along the axes, summed over all other dimensions. Counts
        include modes that half a spectrum omits. A bin includes its lower
        edge, the last bin both. |k| has the precision of the array.

    Raises:
        ValueError, TypeError: an argument that does not fit.

    Sends half the bytes of `fftn`, and needs a few real arrays of a block's
    size. Differentiable in x. For a density in wavenumber space multiply by
    the box's volume.

    >>> x = jnp.array([1.0, 0.0, -1.0, 0.0])
    >>> mf.power_spectrum(x, (6.283185307179586,)).power.round(4).tolist()
    [0.0, 0.25, 0.0]
    """
    options, spec = options_of(how, SpectrumHow), how.get("spec")
    array, plan = field(x, axes, options, spec, norm="forward")
    return _spectrum(plan, (array,), lengths, bins)


@functools.partial(deferred, arrays=2, linear=False)
@spelled
def cross_spectrum(
    x: AnyArray,
    y: AnyArray,
    lengths: Lengths = None,
    *,
    bins: Bins = None,
    axes: Ints = None,
    **how: Unpack[SpectrumHow],
) -> PowerSpectrum:
    """The cross power of two periodic sharded arrays by the magnitude of the
    wavenumber.

        power = mean of X[k] conj(Y[k]) over the modes of a bin,
        X[k] = 1/N sum_n x[n] exp(-i k n)

    It is real for real arrays, whose modes at k and -k are conjugates. The
    correlation of two fields is

        r = power of (x, y) / sqrt(power of x times power of y), bin by bin

    Args:
        x, lengths, bins, axes, and options: as `power_spectrum`.
        y: an array of the same shape, sharded alike.

    Returns:
        A PowerSpectrum, of x conj(y) instead of |x|^2.

    Raises:
        ValueError, TypeError: as `power_spectrum`; arrays of different
            shapes or shardings.

    Costs as `power_spectrum`, with two transforms. Differentiable in both.

    >>> x = jnp.array([1.0, 0.0, -1.0, 0.0])
    >>> y = jnp.array([2.0, 2.0, -2.0, -2.0])
    >>> mf.cross_spectrum(x, y, (6.283185307179586,)).power.round(4).tolist()
    [0.0, 0.5, 0.0]
    """
    options, spec = options_of(how, SpectrumHow), how.get("spec")
    first, second = joined(received(x)), joined(received(y))
    if first.shape != second.shape:
        raise ValueError(f"x has shape {first.shape}, y {second.shape}: give two of one shape")
    dtype = promoted(first.dtype, second.dtype)
    array, plan = field(first.astype(dtype), axes, options, spec, norm="forward")
    other, beside = field(second.astype(dtype), axes, options, spec, norm="forward")
    here, there = plan.in_layout, beside.in_layout
    if here != there or not same_mesh(plan.mesh, beside.mesh):
        raise ValueError(f"x is sharded as {here.spec}, y as {there.spec}: shard them alike, on one mesh")
    return _spectrum(plan, (array, other), lengths, bins)


def _spectrum(plan: Plan, arrays: tuple[AnyStored, ...], lengths: Lengths, bins: Bins) -> PowerSpectrum:
    check_all_mapped(plan.mesh, plan.in_layout, "power spectra")
    lengths = periods(plan, lengths)
    unit, real = 2 * np.pi / max(lengths), real_dtype(plan.dtype)
    stored = stored_of(arrays[0])
    where = host() if isinstance(stored, jax.core.Tracer) else room(stored.sharding)
    parts = zip(harmonics(plan), lengths, strict=True)
    largest = math.hypot(*(float(abs(j).max()) * (max(lengths) / length) for (j, _), length in parts))
    edges = _edges(bins, unit, largest, where)
    steps = edges**2 * (1 - ROUNDING)
    steps[-1] = edges[-1] ** 2 * (1 + 8 * np.finfo(real).eps)
    middles = ((edges[1:] + edges[:-1]) / 2).astype(real)
    values = (squares(plan, lengths), _multiplicities(plan), steps.astype(real), middles)
    k, power, counts = in_one(_binned, plan, arrays, *values, beside=8 * len(edges))  # counts are two integers
    return PowerSpectrum(k * real.type(unit), power, counts)


def _multiplicities(plan: Plan) -> tuple[Array | np.ndarray, ...]:
    """The number of modes of each index: 2 if half a spectrum omits one, 0 in the padding."""
    counts = [np.ones(n, np.int32) for n in plan.out_shape]
    for dim, matrix, (j, n) in zip(*plan.transform[:2], harmonics(plan), strict=True):
        if matrix.becomes == "complex":
            counts[dim] += (j > 0) & (2 * j < n)
    return tuple(seen(plan.out_layout, dim, line, plan.mesh) for dim, line in enumerate(counts))


def _edges(bins: Bins, unit: float, largest: float, where: Room) -> np.ndarray:
    """Edges in units of the least wavenumber, as `largest` is."""
    if bins is None:
        if largest >= MOST:
            has = f"the box is so long and thin that it has {largest:.3g} default bins"
            raise ValueError(f"{has}: give bins=, such as 64")
        return np.array([0, *(np.arange(round(largest) + 1) + 0.5)])
    if isinstance(bins, SupportsIndex) and is_integer(bins):
        count = operator.index(bins)
        if count < 1:
            raise ValueError(f"bins is {bins}: give one at least, or their edges")
        check_held(BIN_BYTES * count, f"bins is {bins}, which", "give fewer bins", where)
        return np.linspace(0, largest or 1.0, count + 1)
    given = reals(bins)
    if given is None:
        raise TypeError(f"bins is {bins!r}: give how many, or a sequence of edges, such as (0.0, 1.0, 2.0)")
    edges = np.array(given)
    if len(edges) < 2 or not (np.isfinite(edges).all() and edges[0] >= 0 and (np.diff(edges) > 0).all()):
        raise ValueError(f"bins has the edges {bins}: give two or more, ascending from 0 or above")
    return edges / unit


def _binned(
    plan: Plan, arrays: Sequence[AnyStored], squares: PerDim, weights: PerDim, edges: Array, middles: Array
) -> tuple[Array, Array, Array]:
    product = _product([stored_of(plan(x)) for x in arrays], plan.walk.real)
    sums, roots, counts = binned(product, squares, weights, edges, plan.out_layout, plan.mesh)
    some = jnp.maximum(counts, 1)
    return jnp.where(counts > 0, roots / some, middles), scaled(sums, 1 / some), counts


def _product(spectra: Sequence[Array], half: bool) -> Array:
    """|x|^2, with gradient 0 at 0; or x conj(y), real for half spectra: the omitted modes cancel the imaginary part."""
    if len(spectra) == 1:
        return jnp.square(spectra[0].real) + jnp.square(spectra[0].imag)
    x, y = spectra
    re = x.real * y.real + x.imag * y.imag
    return re if half else lax.complex(re, x.imag * y.real - x.real * y.imag)
