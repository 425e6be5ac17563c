"""Wavenumbers: what each place of a spectrum stands for, sharded as the spectrum is.

    k_j = 2 pi j / length,   j = 0, 1, ..., -2, -1 in FFT order; along a halved dimension j = 0 ... N // 2

At N / 2 periods, the Nyquist frequency of an even N, +k and -k are the same wave: what is odd in k has to be 0 there.
Numbers are made in float64 on the host and rounded once. Invariant: where storage is padded they are 0.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from ..layout.layout import Layout, axis_sizes, from_spec, mapped_axes
from ..layout.memory import check_held
from ..layout.padded_array import PaddedArray
from ..layout.placement import mesh_here, own
from ..layout.storage import stored_on
from ..numerics.dtypes import real_dtype
from ..operators.matrices import HalfRoots, Matrix, Roots
from ..operators.transform import reals
from ..plans.plan import Plan


def wavenumbers(plan: Plan, lengths: Sequence[float] | None = None, *, odd: bool = False) -> tuple[Any, ...]:
    """The angular wavenumbers of a plan's spectrum, one array for each transformed dimension, to multiply it by.

        k_j = 2 pi j / length,   j = 0, 1, ..., -2, -1 in FFT order; along the halved dimension of "rfft" 0 ... N // 2

    Args:
        plan: a forward plan of uniform samples, of any order and of kind "fft", "rfft" or "hfft".
        lengths: the period along each axis of the plan; None means as many as there are points, which are 1 apart.
        odd: 0 at the Nyquist frequency, that of N / 2 periods, which an even N has. Use these k in odd functions such
            as 1j * k, and plain ones in even functions such as k**2. The grid cannot tell the waves of N / 2 and -N / 2
            periods apart, so an odd function has no value there: with the plain k, 1j * k makes a spectrum that is of
            no real array, and derivatives of white noise through "rfft" and "fft" differ by about sqrt(3 / N), several
            per cent. So it is with NumPy's fftfreq. `derivative` uses these for odd orders.

    Returns:
        Arrays in the order of the plan's axes, 1 long along all dimensions but their own, so that they broadcast
        against the plan's result; cut as it is, and PaddedArrays where it is one. Of the real type the plan computes
        in. Where the plan's mesh is only described, as inside `jit`, they are whole on every device, and JAX cuts them
        where they meet the spectrum.

    Raises:
        ValueError: the plan is of an inverse transform, at points or a cosine one; or lengths that do not fit.
        TypeError: lengths that are no numbers.

    Costs nothing on the devices: each number is computed once on the host, shard by shard.

    >>> import meshfft as mf
    >>> plan = mf.plan((2, 4), kind="rfft")
    >>> [k.tolist() for k in mf.wavenumbers(plan, (6.283185307179586,) * 2)]
    [[[0.0], [-1.0]], [[0.0, 1.0, 2.0]]]
    >>> [k.tolist() for k in mf.wavenumbers(plan, (6.283185307179586,) * 2, odd=True)]
    [[[0.0], [0.0]], [[0.0, 1.0, 0.0]]]
    """
    lines = in_radians(plan, lengths, [odd] * len(plan.transform.dims))
    made = zip(plan.transform.dims, lines, strict=True)
    return tuple(_on_mesh(line, real_dtype(plan.dtype), plan, dim) for dim, line in made)


def in_radians(plan: Plan, lengths: Any, odd: Sequence[bool]) -> list[np.ndarray]:
    """The wavenumbers along each transformed dimension in float64, 0 at the Nyquist frequency where they are `odd`.

    Raises:
        ValueError, TypeError: as `wavenumbers`.
    """
    lines, parts = [], zip(plan.transform.matrices, harmonics(plan), periods(plan, lengths), odd, strict=True)
    for matrix, j, period, zero in parts:
        lines.append(2 * np.pi * np.where(zero & (2 * abs(j) == points(matrix)), 0, j) / period)
    return lines


def harmonics(plan: Plan) -> tuple[np.ndarray, ...]:
    """How many periods each place of the spectrum stands for, along each transformed dimension.

    Raises:
        ValueError: the plan is of an inverse transform, or has no wavenumbers.
    """
    return tuple(_harmonics(matrix) for matrix in plan.transform.matrices)


def multiplicities(plan: Plan) -> tuple[np.ndarray, ...]:
    """How many modes each place of every stored dimension stands for: 2 where half a spectrum is left out, 0 in the
    padding."""
    layout, counts = plan.out_layout, [np.ones(n, np.int32) for n in plan.out_shape]
    for dim, matrix in zip(plan.transform.dims, plan.transform.matrices, strict=True):
        if matrix.becomes == "complex":
            j = _harmonics(matrix)
            counts[dim] += (j > 0) & (2 * j < points(matrix))
    return tuple(stored(layout, dim, line) for dim, line in enumerate(counts))


def points(matrix: Matrix) -> int:
    """The points along a dimension, of which its spectrum may have about half as many."""
    return matrix.length if isinstance(matrix, Roots | HalfRoots) else matrix.columns


def periods(plan: Plan, lengths: Any) -> tuple[float, ...]:
    """The period along each transformed dimension.

    Raises:
        ValueError, TypeError: lengths that do not fit.
    """
    many = len(plan.transform.dims)
    if lengths is None:
        return tuple(float(points(matrix)) for matrix in plan.transform.matrices)
    numbers = reals(lengths)
    if numbers is None:
        raise TypeError(f"lengths is {lengths!r}: give a period for each axis, such as {(1.0,) * many}")
    if len(numbers) != many:
        raise ValueError(f"there are {len(numbers)} lengths for {many} axes: give one for each axis")
    for length in numbers:
        if not 0 < length < math.inf:
            raise ValueError(f"length {length} is no period: give a positive number")
    return numbers


def stored(layout: Layout, dim: int, values: np.ndarray) -> np.ndarray:
    """Values along one dimension as a layout stores them, 0 in the padding and 1 long in all other dimensions."""
    place = np.minimum(layout.positions(dim), max(len(values) - 1, 0))
    line = np.where(layout.logical(dim), values[place], 0).astype(values.dtype)
    return line.reshape([-1 if d == dim else 1 for d in range(layout.ndim)])


def spec_along(layout: Layout, dim: int) -> PartitionSpec:
    """The spec of what `stored` makes."""
    return PartitionSpec(*(part if d == dim else None for d, part in enumerate(layout.spec)))


def _harmonics(matrix: Matrix) -> np.ndarray:
    uniform = isinstance(matrix, Roots | HalfRoots)
    if not uniform:
        raise ValueError("the plan has no wavenumbers: plan without points=, of kind 'fft', 'rfft' or 'hfft'")
    assert isinstance(matrix, Roots | HalfRoots)
    forward = matrix.sign < 0
    if not forward:
        raise ValueError("the plan is of an inverse transform: give the forward plan, whose plan.inverse leads back")
    check_held(3 * 8 * matrix.rows, f"{matrix.rows} wavenumbers, and what they are made of,", "plan fewer points")
    j, length = np.arange(matrix.rows), matrix.length
    return j if matrix.becomes == "complex" else np.where(2 * j < length, j, j - length)


def along(plan: Plan, dim: int, values: np.ndarray, dtype: Any) -> Any:
    """Values along a dimension of the spectrum as they are stored, and inside a caller's shard_map seen."""
    layout = plan.out_layout
    return own(stored(layout, dim, values).astype(dtype), dim, layout.cuts[dim], mapped_axes(mesh_here(plan.mesh)))


def _on_mesh(values: np.ndarray, real: np.dtype, plan: Plan, dim: int) -> Any:
    """Each device's part of the line, put there by itself."""
    line, layout = along(plan, dim, values, real), plan.out_layout
    if isinstance(plan.mesh, Mesh) and not isinstance(line, Array):
        even = from_spec(line.shape, axis_sizes(plan.mesh), spec_along(layout, dim))
        line = stored_on(line, plan.mesh, even.spec)
    shape = [n if d == dim else 1 for d, n in enumerate(layout.shape)]
    cuts = [by if d == dim else () for d, by in enumerate(layout.cuts)]
    stored = jnp.asarray(line)
    return stored if layout.even else PaddedArray(stored, Layout(tuple(shape), tuple(cuts)), plan.mesh)
