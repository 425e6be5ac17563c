"""Convolutions and correlations of sharded arrays through their spectra.

    periodic:  F^-1 (F a  F b),   F^-1 (F a  conj(F b))

For a linear one both are padded with zeros on the way there, and cropped on the way back. The centre of the result is
reached by a phase in the spectrum, exp(2 pi i j shift / L), so no data moves for it.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ..functions.frequencies import next_fast_len
from ..layout.layout import Spec
from ..layout.padded_array import PaddedArray, mapped, padded, stored_of
from ..layout.storage import cut_replicated
from ..numerics.dtypes import promoted
from ..operators.transform import resolve_once
from ..plans.execute import moved
from ..plans.plan import Plan
from ..plans.request import Setting, read, received
from .fields import check_whole, field, in_form_of, in_one, joined, placed
from .wavenumbers import harmonics, points, stored

MODES = ("wrap", "same")


def convolve(
    a: Any,
    b: Any,
    *,
    axes: Sequence[int] | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    mode: str = "wrap",
) -> Any:
    """The convolution of two sharded arrays, periodic or linear.

        wrap: c[n] = sum_m a[m] b[n - m mod N];   same: c[n] = sum_m a[m] b[n + (M - 1) // 2 - m], zeros around both

    along every axis, for N samples of a and M of b.

    Args:
        a: a sharded, replicated or single-device array, or its planes (re, im).
        b: one of the same shape, sharded alike or not at all; along the axes it may be smaller, and is taken as padded
            with zeros at the tail. A smaller one lies whole on every device, or on one.
        axes: the dimensions to convolve along; None means all. Along all others the lines of a and b go in pairs.
        spec: the PartitionSpec of a (and of b, where that is of its shape), needed only inside `jit` under Auto mesh
            axes, where JAX hides it.
        out_spec: the result's PartitionSpec; None means that of a.
        mode: "wrap" is periodic; "same" linear, its middle as scipy.signal.fftconvolve(mode="same") gives it.

    Returns:
        The convolution, of the shape of a and sharded as a; real where both are real.

    Raises:
        ValueError, TypeError: shapes, shardings, axes, a mode or a spec that do not fit, with what would.

    Costs two transforms and one back, of any order. "same" transforms at least N + M // 2 points along each axis: what
    wraps around falls beside the middle. Differentiable in both.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.convolve(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([1.0, 1.0])).round(4).tolist()
    [5.0, 3.0, 5.0, 7.0]
    """
    return _called(a, b, axes, spec, out_spec, mode, correlates=False)


def correlate(
    a: Any,
    b: Any,
    *,
    axes: Sequence[int] | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    mode: str = "wrap",
) -> Any:
    """The correlation of two sharded arrays, periodic or linear.

        wrap: c[n] = sum_m a[n + m mod N] conj(b[m]);   same: c[n] = sum_m a[n - M // 2 + m] conj(b[m]), zeros around a

    along every axis, for N samples of a and M of b; "same" is as scipy.signal.correlate(mode="same") gives it.
    Arguments, result, errors and cost are those of `convolve`.
    """
    return _called(a, b, axes, spec, out_spec, mode, correlates=True)


def _called(
    a: Any, b: Any, axes: Sequence[int] | None, spec: Spec | None, out_spec: Spec | None, mode: str, correlates: bool
) -> Any:
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is unknown: use 'wrap' or 'same'")
    given = read(a, spec)
    place, first, second = given.setting, joined(given.arrays), joined(received(b))
    check_whole(place.mesh, "convolutions")
    (dims, lengths), cut = resolve_once(first.shape, None, axes), place.start.parts
    _check_sizes(first.shape, second.shape, dims)
    sizes = [second.shape[dim] for dim in dims]
    with jax.numpy_dtype_promotion("standard"):
        dtype = promoted(first.dtype, second.dtype)
    s, middles = None, [0] * len(dims)
    if mode == "same":
        parts = zip(lengths, sizes, dims, strict=True)
        s = [next_fast_len(n + m // 2, True, parts=cut[dim]) for n, m, dim in parts]
        middles = [-(m // 2) if correlates else (m - 1) // 2 for m in sizes]
    array, plan = field(first.astype(dtype), dims, spec, s=s)
    values = (array, _beside(second, place).astype(dtype), _shifts(plan, middles))
    return moved(in_form_of(a, in_one(_correlated if correlates else _convolved, plan, *values)), out_spec, spec)


def _check_sizes(a: tuple[int, ...], b: tuple[int, ...], dims: tuple[int, ...]) -> None:
    if len(a) != len(b):
        raise ValueError(f"a has shape {a}, b {b}: give both as many dimensions")
    for dim, (n, m) in enumerate(zip(a, b, strict=True)):
        if dim in dims:
            if not 1 <= m <= n:
                raise ValueError(f"b has {m} samples along axis {dim}, a {n}: give b at least one and at most as many")
        else:
            if m != n:
                raise ValueError(
                    f"b has {m} samples along axis {dim}, a {n}: give as many where axes= convolves nothing"
                )


def _beside(b: Any, place: Setting) -> Any:
    """The array sharded as a where it has its shape, and whole on every device where it is smaller."""
    start, mesh = place.start, place.mesh
    same, shown = b.shape == start.shape, stored_of(b)
    traced = isinstance(shown, jax.core.Tracer)
    if b is not shown or any(jax.typeof(b).sharding.spec) or not (traced or b.sharding.is_fully_replicated):
        found = read(b).setting.start
        whole = "jax.device_put(b, NamedSharding(mesh, P()))"
        if not same:
            raise ValueError(
                f"b has shape {b.shape}, a {start.shape}, and b is sharded as {found.spec}: give it whole, {whole}"
            )
        if found != start:
            raise ValueError(f"a is sharded as {start.spec}, b as {found.spec}: shard them alike, or give b {whole}")
    elif mesh is not None:
        b = placed(b, mesh, start.spec if same and start.even else PartitionSpec())
    return b


def _shifts(plan: Plan, middles: Sequence[int]) -> tuple[np.ndarray, ...]:
    """The phase along each dimension that brings position `middle` to the front."""
    lines = []
    for dim, matrix, j, middle in zip(*plan.transform[:2], harmonics(plan), middles, strict=True):
        if middle:
            phase = np.exp(2j * np.pi * (j * middle % points(matrix) / points(matrix)))
            lines.append(stored(plan.out_layout, dim, phase).astype(plan.dtype))
    return tuple(lines)


def _convolved(plan: Plan, a: Any, b: Any, shifts: tuple[Array, ...]) -> Any:
    return _product(plan, plan(a), plan(_whole(plan, b)), shifts)


def _correlated(plan: Plan, a: Any, b: Any, shifts: tuple[Array, ...]) -> Any:
    return _product(plan, plan(a), mapped(jnp.conj, plan(_whole(plan, b))), shifts)


def _whole(plan: Plan, b: Any) -> Any:
    """The array of the plan's shape, padded where it is smaller."""
    layout = plan.in_layout
    if isinstance(b, PaddedArray) or (b.shape == plan.shape and layout.even):
        return b
    return padded(cut_replicated(b, layout, plan.mesh), layout, plan.mesh)


def _product(plan: Plan, a: Any, b: Any, shifts: tuple[Array, ...]) -> Any:
    return plan.inverse(mapped(lambda a, b: functools.reduce(operator.mul, shifts, a * b), a, b))
