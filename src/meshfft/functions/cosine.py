"""scipy.fft's cosine and sine transforms of types I to IV, on sharded arrays."""

from collections.abc import Sequence
from typing import Any

from ..layout.layout import Spec
from ..layout.padded_array import AnyArray
from ..operators.trig import TYPES
from ..plans.planning import Options
from .calls import called, one


def dctn(
    x: AnyArray,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """The discrete cosine transform of a sharded array over any dimensions, as scipy.fft.dctn.

        type 1   X[k] = x[0] + (-1)^k x[N-1] + 2 sum over 0 < n < N-1 of x[n] cos(pi k n / (N-1))
        type 2   X[k] = 2 sum_n x[n] cos(pi k (2 n + 1) / 2 N)
        type 3   X[k] = x[0] + 2 sum over n > 0 of x[n] cos(pi (2 k + 1) n / 2 N)
        type 4   X[k] = 2 sum_n x[n] cos(pi (2 k + 1) (2 n + 1) / 4 N)

    Args:
        x: a sharded, replicated or single-device array; of a complex one both planes are transformed.
        type: 1 to 4.
        s, axes: as scipy.fft.dctn.
        norm: "backward", "ortho" or "forward", as scipy.fft.
        orthogonalize: weigh the first and last terms so that rows are orthogonal; None means where norm is "ortho".
        method, order, spec, out_spec, precision: as `fftn`.

    Returns:
        The transform, real where x is, sharded as the array came where sizes still divide.

    Raises:
        ValueError, TypeError: as `fftn`; an unknown type; fewer than two points for type 1.

    Costs half of `fftn` for a real array, type 1 as much: one real FFT for each whole dimension. A line alone that is
    cut is a dense product over the ring, 2 N flops a point: of 2^16 points and more give it a second dimension.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.dctn(jnp.ones((2, 2))).tolist()
    [[16.0, 0.0], [0.0, 0.0]]
    """
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dct", type), False, s, axes, norm, options, orthogonalize)


def dct(
    x: AnyArray,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`dctn` along one dimension, as scipy.fft.dct."""
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dct", type), False, one(n, "n"), one(axis, "axis"), norm, options, orthogonalize)


def idctn(
    x: AnyArray,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """The inverse of `dctn` of the same type and norm, as scipy.fft.idctn."""
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dct", type), True, s, axes, norm, options, orthogonalize)


def idct(
    x: AnyArray,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`idctn` along one dimension, as scipy.fft.idct."""
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dct", type), True, one(n, "n"), one(axis, "axis"), norm, options, orthogonalize)


def dstn(
    x: AnyArray,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """The discrete sine transform of a sharded array over any dimensions, as scipy.fft.dstn.

        type 1   X[k] = 2 sum_n x[n] sin(pi (k + 1) (n + 1) / (N + 1))
        type 2   X[k] = 2 sum_n x[n] sin(pi (k + 1) (2 n + 1) / 2 N)
        type 3   X[k] = (-1)^k x[N-1] + 2 sum over n < N-1 of x[n] sin(pi (2 k + 1) (n + 1) / 2 N)
        type 4   X[k] = 2 sum_n x[n] sin(pi (2 k + 1) (2 n + 1) / 4 N)

    Arguments, result and cost as `dctn`.
    """
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dst", type), False, s, axes, norm, options, orthogonalize)


def dst(
    x: AnyArray,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`dstn` along one dimension, as scipy.fft.dst."""
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dst", type), False, one(n, "n"), one(axis, "axis"), norm, options, orthogonalize)


def idstn(
    x: AnyArray,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """The inverse of `dstn` of the same type and norm, as scipy.fft.idstn."""
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dst", type), True, s, axes, norm, options, orthogonalize)


def idst(
    x: AnyArray,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    *,
    orthogonalize: bool | None = None,
    method: str = "auto",
    order: str = "natural",
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
) -> Any:
    """`idstn` along one dimension, as scipy.fft.idst."""
    options = Options(method, order, precision, out_spec)
    return called(x, spec, _kind("dst", type), True, one(n, "n"), one(axis, "axis"), norm, options, orthogonalize)


def _kind(name: str, type: Any) -> str:
    """The kind of a family and a type."""
    if type not in TYPES or isinstance(type, bool):
        raise ValueError(f"type {type!r} is unknown: use 1, 2, 3 or 4")
    return f"{name}-{int(type)}"
