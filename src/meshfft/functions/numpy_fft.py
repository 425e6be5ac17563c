"""numpy.fft on sharded arrays: read the sharding, plan (cached), run.

The arrays have the shapes that numpy.fft gives, and in natural order the sharding that they came with. Where `s` leaves
a size that the mesh axes do not divide, the axes move to dimensions that they do; where there are none, and of a
PaddedArray, the result is a PaddedArray that lies as the array came.
"""

from collections.abc import Sequence
from typing import Any

from ..layout.layout import Spec
from ..layout.padded_array import AnyArray
from ..plans.planning import Options
from .calls import called, one


def fftn(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """The discrete Fourier transform over any dimensions of a sharded array, as numpy.fft.fftn.

        X[k] = scale sum_n a[n] exp(-2 pi i k n / N)   along every dimension in `axes`

    Args:
        a: a sharded, replicated or single-device array of any numeric type.
        s: transform lengths; shorter crops, longer pads with zeros, -1 keeps.
        axes: dimensions; None means all, or the last len(s).
        norm: "backward" (scale 1), "ortho" (1 / sqrt(points)) or "forward" (1 / points), over all transformed points.
        method: "auto", "transpose", "cooley-tukey" (the paper's FFT) or "kdft" (the paper's KDFT).
        order: "natural" returns the result sharded as the array came; "any" leaves it in the cheapest layout.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it, and inside a
            `shard_map` of your own, to say of which whole array `a` is a block; its shape is then the whole's.
        out_spec: the result's PartitionSpec, where it is not to lie as the array came; what it does not divide is
            padded (see `PaddedArray`). Excludes order "any"; not for use in a `shard_map` of your own.
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
    return called(a, spec, "fft", False, s, axes, norm, Options(method, order, precision, out_spec))


def ifftn(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """The inverse of `fftn`, as numpy.fft.ifftn, with the other sign and 1 / points under norm "backward"."""
    return called(a, spec, "fft", True, s, axes, norm, Options(method, order, precision, out_spec))


def fft2(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`fftn` over the last two dimensions, as numpy.fft.fft2."""
    return called(a, spec, "fft", False, s, axes, norm, Options(method, order, precision, out_spec))


def ifft2(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`ifftn` over the last two dimensions, as numpy.fft.ifft2."""
    return called(a, spec, "fft", True, s, axes, norm, Options(method, order, precision, out_spec))


def fft(
    a: AnyArray,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`fftn` along one dimension, as numpy.fft.fft; a line that is cut over devices stays cut."""
    return called(
        a,
        spec,
        "fft",
        False,
        one(n, "n"),
        one(axis, "axis"),
        norm,
        Options(method, order, precision, out_spec),
    )


def ifft(
    a: AnyArray,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`ifftn` along one dimension, as numpy.fft.ifft."""
    return called(
        a, spec, "fft", True, one(n, "n"), one(axis, "axis"), norm, Options(method, order, precision, out_spec)
    )
