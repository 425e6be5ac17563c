"""Convolutions and correlations of sharded arrays through their spectra.

    periodic:  F^-1 (F a  F b),   F^-1 (F a  conj(F b))

Linear ones zero-pad both before the transform, and crop the result. A phase in the spectrum, exp(2 pi i j shift / L),
centres the result, so no data moves for it.
"""

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from ..functions.calls import Ints
from ..functions.helpers import next_fast_len
from ..layout.layout import mapped_axes
from ..layout.padded_array import AnyArray, AnyStored, PaddedArray, Transformed, mapped, padded, stored_of
from ..layout.placement import explicit_axes, varies_over
from ..layout.storage import cut_replicated
from ..numerics.dtypes import promoted
from ..numerics.phases import host_roots
from ..operators.transform import resolve_once
from ..plans.plan import Plan
from ..plans.request import Setting, on_two_arrays, read, received
from .fields import Where, back, check_all_mapped, field, harmonics, in_one, joined, placed, returned, seen

MODES = ("wrap", "same")


@on_two_arrays
def convolve(
    a: AnyArray, b: AnyArray, *, axes: Ints = None, spec: Where = None, out_spec: Where = None, mode: str = "wrap"
) -> Transformed:
    """The convolution of two sharded arrays, periodic or linear.

        wrap: c[n] = sum_m a[m] b[n - m mod N]
        same: c[n] = sum_m a[m] b[n + (M - 1) // 2 - m], zeros around both

    along every axis, for N samples of a and M of b.

    Args:
        a: a sharded, replicated or single-device array, or its real and
            imaginary part (re, im).
        b: one of the same shape, sharded alike or not at all. Along the axes
            it may be smaller, as if padded with zeros at the tail; then it has
            to be on every device, or on one. Inside a `shard_map` with `spec=`
            it is a block of a's shape, or the whole smaller array.
        axes: the dimensions to convolve along; None means all. Along all
            others the lines of a and b go in pairs.
        spec, out_spec: as `fftn`; spec of a, and of b if that is of its shape.
        mode: "wrap" is periodic; "same" linear, its middle as
            scipy.signal.fftconvolve(mode="same") gives it.

    Returns:
        The convolution, of the shape of a and sharded as a; real if both are.

    Raises:
        ValueError, TypeError: an argument that does not fit, with what would.

    Costs two transforms and one back, of any order. "same" transforms at least
    N + M // 2 points along each axis: what wraps around falls beside the
    middle. Differentiable in both.

    >>> x = jnp.array([1.0, 2.0, 3.0, 4.0])
    >>> mf.convolve(x, jnp.array([1.0, 1.0])).round(4).tolist()
    [5.0, 3.0, 5.0, 7.0]
    """
    return _called(a, b, axes, spec, out_spec, mode, conj=False)


@on_two_arrays
def correlate(
    a: AnyArray, b: AnyArray, *, axes: Ints = None, spec: Where = None, out_spec: Where = None, mode: str = "wrap"
) -> Transformed:
    """The correlation of two sharded arrays, periodic or linear.

        wrap: c[n] = sum_m a[n + m mod N] conj(b[m])
        same: c[n] = sum_m a[n - M // 2 + m] conj(b[m]), zeros around a

    along every axis, for N samples of a and M of b; "same" is as
    scipy.signal.correlate(mode="same") gives it. Arguments, result, errors and
    cost are those of `convolve`.

    >>> x = jnp.array([1.0, 2.0, 3.0, 4.0])
    >>> mf.correlate(x, jnp.array([1.0, 1.0])).round(4).tolist()
    [3.0, 5.0, 7.0, 5.0]
    """
    return _called(a, b, axes, spec, out_spec, mode, conj=True)


