"""Convolutions and correlations of sharded arrays through their spectra.

    periodic:  F^-1 (F a  F b),   F^-1 (F a  conj(F b))

Linear ones zero-pad both before the transform, and crop the result. A phase in the spectrum, exp(2 pi i j shift / L),
moves its first sample to the front, so no data moves.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..functions.calls import Ints
from ..functions.helpers import next_fast_len
from ..layout.padded_array import AnyArray, AnyStored, Transformed, mapped
from ..numerics.dtypes import promoted
from ..numerics.phases import host_roots
from ..operators.transform import resolve_once
from ..plans.options import FieldHow, options_of, spelled
from ..plans.plan import Plan
from ..plans.request import on_two_arrays, read, received
from .fields import PROGRAMS, check_all_mapped, field, harmonics, in_one, joined, returned, seen
from .operand import Walks, place_of, spectrum, spread, walks_of

MODES = ("wrap", "same", "causal", "full", "valid")


class Extent(NamedTuple):
    """Along an axis: points of the transform, used samples of b, and the returned part."""

    points: int
    used: int
    first: int
    size: int


@on_two_arrays
@spelled
def convolve(
    a: AnyArray, b: AnyArray, *, axes: Ints = None, mode: str = "wrap", **how: Unpack[FieldHow]
) -> Transformed:
    """The convolution of two sharded arrays, periodic or linear.

        wrap:   c[n] = sum_m a[m] b[n - m mod N]
        full:   c[n] = sum_m a[m] b[n - m], 0 <= n < N + M - 1
        causal: the first N of these; elements of b from N on have no effect
        same:   N of these from (M - 1) // 2 on
        valid:  those for which the shorter array is within the longer one

    along every axis, for N samples of a and M of b; "full", "same" and "valid"
    are as in scipy.signal.fftconvolve.

    Args:
        a: a sharded, replicated or single-device array, or its parts (re, im).
        b: the other array. It broadcasts to `a` by NumPy's rules, except along
            the axes, where it may be shorter, or longer unless mode is "wrap".
            It is on one device, replicated, or sharded as `a`; inside a
            `shard_map` with `spec=` it is a block or the whole array.
        axes: the dimensions to convolve along; None means all.
        mode: "wrap", "causal", "full", "same" or "valid".
        method, ..., out_spec: as `multiply_spectrum`; spec of `a`, and of `b`
            if sharded.

    Returns:
        The convolution, sharded as `a`; real if both are, float32 for 16-bit
        floats. "full" and "valid" give a PaddedArray if the mesh does not
        divide their sizes.

    Raises:
        ValueError, TypeError: an argument that does not fit.

    Costs two transforms and an inverse of N to N + M points. A replicated `b`
    is not sent if the spectrum of `a` is uncut along `axes`.
    Differentiable in both.

    >>> x = jnp.array([1.0, 2.0, 3.0, 4.0])
    >>> mf.convolve(x, jnp.array([1.0, 1.0])).round(4).tolist()
    [5.0, 3.0, 5.0, 7.0]
    >>> mf.convolve(x, jnp.array([1.0, 1.0]), mode="causal").round(4).tolist()
    [1.0, 3.0, 5.0, 7.0]
    """
    return _called(a, b, axes, mode, how, conj=False)


@on_two_arrays
@spelled
def correlate(
    a: AnyArray, b: AnyArray, *, axes: Ints = None, mode: str = "wrap", **how: Unpack[FieldHow]
) -> Transformed:
    """The correlation of two sharded arrays, periodic or linear.

        wrap: c[n] = sum_m a[n + m mod N] conj(b[m])
        same: c[n] = sum_m a[n - M // 2 + m] conj(b[m]), zeros around a

    along every axis, for N samples of a and M of b; "same" is that of
    scipy.signal.correlate. `mode` has no other values. All other arguments,
    result, errors and cost are those of `convolve`.

    >>> x = jnp.array([1.0, 2.0, 3.0, 4.0])
    >>> mf.correlate(x, jnp.array([1.0, 1.0])).round(4).tolist()
    [3.0, 5.0, 7.0, 5.0]
    """
    return _called(a, b, axes, mode, how, conj=True)


def _called(a: AnyArray, b: AnyArray, axes: Ints, mode: str, how: FieldHow, conj: bool) -> Transformed:
    options, spec = options_of(how, FieldHow), how.get("spec")
    known = MODES[:2] if conj else MODES
    if mode not in known:
        raise ValueError(f"mode {mode!r} is unknown: use {', '.join(map(repr, known[:-1]))} or {known[-1]!r}")
    arrays, setting, _ = read(a, spec)
    first, second = joined(arrays), joined(received(b))
    start = setting.start
    check_all_mapped(setting.mesh, start, "convolutions")
    dims, lengths = resolve_once(start.shape, None, axes)
    place, shape = place_of(second, first, dims, setting)
    dtype = promoted(first.dtype, second.dtype)
    lacking = start.ndim - len(shape)
    extents = {d: _extent(mode, d, n, shape[d - lacking], start.parts[d]) for d, n in zip(dims, lengths, strict=True)}
    array, plan = field(first.astype(dtype), dims, options, spec, s=[extents[d].points for d in dims])
    used = tuple(extents[d].used if d in extents else start.shape[d] for d in place.kept)
    size = tuple(extents[d].size if d in extents else n for d, n in enumerate(start.shape))
    walks = walks_of(plan, place, used, size)
    firsts = [extents[d].first - (extents[d].used - 1 if conj and mode != "wrap" else 0) for d in dims]
    values = (array, spread(second, walks).astype(dtype), _shifts(walks.a, firsts))
    return returned(in_one(_product(walks, conj), walks.a, *values), a, options, spec)


def _extent(mode: str, dim: int, n: int, m: int, parts: int) -> Extent:
    """For n samples of a and m of b; what wraps around is not returned."""
    if mode == "wrap":
        if m > n:
            raise ValueError(f"b has {m} samples along axis {dim}, a {n}: give b at most as many, or a linear mode")
        return Extent(n, m, 0, n)
    used = min(n, m) if mode == "causal" else m
    whole, least = n + used - 1, min(n, m)
    parts_of = {
        "same": ((m - 1) // 2, n),
        "causal": (0, n),
        "full": (0, whole),
        "valid": (least - 1, whole + 2 - 2 * least),
    }
    first, size = parts_of[mode]
    return Extent(next_fast_len(max(first + size, whole - first, n, used), True, parts=parts), used, first, size)


def _shifts(plan: Plan, firsts: Sequence[int]) -> tuple[Array | np.ndarray, ...]:
    phases = []
    for dim, (j, n), first in zip(plan.transform.dims, harmonics(plan), firsts, strict=True):
        if first:
            phase = host_roots(j * first, n, 1)
            phases.append(seen(plan.out_layout, dim, phase.astype(plan.dtype), plan.mesh))
    return tuple(phases)


@functools.lru_cache(maxsize=PROGRAMS)
def _product(walks: Walks, conj: bool) -> Callable[..., AnyStored]:
    def work(plan: Plan, a: AnyStored, b: AnyStored, shifts: tuple[Array, ...]) -> AnyStored:
        times = spectrum(walks, b, a)
        times = jnp.conj(times) if conj else times
        return walks.c.inverse(mapped(lambda x: functools.reduce(operator.mul, shifts, x * times), plan(a)))

    return work
