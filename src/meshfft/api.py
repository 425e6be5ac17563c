"""numpy.fft on sharded arrays: read the sharding, plan (cached), run.

The arrays have the shapes that numpy.fft gives, and in natural order the sharding that they came with. Where `s` leaves
a size that the mesh axes do not divide, the axes move to dimensions that they do; sizes that nothing divides are for
`plan`, which keeps padded storage.
"""

from collections.abc import Sequence
from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .arguments import resolve, resolve_dims
from .choice import chip_of, find_walk
from .errors import check
from .hardware import Chip, chip_for
from .layout import Spec, from_spec
from .placement import placement
from .precision import complex_dtype
from .primitive import AnyMesh, run
from .storage import mesh_sizes


class Options(TypedDict, total=False):
    """Keywords of every transform.

    Attributes:
        method: "auto", "transpose", "cooley-tukey" (the paper's FFT) or "kdft" (the paper's KDFT).
        order: "natural" returns the result sharded as the array came; "any" leaves it in the cheapest layout.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        precision: "float32" or "float64", to compute in another precision than the array's.
    """

    method: str
    order: str
    spec: Spec | None
    precision: str | None


def fftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    **options: Unpack[Options],
) -> Array:
    """The discrete Fourier transform over any dimensions of a sharded array, as numpy.fft.fftn.

        X[k] = scale sum_n a[n] exp(-2 pi i k n / N)   along every dimension in `axes`

    Args:
        a: a sharded, replicated or single-device array of any numeric type.
        s: transform lengths; shorter crops, longer pads with zeros, -1 keeps.
        axes: dimensions; None means all, or the last len(s).
        norm: "backward" (scale 1), "ortho" (1 / sqrt(N)) or "forward" (1 / N).
        **options: see `Options`.

    Returns:
        The spectrum, complex64 for input of up to 32 bits and complex128 for 64, in natural index order.

    Raises:
        ValueError: an axis, length, norm, method, order or spec that does not fit, with what would.
        TypeError: the array is not numeric.

    Costs about 5 N log2 N flops in all, and per device and cut dimension two all-to-alls of (p - 1)/p of its block; the
    exact account is `print(mf.plan(...))`. Never gathers.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.fftn(jnp.ones((2, 2))).real.tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    return _transform(a, s, axes, norm, False, **options)


def ifftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    **options: Unpack[Options],
) -> Array:
    """The inverse of `fftn`, as numpy.fft.ifftn:

    the other sign, and 1 / N where `fftn` has none. Arguments as `fftn`.
    """
    return _transform(a, s, axes, norm, True, **options)


def fft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    **options: Unpack[Options],
) -> Array:
    """`fftn` over the last two dimensions, as numpy.fft.fft2."""
    return _transform(a, s, axes, norm, False, **options)


def ifft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    **options: Unpack[Options],
) -> Array:
    """`ifftn` over the last two dimensions, as numpy.fft.ifft2."""
    return _transform(a, s, axes, norm, True, **options)


def fft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None, **options: Unpack[Options]
) -> Array:
    """`fftn` along one dimension, as numpy.fft.fft; a line that is cut over devices stays cut."""
    return _transform(a, None if n is None else (n,), (axis,), norm, False, **options)


def ifft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None, **options: Unpack[Options]
) -> Array:
    """`ifftn` along one dimension, as numpy.fft.ifft."""
    return _transform(a, None if n is None else (n,), (axis,), norm, True, **options)


def kdftn(
    x: ArrayLike,
    *,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    """The paper's KDFT: `fftn` by dense Vandermonde products over the one-shuffle ring, dimension by dimension.

        X = (V_1 x V_2 x ... ) vec(x),   V_i[k, n] = exp(-2 pi i k n / N_i)   (x: the Kronecker product)

    Any size on any mesh. Every device makes its N_i/P_i by N_i slice of V_i a block at a time from exact phases.

    Args:
        x: a sharded, replicated or single-device array of any numeric type.
        axes: dimensions; None means all.
        norm: as `fftn`.
        spec, precision: see `Options`.

    Returns:
        The spectrum, sharded as the array came.

    Raises:
        ValueError, TypeError: as `fftn`.

    Costs per device and dimension 8 N_i flops a point of its block, and P_i - 1 hops of the block to a neighbour, each
    under a product.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section III-A (equation dft3d_matrix) and
        Algorithm 1.
    """
    return _transform(x, None, axes, norm, False, method="kdft", spec=spec, precision=precision)


def _transform(
    a: ArrayLike,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    inverse: bool,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    precision: str | None = None,
) -> Array:
    x = _array(a)
    dims, lengths = resolve_dims(x.shape, s, axes)
    if len(set(dims)) < len(dims):  # NumPy transforms a repeated axis again, from the last to the first
        again: Options = {"method": method, "order": order, "spec": spec, "precision": precision}
        x = _transform(x, lengths[-1:], dims[-1:], norm, inverse, **again)
        return _transform(x, lengths[:-1], dims[:-1], norm, inverse, **again)
    transform = resolve(x.shape, lengths, dims, norm, inverse)
    dtype = complex_dtype(x.dtype, precision)
    mesh, spec = placement(x, spec)
    start = from_spec(x.shape, mesh_sizes(mesh) if mesh is not None else {}, spec)
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
    check(
        array.dtype.kind in "biufc",
        f"an array of dtype {array.dtype} is not numeric: give an array of numbers",
        TypeError,
    )
    return jnp.asarray(array)


def _chip(x: Array, mesh: AnyMesh | None) -> Chip:
    """The row of rates for the devices that hold the array."""
    if mesh is not None:
        return chip_of(mesh)
    return chip_for(jax.default_backend() if isinstance(x, jax.core.Tracer) else next(iter(x.devices())).platform)