def _called(a: AnyArray, b: AnyArray, axes: Ints, spec: Where, out_spec: Where, mode: str, conj: bool) -> Transformed:
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is unknown: use 'wrap' or 'same'")
    arrays, setting, _ = read(a, spec)
    first, second = joined(arrays), joined(received(b))
    start = setting.start
    check_all_mapped(setting.mesh, start, "convolutions")
    dims, lengths = resolve_once(start.shape, None, axes)
    shape = start.shape if _is_block(second, first, setting) else second.shape
    _check_sizes(start.shape, shape, dims)
    with jax.numpy_dtype_promotion("standard"):
        dtype = promoted(first.dtype, second.dtype)
    s, middles = None, [0] * len(dims)
    if mode == "same":
        parts, sizes = [start.parts[dim] for dim in dims], [shape[dim] for dim in dims]
        s = [next_fast_len(n + m // 2, True, parts=p) for n, m, p in zip(lengths, sizes, parts, strict=True)]
        middles = [-(m // 2) if conj else (m - 1) // 2 for m in sizes]
    array, plan = field(first.astype(dtype), dims, spec, s=s)
    values = (array, _beside(second, setting).astype(dtype), _shifts(plan, middles))
    return returned(in_one(_correlated if conj else _convolved, plan, *values), a, out_spec, spec)


def _check_sizes(a: tuple[int, ...], b: tuple[int, ...], dims: tuple[int, ...]) -> None:
    if len(a) != len(b):
        raise ValueError(f"a has shape {a}, b {b}: give both as many dimensions")
    for dim, (n, m) in enumerate(zip(a, b, strict=True)):
        differ = f"b has {m} samples along axis {dim}, a {n}"
        if dim in dims and not 1 <= m <= n:
            raise ValueError(f"{differ}: give b at least one and at most as many")
        if dim not in dims and m != n:
            raise ValueError(f"{differ}: give as many where axes= convolves nothing")


def _is_block(b: AnyStored, a: AnyStored, setting: Setting) -> bool:
    """Whether b is a block of a caller's shard_map, as a is; a smaller b is the same on every device."""
    mapped = mapped_axes(setting.mesh) & setting.start.mesh_axes
    if not mapped or isinstance(b, PaddedArray):
        return False
    block = not isinstance(a, PaddedArray) and b.shape == a.shape
    known = mapped & varies_over(stored_of(a))
    missing, differs = sorted(known - varies_over(b)), sorted(mapped & varies_over(b))
    if block and missing:
        raise ValueError(
            f"b has the shape of a's block, {b.shape}, and is the same over {', '.join(missing)}: if it is a block, "
            f"give jax.lax.pcast(b, {tuple(missing)}, to='varying'), else pad it with zeros at its tail"
        )
    if not block and differs:
        raise ValueError(
            f"b has shape {b.shape}, a's block {stored_of(a).shape}, and b differs over {', '.join(differs)}: give a "
            "block of that shape, or the whole b on every device"
        )
    return block


def _beside(b: AnyStored, setting: Setting) -> AnyStored:
    """b sharded as a if it has its shape, else replicated."""
    start, mesh = setting.start, setting.mesh
    same, stored = b.shape == start.shape, stored_of(b)
    known = not isinstance(stored, jax.core.Tracer)
    nowhere = known and jax.sharding.get_abstract_mesh().empty  # as under Auto axes, XLA places b where it is used
    if b is not stored or any(jax.typeof(b).sharding.spec) or (known and not b.sharding.is_fully_replicated):
        layout, replicated = read(b).setting.start, "jax.device_put(b, NamedSharding(mesh, P()))"
        if not same:
            shapes = f"b has shape {b.shape}, a {start.shape}"
            raise ValueError(f"{shapes}, and b is sharded as {layout.spec}: give it to every device, {replicated}")
        if layout != start:
            specs = f"a is sharded as {start.spec}, b as {layout.spec}"
            raise ValueError(f"{specs}: shard them alike, or give b to every device, {replicated}")
    elif isinstance(mesh, Mesh) or (mesh is not None and explicit_axes(mesh) and not (mapped_axes(mesh) or nowhere)):
        return placed(stored_of(b), mesh, start.spec if same and start.even else PartitionSpec())
    return b


def _shifts(plan: Plan, middles: Sequence[int]) -> tuple[Array | np.ndarray, ...]:
    """The phase along each dimension that moves position `middle` to the front."""
    phases = []
    for dim, (j, n), middle in zip(plan.transform.dims, harmonics(plan), middles, strict=True):
        if middle:
            phase = host_roots(j * middle, n, 1)
            phases.append(seen(plan.out_layout, dim, phase.astype(plan.dtype), plan.mesh))
    return tuple(phases)


def _convolved(plan: Plan, a: AnyStored, b: AnyStored, shifts: tuple[Array, ...]) -> AnyStored:
    return _product(plan, plan(a), plan(_padded(plan, b, a)), shifts)


def _correlated(plan: Plan, a: AnyStored, b: AnyStored, shifts: tuple[Array, ...]) -> AnyStored:
    return _product(plan, plan(a), mapped(jnp.conj, plan(_padded(plan, b, a))), shifts)


def _padded(plan: Plan, b: AnyStored, a: AnyStored) -> AnyStored:
    layout = plan.in_layout
    manual = mapped_axes(plan.mesh)
    if isinstance(b, PaddedArray):
        return b
    known = plan.mesh is None or manual or not jax.typeof(b).sharding.mesh.empty
    if manual and isinstance(a, PaddedArray):  # beside one, b is whole, even if it is as large as a block
        known = False
    if known and layout.even and b.shape == layout.within(manual):
        return padded(b, layout, plan.mesh, a)
    return padded(cut_replicated(b, layout, plan.mesh), layout, plan.mesh, a)


def _product(plan: Plan, a: AnyStored, b: AnyStored, shifts: tuple[Array, ...]) -> AnyStored:
    return back(plan, lambda a, b: functools.reduce(operator.mul, shifts, a * b), a, b)
