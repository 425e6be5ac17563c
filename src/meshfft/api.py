"""numpy.fft on sharded arrays: read the sharding, plan (cached), run.

The arrays have the shapes that numpy.fft gives, and in natural order the sharding that they came with. Where `s` leaves
a size that the mesh axes do not divide, the axes move to dimensions that they do; sizes that nothing divides are for
`plan`, which keeps padded storage.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .arguments import integers, resolve, transform_of
from .choice import chip_of, find_walk
from .dtypes import check_numeric, complex_dtype
from .errors import check
from .hardware import Chip, chip_for
from .layout import AnyMesh, Spec, axis_sizes, from_spec
from .placement import placement
from .primitive import run


def fftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """The discrete Fourier transform over any dimensions of a sharded array, as numpy.fft.fftn.

        X[k] = scale sum_n a[n] exp(-2 pi i k n / N)   along every dimension in `axes`

    Args:
        a: a sharded, replicated or single-device array of any numeric type.
        s: transform lengths; shorter crops, longer pads with zeros, -1 keeps.
        axes: dimensions; None means all, or the last len(s).
        norm: "backward" (scale 1), "ortho" (1 / sqrt(points)) or "forward" (1 / points), over all transformed points.
        method: "auto", "transpose", "cooley-tukey" (the paper's FFT) or "kdft" (the paper's KDFT).
        order: "natural" returns the result sharded as the array came; "any" leaves it in the cheapest layout.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        precision: "float32" or "float64", to compute in another precision than the array's.

    Returns:
        The spectrum, complex64 for input of up to 32 bits and complex128 for 64, in natural index order.

    Raises:
        ValueError: an axis, length, norm, method, order or spec that does not fit, with what would.
        TypeError: the array is not numeric, or an argument is of the wrong type.

    Costs 5 n log2 n flops for n points in all and, by transposes, two all-to-alls of (p - 1)/p of a device's block for
    each dimension cut into p; `print(mf.plan(...))` has the exact account. No all-gather, no all-reduce.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.fftn(jnp.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _transform(a, s, axes, norm, False, method, order, spec, precision)


def ifftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """The inverse of `fftn`, as numpy.fft.ifftn, with the other sign and 1 / points under norm "backward"."""
    return _transform(a, s, axes, norm, True, method, order, spec, precision)


def fft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """`fftn` over the last two dimensions, as numpy.fft.fft2."""
    return _transform(a, s, axes, norm, False, method, order, spec, precision)


def ifft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """`ifftn` over the last two dimensions, as numpy.fft.ifft2."""
    return _transform(a, s, axes, norm, True, method, order, spec, precision)


def fft(
    a: ArrayLike,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """`fftn` along one dimension, as numpy.fft.fft; a line that is cut over devices stays cut."""
    return _transform(a, _one(n, "n"), _one(axis, "axis"), norm, False, method, order, spec, precision)


def ifft(
    a: ArrayLike,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """`ifftn` along one dimension, as numpy.fft.ifft."""
    return _transform(a, _one(n, "n"), _one(axis, "axis"), norm, True, method, order, spec, precision)


def kdftn(
    x: ArrayLike,
    *,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """The paper's KDFT, which is `fftn` by dense Vandermonde products over the one-shuffle ring.

        X = (V_1 x V_2 x ...) vec(x),   V_i[k, n] = exp(-2 pi i k n / N_i)   (x: the Kronecker product)

    Any size on any mesh. Every device makes its N_i/P_i by N_i slice of V_i a block at a time from exact phases.

    Args:
        x: a sharded, replicated or single-device array of any numeric type.
        axes: dimensions; None means all.
        norm: as `fftn`.
        spec: as `fftn`.
        precision: as `fftn`.

    Returns:
        The spectrum, sharded as the array came.

    Raises:
        ValueError, TypeError: as `fftn`.

    Costs per device and dimension 8 N_i flops a point of its block, and P_i - 1 hops of the block to a neighbour, each
    of which can run under a product.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section III-A (equation dft3d_matrix) and
    Algorithm 1.
    """
    return _transform(x, None, axes, norm, False, "kdft", "natural", spec, precision)


def _transform(
    a: ArrayLike,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    inverse: bool,
    method: str,
    order: str,
    spec: Spec | None,
    precision: str | None,
) -> Array:
    """Transforms dimension after dimension where one is given twice, as NumPy does from the last to the first."""
    x = _array(a)
    dims, lengths = resolve(x.shape, s, axes)
    if len(set(dims)) < len(dims):
        x = _unique(x, dims[-1:], lengths[-1:], norm, inverse, method, "natural", spec, precision)
        return _transform(x, lengths[:-1], dims[:-1], norm, inverse, method, order, spec, precision)
    return _unique(x, dims, lengths, norm, inverse, method, order, spec, precision)


def _unique(
    x: Array,
    dims: tuple[int, ...],
    lengths: tuple[int, ...],
    norm: str | None,
    inverse: bool,
    method: str,
    order: str,
    spec: Spec | None,
    precision: str | None,
) -> Array:
    transform, dtype = transform_of(dims, lengths, norm, inverse), complex_dtype(x.dtype, precision)
    mesh, spec = placement(x, spec)
    start = from_spec(x.shape, axis_sizes(mesh), spec)
    check(
        start.even,
        f"shape {x.shape} is not divided by spec {spec}: use mf.plan with mf.shard, which keep padded storage",
    )
    walk = find_walk(start, transform, method, order, _chip(x, mesh), dtype.itemsize, even=True)
    return run(x, walk, mesh, dtype)


def _array(a: ArrayLike) -> Array:
    """The argument as a JAX array, refused by name where it is no array of numbers."""
    if isinstance(a, jax.Array):
        return a
    array = np.asarray(a)
    check_numeric(array.dtype)
    return jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _one(value: int | None, name: str) -> tuple[int, ...] | None:
    """One integer as a sequence, or None."""
    return None if value is None and name == "n" else integers((value,), name)


def _chip(x: Array, mesh: AnyMesh | None) -> Chip:
    """The row of rates for the devices that hold the array."""
    if mesh is not None:
        return chip_of(mesh)
    return chip_for(jax.default_backend() if isinstance(x, jax.core.Tracer) else next(iter(x.devices())).platform)
