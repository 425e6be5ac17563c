"""numpy.fft's transforms between real arrays and half spectra, on sharded arrays, in half the work of complex ones.

The halved dimension, the last of `axes`, comes first on the way there and last on the way back, so that what is
exchanged before or after it is real. Half a spectrum has N // 2 + 1 numbers, which few meshes divide: its mesh axes
then move to another dimension.
"""

from collections.abc import Sequence
from typing import Any

from ..layout.layout import Spec
from ..layout.padded_array import AnyArray
from ..plans.planning import Options
from .calls import called, one


def rfftn(
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
    """The discrete Fourier transform of a real array, as numpy.fft.rfftn: half of the spectrum, for the rest is known.

        X[k_1, ..., k_d] = scale sum_n a[n] exp(-2 pi i sum_j k_j n_j / N_j),   k_d = 0 ... N_d // 2

    Args:
        a: a sharded, replicated or single-device real array, or a tuple (a,), whose spectrum comes as planes (re, im).
        s, axes, norm: as numpy.fft.rfftn; the last axis is the halved one.
        method, order, spec, out_spec, precision: as `fftn`.

    Returns:
        The half spectrum, of NumPy's shape. It is sharded as the array came where N_d // 2 + 1 still divides; else the
        mesh axes of that dimension move in front of those of another, by which `irfftn` knows them; `out_spec` tells
        which. Where nothing divides, of a PaddedArray, and by `plan(kind="rfft")`, they stay: a PaddedArray.

    Raises:
        ValueError, TypeError: as `fftn`; a complex array.

    Costs half the flops, bytes and memory of `fftn` and a little more: blocks are real until the halved axis is done. A
    line alone that is cut into p shards should have a multiple of 2 p^2 points, else it is a dense product.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.rfftn(jnp.ones((2, 4))).real.tolist()
    [[8.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return called(a, spec, "rfft", False, s, axes, norm, Options(method, order, precision, out_spec))


def rfft2(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`rfftn` over the last two dimensions, as numpy.fft.rfft2."""
    return called(a, spec, "rfft", False, s, axes, norm, Options(method, order, precision, out_spec))


def rfft(
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
    """`rfftn` along one dimension, as numpy.fft.rfft."""
    return called(
        a,
        spec,
        "rfft",
        False,
        one(n, "n"),
        one(axis, "axis"),
        norm,
        Options(method, order, precision, out_spec),
    )


def irfftn(
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
    """The inverse of `rfftn`, as numpy.fft.irfftn: a real array of its half spectrum.

        a[n] = scale sum over all k of X[k] exp(+2 pi i k n / N),   X[N - k] the conjugate of X[k]

    Args:
        a: the half spectrum, or its planes (re, im).
        s: lengths of the result; by default 2 (m - 1) for m numbers along the last axis, so odd lengths need it.
        axes, norm, method, order, spec, out_spec, precision: as `rfftn`.

    Returns:
        The real array, sharded as its spectrum; mesh axes that `rfftn` moved in front of others go back, if mesh axes
        cut the array in the mesh's order (if not, give out_spec=). Imaginary parts that no real array's spectrum has,
        of X[0] and X[N/2], are ignored, as NumPy does.

    Raises:
        ValueError, TypeError: as `rfftn`.
    """
    return called(a, spec, "rfft", True, s, axes, norm, Options(method, order, precision, out_spec))


def irfft2(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`irfftn` over the last two dimensions, as numpy.fft.irfft2."""
    return called(a, spec, "rfft", True, s, axes, norm, Options(method, order, precision, out_spec))


def irfft(
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
    """`irfftn` along one dimension, as numpy.fft.irfft; n is the length of the result."""
    return called(
        a,
        spec,
        "rfft",
        True,
        one(n, "n"),
        one(axis, "axis"),
        norm,
        Options(method, order, precision, out_spec),
    )


def hfftn(
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
    """The real spectrum of an array given by half: a[-n] is the conjugate of a[n], as scipy.fft.hfftn.

        X[k] = scale sum over all n of a[n] exp(-2 pi i k n / N)

    `irfftn` with the other sign; arguments, result and cost are those of `irfftn`.
    """
    return called(a, spec, "hfft", False, s, axes, norm, Options(method, order, precision, out_spec))


def hfft2(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`hfftn` over the last two dimensions, as scipy.fft.hfft2."""
    return called(a, spec, "hfft", False, s, axes, norm, Options(method, order, precision, out_spec))


def hfft(
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
    """`hfftn` along one dimension, as numpy.fft.hfft."""
    return called(
        a,
        spec,
        "hfft",
        False,
        one(n, "n"),
        one(axis, "axis"),
        norm,
        Options(method, order, precision, out_spec),
    )


def ihfftn(
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
    """The inverse of `hfftn`, as scipy.fft.ihfftn: `rfftn` with the other sign, and scaled as an inverse."""
    return called(a, spec, "hfft", True, s, axes, norm, Options(method, order, precision, out_spec))


def ihfft2(
    a: AnyArray,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: str | None = None,
    *,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`ihfftn` over the last two dimensions, as scipy.fft.ihfft2."""
    return called(a, spec, "hfft", True, s, axes, norm, Options(method, order, precision, out_spec))


def ihfft(
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
    """`ihfftn` along one dimension, as numpy.fft.ihfft."""
    return called(
        a,
        spec,
        "hfft",
        True,
        one(n, "n"),
        one(axis, "axis"),
        norm,
        Options(method, order, precision, out_spec),
    )
