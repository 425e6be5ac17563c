"""Spectra on finer and coarser grids: padded with zeros between the waves, or without the fastest waves.

    pad:       Y[k] = X[k] for |k| < N / 2, else 0        truncate:   Y[k] = X[k] for |k| < M / 2

along every axis, from N points to M, times M / N, which keeps the amplitudes. The waves of N / 2 and -N / 2 periods are
one on an even grid and two on a finer one: padding splits it in halves, truncating adds them.

Only rows that change devices are sent. In half a spectrum the wave of -M / 2 periods is the conjugate of that of M / 2
at the negative of all other wavenumbers; one more walk, of this plane alone, fetches it.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..functions.calls import Ints
from ..layout.in_flight import in_turn
from ..layout.layout import AnyMesh, Layout
from ..layout.padded_array import AnyArray, Transformed, padded, stored_of
from ..operators.transform import factor, integers, is_integer, resolve_once
from ..plans.execute import moved, walked
from ..plans.request import formed, on_arrays, read
from ..steps import Band, Bands
from ..walks.walk import Walk
from .fields import Where

KINDS = ("fft", "rfft")
EITHER = "kind='fft' if X is a whole spectrum, as fftn makes, or kind='rfft' if it is half of one, as rfftn makes"


@on_arrays
def pad_spectrum(
    X: AnyArray,
    s: Sequence[int],
    *,
    axes: Ints = None,
    kind: str | None = None,
    n: int | None = None,
    norm: str | None = None,
    spec: Where = None,
    out_spec: Where = None,
) -> Transformed:
    """Pads a sharded spectrum to that of the same function on a finer grid,
    from N points to M along each axis.

        Y[k] = M / N X[k] for |k| < N / 2,
               half of that for |k| = N / 2, 0 for all other k

    `mf.irfftn(mf.pad_spectrum(X, s, kind="rfft"), s)` interpolates the
    samples. For a product without aliasing, pad to 3/2 N:

        n, m = coarse[-1], fine[-1]
        u, v = (mf.irfftn(mf.pad_spectrum(X, fine, kind="rfft", n=n), fine)
                for X in (U, V))
        UV = mf.truncate_spectrum(mf.rfftn(u * v), coarse, kind="rfft", n=m)

    Args:
        X: a spectrum in NumPy's order, in any form of array that `fftn` takes.
        s: M along each axis, N or more; -1 for N.
        axes: the transformed dimensions; None means all, or the last len(s).
        kind: required: "fft" for a whole spectrum, "rfft" for half of one
            along the last axis.
        n: N along the last axis of half a spectrum; by default 2 (m - 1) for m
            numbers. An odd N needs it.
        norm: that of your transforms: the factor is M / N for "backward",
            sqrt(M / N) for "ortho", 1 for "forward".
        spec, out_spec: as `fftn`.

    Returns:
        The spectrum, M // 2 + 1 numbers along a halved axis, cut by the same
        mesh axes; a PaddedArray if these do not divide it.

    Raises:
        ValueError, TypeError: an argument that is missing or does not fit.

    Sends about a block per device for each sharded dimension. Differentiable;
    its transpose is `truncate_spectrum` times a number, except for the waves of
    N / 2 periods.

    >>> X = jnp.array([4.0, 1.0, 2.0, 1.0])
    >>> mf.pad_spectrum(X, (8,), kind="fft").tolist()
    [8.0, 2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 2.0]
    """
    return _resampled(X, s, axes, kind, n, norm, spec, out_spec, pads=True)


@on_arrays
def truncate_spectrum(
    X: AnyArray,
    s: Sequence[int],
    *,
    axes: Ints = None,
    kind: str | None = None,
    n: int | None = None,
    norm: str | None = None,
    spec: Where = None,
    out_spec: Where = None,
) -> Transformed:
    """Truncates a sharded spectrum to the waves that a coarser grid resolves,
    from N points to M along each axis.

        Y[k] = M / N X[k] for |k| < M / 2,
               M / N (X[M / 2] + X[-M / 2]) for k = M / 2

    It undoes `pad_spectrum`, with the same arguments, result, errors and cost;
    M is at most N. With kind="rfft", `axes` must have every transformed
    dimension, with -1 in `s` for those that stay.

    >>> X = jnp.array([8.0, 2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 2.0])
    >>> mf.truncate_spectrum(X, (4,), kind="fft").tolist()
    [4.0, 1.0, 2.0, 1.0]
    """
    return _resampled(X, s, axes, kind, n, norm, spec, out_spec, pads=False)


class Change(NamedTuple):
    """`half` if the dimension holds half a spectrum."""

    dim: int
    old: int
    new: int
    half: bool


def _resampled(
    X: AnyArray,
    s: Sequence[int],
    axes: Ints,
    kind: str | None,
    n: int | None,
    norm: str | None,
    spec: Where,
    out_spec: Where,
    pads: bool,
) -> Transformed:
    if kind is None:
        raise TypeError(f"kind is missing: give {EITHER}")
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is unknown: give {EITHER}")
    arrays, setting, _ = read(X, spec)
    start, mesh = setting.start, setting.mesh
    if is_integer(s) and axes is None and start.ndim > 1:
        raise ValueError(f"s is {s} for {start.ndim} dimensions: give the points along each, or name one in axes")
    given, half = integers(s, "s"), kind == "rfft"
    dims, sizes = resolve_once(start.shape, given, axes)
    points = _points(start, dims, half, n)
    sizes = tuple(old if new == -1 else size for old, new, size in zip(points, given, sizes, strict=True))
    halved = [half and dim == dims[-1] for dim in dims]
    changes = [one for one in map(Change, dims, points, sizes, halved) if one.new != one.old]
    _check_sizes(changes, pads)
    before, after = math.prod(one.old for one in changes), math.prod(one.new for one in changes)
    scale = after * factor(after, norm, False) / (before * factor(before, norm, False))
    walk, last = Walk(start, _steps(start, changes), scale), changes[-1:]
    mirror = _mirror(walk.end, dims) if not pads and any(one.half and one.new % 2 == 0 for one in last) else None
    results = in_turn(_run, tuple(map(stored_of, arrays)), walk, mirror, mesh, len(arrays) == 2)
    return moved(formed(tuple(padded(y, walk.end, mesh, arrays[0]) for y in results)), out_spec, spec)


def _points(start: Layout, dims: tuple[int, ...], half: bool, n: int | None) -> tuple[int, ...]:
    points = [start.shape[dim] for dim in dims]
    if not half and n is not None:
        raise ValueError(f"n is {n}: give it only with kind='rfft', for half a spectrum")
    if not half:
        return tuple(points)
    if not dims:
        raise ValueError("axes is empty: half a spectrum has one axis at least")
    m = points.pop()
    if m == 0:
        raise ValueError(f"axis {dims[-1]} has no numbers, and half a spectrum has one at least: give one or more")
    n = 2 * (m - 1) if n is None else n
    if n < 1 or n // 2 + 1 != m:
        raise ValueError(f"n is {n}, but {m} numbers are half a spectrum of {2 * m - 2} or {2 * m - 1} points")
    return (*points, n)


def _check_sizes(changes: Sequence[Change], pads: bool) -> None:
    for dim, old, new, _ in changes:
        if (new < old) == pads:
            other = "truncate_spectrum" if pads else "pad_spectrum"
            raise ValueError(f"s is {new} along axis {dim}, where the spectrum stands for {old} points: use {other}")
    for dim, old, new, _ in changes:
        if old == 0:
            raise ValueError(f"s is {new} along axis {dim}, where the spectrum has no numbers: give s=-1, or numbers")


def _steps(start: Layout, changes: Sequence[Change]) -> tuple[Bands, ...]:
    """Bands along each axis, ordered so that no step sends rows that another drops or adds."""
    steps = []
    for dim, old, new, half in changes:
        size = new // 2 + 1 if half else new
        steps.append(Bands(dim, size, start.resize(dim, size).cuts[dim], bands_of(old, new, half)))
    shrinks = any(one.new < one.old for one in changes)
    return tuple(sorted(steps, key=lambda step: (start.parts[step.dim] > 1) == shrinks))


def bands_of(old: int, new: int, half: bool) -> tuple[Band, ...]:
    """The waves that two grids share along a dimension, nonnegative ones first.

    The last band, at half of an even number of points, is split in two or added.
    """
    few, many = min(old, new), max(old, new)
    above, below = (few + 1) // 2, 0 if half else (few - 1) // 2
    bands = [Band(0, 0, above), Band(few - below, many - below, below)]
    if few % 2 == 0:
        weight = 0.5 if new > old else 1.0
        bands += [Band(few // 2, few // 2, 1, weight)] + [Band(few // 2, many - few // 2, 1, weight)] * (not half)
    return tuple(band if new > old else band.transpose() for band in bands if band.rows)


def _mirror(end: Layout, dims: tuple[int, ...]) -> tuple[Walk, Walk]:
    """Walks that fetch and add the missing wave of -M / 2 periods."""
    *others, dim = dims
    size = end.shape[dim]
    last, plane = Band(size - 1, 0, 1), end.resize(dim, 1)
    there = Walk(end, (Bands(dim, 1, plane.cuts[dim], (last,)), *(_negative(plane, d) for d in others)))
    return there, Walk(plane, (Bands(dim, size, end.cuts[dim], (last.transpose(),)),))


def _negative(layout: Layout, dim: int) -> Bands:
    n = layout.shape[dim]
    bands = (Band(0, 0, 1), Band(1, 1, n - 1, reverse=True))
    return Bands(dim, n, layout.cuts[dim], tuple(band for band in bands if band.rows))


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _run(
    arrays: tuple[Array, ...], walk: Walk, mirror: tuple[Walk, Walk] | None, mesh: AnyMesh | None, planes: bool
) -> tuple[Array, ...]:
    resampled = walked(arrays, walk, mesh, planes) if walk.steps else arrays
    if mirror is None:
        return resampled
    there, back = mirror
    plane = walked(resampled, there, mesh, planes)
    plane = (plane[0], -plane[1]) if planes else tuple(map(jnp.conj, plane))
    return tuple(map(jnp.add, resampled, walked(plane, back, mesh, planes)))
