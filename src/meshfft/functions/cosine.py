"""scipy.fft's cosine and sine transforms, types I to IV, of sharded arrays."""

from typing import Unpack

from ..layout.padded_array import AnyArray, Transformed
from ..operators.trig import TYPES
from ..plans.options import How, with_options
from .calls import Ints, line, over


class TrigHow(How, total=False):
    """The options of `dctn`."""

    orthogonalize: bool | None


@with_options
def dctn(
    x: AnyArray, type: int = 2, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """The discrete cosine transform of a sharded array over any dimensions, as
    scipy.fft.dctn.

        type 1  X[k] = x[0] + (-1)^k x[N-1]
                       + 2 sum over 0 < n < N-1 of x[n] cos(pi k n / (N-1))
        type 2  X[k] = 2 sum_n x[n] cos(pi k (2 n + 1) / 2 N)
        type 3  X[k] = x[0] + 2 sum over n > 0 of x[n] cos(pi (2 k + 1) n / 2 N)
        type 4  X[k] = 2 sum_n x[n] cos(pi (2 k + 1) (2 n + 1) / 4 N)

    Args:
        x: as `a` of `fftn`; real and imaginary parts are transformed alike.
        type: 1 to 4.
        s, axes, norm: as scipy.fft.dctn.
        method, ..., donate: as `fftn`.
        orthogonalize: weight the first and last terms so that rows are
            orthogonal; by default if norm is "ortho".

    Returns:
        The transform, real if `x` is, sharded as `x` if its mesh axes divide
        it.

    Raises:
        ValueError, TypeError: as `fftn`; an unknown type; type 1 of one point.

    A real array takes half of the flops of `fftn` (type 1: all) and sends half
    of the bytes. A one-dimensional sharded array takes a dense product over the
    ring, 2 N flops a point, which is slow from 2^16 points on.

    >>> mf.dctn(jnp.ones((2, 2))).tolist()
    [[16.0, 0.0], [0.0, 0.0]]
    """
    return _over(x, "dct", type, s, axes, norm, how)


@with_options
def dct(
    x: AnyArray, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """`dctn` along one dimension, as scipy.fft.dct.

    >>> mf.dct(jnp.ones(2)).tolist()
    [4.0, 0.0]
    """
    return _over(x, "dct", type, *line(n, axis), norm, how)


@with_options
def idctn(
    x: AnyArray, type: int = 2, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """The inverse of `dctn` of the same type and norm, as scipy.fft.idctn.

    >>> mf.idctn(mf.dctn(jnp.ones((2, 2)))).round(6).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _over(x, "dct", type, s, axes, norm, how, inverse=True)


@with_options
def idct(
    x: AnyArray, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """`idctn` along one dimension, as scipy.fft.idct.

    >>> mf.idct(mf.dct(jnp.ones(2))).round(6).tolist()
    [1.0, 1.0]
    """
    return _over(x, "dct", type, *line(n, axis), norm, how, inverse=True)


@with_options
def dstn(
    x: AnyArray, type: int = 2, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """The discrete sine transform of a sharded array over any dimensions, as
    scipy.fft.dstn.

        type 1  X[k] = 2 sum_n x[n] sin(pi (k + 1) (n + 1) / (N + 1))
        type 2  X[k] = 2 sum_n x[n] sin(pi (k + 1) (2 n + 1) / 2 N)
        type 3  X[k] = (-1)^k x[N-1] + 2 sum over n < N-1 of
                       x[n] sin(pi (2 k + 1) (n + 1) / 2 N)
        type 4  X[k] = 2 sum_n x[n] sin(pi (2 k + 1) (2 n + 1) / 4 N)

    Arguments, result and cost as `dctn`.

    >>> mf.dstn(jnp.ones((1, 1))).tolist()
    [[4.0]]
    """
    return _over(x, "dst", type, s, axes, norm, how)


@with_options
def dst(
    x: AnyArray, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """`dstn` along one dimension, as scipy.fft.dst.

    >>> mf.dst(jnp.ones(1)).tolist()
    [2.0]
    """
    return _over(x, "dst", type, *line(n, axis), norm, how)


@with_options
def idstn(
    x: AnyArray, type: int = 2, s: Ints = None, axes: Ints = None, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """The inverse of `dstn` of the same type and norm, as scipy.fft.idstn.

    >>> mf.idstn(mf.dstn(jnp.ones((2, 2)))).round(6).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return _over(x, "dst", type, s, axes, norm, how, inverse=True)


@with_options
def idst(
    x: AnyArray, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, **how: Unpack[TrigHow]
) -> Transformed:
    """`idstn` along one dimension, as scipy.fft.idst.

    >>> mf.idst(mf.dst(jnp.ones(2))).round(6).tolist()
    [1.0, 1.0]
    """
    return _over(x, "dst", type, *line(n, axis), norm, how, inverse=True)


def _over(
    x: AnyArray, name: str, type: int, s: Ints, axes: Ints, norm: str | None, how: TrigHow, inverse: bool = False
) -> Transformed:
    if type not in TYPES or isinstance(type, bool):
        raise ValueError(f"type {type!r} is unknown: use 1, 2, 3 or 4")
    weighs = how.pop("orthogonalize", None)
    return over(x, f"{name}-{int(type)}", s, axes, norm, how, inverse=inverse, orthogonalize=weighs, known=TrigHow)
