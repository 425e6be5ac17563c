"""A call of a numpy.fft function: its arguments resolved, its array taken in, its transforms run one after the other.

A dimension that is given twice is transformed twice, as NumPy does.
"""

from collections.abc import Sequence
from typing import Any

from jax import Array

from ..errors import check
from ..operators.transform import FOURIER, integer, resolve, transform_of, turns
from ..plans.dispatch import Options, is_planes, located, received, transformed


def called(
    a: Any,
    kind: str,
    inverse: bool,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    options: Options,
    orthogonalize: bool | None = None,
) -> Any:
    """The transform of one of KINDS (see arguments), forward or inverse.

    Raises:
        ValueError, TypeError: as `fftn`; a complex array where a real one is transformed.
    """
    arrays, planes = received(a), is_planes(a)
    _check_real(arrays, kind, inverse)
    dims, lengths = resolve(located(arrays, options.spec)[0].shape, s, axes, kind, inverse)
    if len(set(dims)) == len(dims) or kind not in FOURIER:
        transform = transform_of(dims, lengths, norm, inverse, kind, orthogonalize)
        return transformed(arrays, transform, options, planes=planes)
    for j in _in_turn(len(dims), kind, inverse):
        last = j == len(dims) - 1
        transform = transform_of(dims[j : j + 1], lengths[j : j + 1], norm, inverse, kind if last else "fft")
        result = transformed(arrays, transform, options._replace(order="natural"), planes=planes)
        arrays = received(result)
    return result


def one(value: int | None, name: str) -> tuple[int, ...] | None:
    """One integer as a sequence; no length n as None."""
    if value is None and name == "n":
        return None
    found = integer(value, name)
    check(name != "n" or found >= 0, f"n is {found}: a transform needs at least one point")
    return (found,)


def _in_turn(many: int, kind: str, inverse: bool) -> Sequence[int]:
    """Places of the axes in the order in which NumPy transforms them: the last first, but last where it gets real."""
    return range(many) if turns(kind, inverse) == "real" else range(many)[::-1]


def _check_real(arrays: tuple[Array, ...], kind: str, inverse: bool) -> None:
    dtype = arrays[0].dtype
    fits = turns(kind, inverse) != "complex" or (len(arrays) == 1 and dtype.kind != "c")
    found = f"{dtype}" if len(arrays) == 1 else "two planes"
    check(fits, f"real numbers are transformed here, the array is {found}: use fftn, or give its real part", TypeError)
