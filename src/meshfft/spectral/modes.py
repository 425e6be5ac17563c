"""Spectra on finer and coarser grids: the same waves with zeros between them, or without the fastest ones.

    pad:       Y[k] = X[k] for |k| < N / 2, else 0        truncate:   Y[k] = X[k] for |k| < M / 2

along every axis, from N points to M; multiplied by M / N, so that the wave keeps its size. The waves of N / 2 and
-N / 2 periods are one on an even grid and two on a finer one: padding gives each a half, truncating adds them.

A walk of bands: only rows that change devices are sent. In half a spectrum the wave of -M / 2 periods is the conjugate
of that of M / 2 with all other wavenumbers negative, which one more walk brings: of this one plane alone.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..layout.layout import AnyMesh, Layout, Spec
from ..layout.padded_array import AnyArray, padded, stored_of
from ..operators.transform import factor, integers, resolve_once
from ..plans.execute import moved, walked
from ..plans.request import formed, read
from ..steps import Band, Bands
from ..walks.walk import Walk

KINDS = ("fft", "rfft")


class Mirror(NamedTuple):
    """The way of a plane of half a spectrum to the negative wavenumbers, and back to its place."""

    there: Walk
    back: Walk


def pad_spectrum(
    X: AnyArray,
    s: Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    kind: str = "fft",
    n: int | None = None,
    norm: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """The spectrum on a finer grid of the function that a sharded spectrum stands for.

        Y[k] = M / N X[k] for |k| < N / 2,   half of that for |k| = N / 2,   0 for all other k

    along each axis of N points, M after. `mf.irfftn(mf.pad_spectrum(X, s, kind="rfft"), s)` has the values between the
    samples. For a product without aliasing pad the spectra to 3/2 N, multiply there, and truncate (the 3/2 rule):

        u, v = (mf.irfftn(mf.pad_spectrum(X, fine, kind="rfft"), fine) for X in (U, V))
        UV = mf.truncate_spectrum(mf.rfftn(u * v), coarse, kind="rfft")

    Args:
        X: a sharded, replicated or single-device spectrum in NumPy's order, or its planes (re, im).
        s: the points of the finer grid along each axis, at least as many as X stands for; -1 for as many.
        axes: the dimensions that were transformed; None means all, or the last len(s).
        kind: "fft", or "rfft" where X is half a spectrum, along the last axis.
        n: with "rfft" the points that half a spectrum stands for; by default 2 (m - 1) of m numbers, as `irfftn`.
        norm: as the transforms around it: the factor M / N is of None or "backward", sqrt(M / N) of "ortho", and with
            "forward" there is none.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        out_spec: the result's PartitionSpec; None means that the same mesh axes cut it.

    Returns:
        The spectrum with s points along the axes, or s // 2 + 1 along a halved one, of the same type and cut by the
        same mesh axes; a PaddedArray where these do not divide it.

    Raises:
        ValueError, TypeError: s, axes, n, a kind, a norm or a spec that does not fit, with what would.

    Sends about a block per device for each dimension that is cut, in a few permutes, and nothing for those that are
    whole: no gather. Differentiable; its transpose is `truncate_spectrum`, but for the waves of N / 2 periods.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.pad_spectrum(jnp.array([4.0, 1.0, 2.0, 1.0]), (8,)).tolist()
    [8.0, 2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 2.0]
    """
    return moved(_called(X, s, axes, kind, n, norm, spec, True), out_spec, spec)


def truncate_spectrum(
    X: AnyArray,
    s: Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    kind: str = "fft",
    n: int | None = None,
    norm: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """The spectrum on a coarser grid: what it has of waves that the grid resolves.

        Y[k] = M / N X[k] for |k| < M / 2,   M / N (X[M / 2] + X[-M / 2]) for k = M / 2

    along each axis of N points, M after. Of what `pad_spectrum` made it makes what was there. Arguments, result, errors
    and cost are those of `pad_spectrum`, but that s has at most as many points as X stands for. With "rfft" name in
    `axes` every dimension that was transformed, -1 in `s` where it stays: X[-M / 2] is the conjugate of X[M / 2] at the
    negative of all other wavenumbers.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.truncate_spectrum(jnp.array([8.0, 2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 2.0]), (4,)).tolist()
    [4.0, 1.0, 2.0, 1.0]
    """
    return moved(_called(X, s, axes, kind, n, norm, spec, False), out_spec, spec)


def _called(
    X: Any, s: Any, axes: Any, kind: str, n: int | None, norm: str | None, spec: Spec | None, pads: bool
) -> Any:
    arrays, setting, _ = read(X, spec)
    start, mesh = setting.start, setting.mesh
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is unknown: use 'fft', or 'rfft' for half a spectrum")
    given = integers(s, "s")
    dims, sizes = resolve_once(start.shape, given, axes)
    points = _points(start, dims, kind, n)
    sizes = tuple(old if new == -1 else size for old, new, size in zip(points, given, sizes, strict=True))
    for dim, old, new in zip(dims, points, sizes, strict=True):
        fits, other = (new >= old, "truncate_spectrum") if pads else (new <= old, "pad_spectrum")
        if not fits:
            raise ValueError(f"s is {new} along axis {dim}, where the spectrum stands for {old} points: use {other}")
    before, after = math.prod(points), math.prod(sizes)
    scale = after * factor(after, norm, False) / (before * factor(before, norm, False))
    walk = Walk(start, _steps(start, dims, points, sizes, kind), scale)
    mirror = None if pads or kind == "fft" else _mirror(walk.end, dims, points[-1], sizes[-1])
    found = _program(tuple(map(stored_of, arrays)), walk, mirror, mesh, len(arrays) == 2)
    return formed(tuple(padded(y, walk.end, mesh, arrays[0]) for y in found))


def _points(start: Layout, dims: tuple[int, ...], kind: str, n: int | None) -> tuple[int, ...]:
    """How many points the spectrum stands for along each axis."""
    points = [start.shape[dim] for dim in dims]
    if kind != "rfft" and n is not None:
        raise ValueError(f"n is {n}: give it only with kind='rfft', for half a spectrum")
    if kind == "rfft":
        if not dims:
            raise ValueError("axes is empty: half a spectrum has one axis at least")
        half, points[-1] = points[-1], 2 * (points[-1] - 1) if n is None else n
        if not points[-1] >= 1 or points[-1] // 2 + 1 != half:
            raise ValueError(
                f"n is {points[-1]}, but {half} numbers are half a spectrum of {2 * half - 2} or {2 * half - 1} points"
            )
    return tuple(points)


def _steps(
    start: Layout, dims: tuple[int, ...], points: tuple[int, ...], sizes: tuple[int, ...], kind: str
) -> tuple[Bands, ...]:
    """Bands along each axis that changes; nothing is sent that another step will drop, or has made of zeros."""
    steps = []
    for place, (dim, old, new) in enumerate(zip(dims, points, sizes, strict=True)):
        half = kind == "rfft" and place == len(dims) - 1
        if new != old:
            size = new // 2 + 1 if half else new
            steps.append(Bands(dim, size, start.resize(dim, size).cuts[dim], bands_of(old, new, half)))
    shrinks = sum(sizes) < sum(points)
    return tuple(sorted(steps, key=lambda step: (start.parts[step.dim] > 1) == shrinks))


def bands_of(old: int, new: int, half: bool) -> tuple[Band, ...]:
    """The waves that two grids share along one dimension: those of no and positive wavenumbers, then the negative ones.

    The last of them, at half of an even number of points, comes apart or together.
    """
    few, many = min(old, new), max(old, new)
    above, below = (few + 1) // 2, 0 if half else (few - 1) // 2
    bands = [Band(0, 0, above), Band(few - below, many - below, below)]
    if few % 2 == 0:
        weight = 0.5 if new > old else 1.0
        bands += [Band(few // 2, few // 2, 1, weight)] + [Band(few // 2, many - few // 2, 1, weight)] * (not half)
    return tuple(band if new > old else band.transpose() for band in bands if band.rows)


def _mirror(end: Layout, dims: tuple[int, ...], old: int, new: int) -> Mirror | None:
    """What a truncated half spectrum lacks: the wave of -new / 2 periods, where new is even."""
    if new == old or new % 2:
        return None
    *others, dim = dims
    at, plane = Band(new // 2, 0, 1), end.resize(dim, 1)
    taken = Walk(end, (Bands(dim, 1, plane.cuts[dim], (at,)), *(_negative(plane, d) for d in others)))
    return Mirror(taken, Walk(plane, (Bands(dim, end.shape[dim], end.cuts[dim], (at.transpose(),)),)))


def _negative(layout: Layout, dim: int) -> Bands:
    """y[k] = x[-k mod n]."""
    n = layout.shape[dim]
    bands = (Band(0, 0, 1), Band(1, 1, n - 1, reverse=True))
    return Bands(dim, n, layout.cuts[dim], tuple(band for band in bands if band.rows))


def _run(arrays: tuple[Array, ...], walk: Walk, mirror: Mirror | None, mesh: AnyMesh | None, planes: bool) -> Any:
    found = walked(arrays, walk, mesh, planes) if walk.steps else arrays
    if mirror is None:
        return found
    plane = walked(found, mirror.there, mesh, planes)
    plane = (plane[0], -plane[1]) if planes else tuple(map(jnp.conj, plane))
    return tuple(map(jnp.add, found, walked(plane, mirror.back, mesh, planes)))


_program = jax.jit(_run, static_argnums=(1, 2, 3, 4))
