"""numpy.fft's arguments, resolved: which dimensions, to which lengths, with which factor. Host integers only."""

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from .errors import check

NORMS = ("backward", "ortho", "forward")


class Transform(NamedTuple):
    """A discrete Fourier transform of some dimensions.

    Attributes:
        dims: the dimensions, none negative, none twice.
        lengths: the length N of each; the input is cropped or zero-padded to it.
        sign: the sign in the exponent.
        scale: the factor of the result.
    """

    dims: tuple[int, ...]
    lengths: tuple[int, ...]
    sign: int
    scale: float

    @property
    def inverse_scale(self) -> float:
        """The factor that makes the adjoint, unscaled, the inverse."""
        return 1.0 / (self.scale * math.prod(self.lengths))


def integers(values: Any, name: str) -> tuple[int, ...]:
    """A sequence of integers, or an error that names the argument."""
    fits = isinstance(values, Sequence | range) and not isinstance(values, str | bytes)
    fits = fits and all(hasattr(v, "__index__") and not isinstance(v, bool) for v in values)
    check(bool(fits), f"{name} is {values!r}: give a sequence of integers, such as (0, 1)", TypeError)
    return tuple(operator.index(v) for v in values)


def resolve(
    shape: Sequence[int], s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions and lengths as numpy.fft.fftn reads them: no axes means all, or the last len(s).

    Raises:
        TypeError: s or axes is no sequence of integers.
        ValueError: an axis is out of range, there are more or fewer lengths than axes, or a length is not positive.
    """
    ndim, sizes = len(shape), None if s is None else integers(s, "s")
    if axes is None:
        many = len(sizes) if sizes is not None else 0
        check(many <= ndim, f"s has {many} lengths, the array {ndim} dimensions: give at most {ndim}")
        axes = range(ndim) if sizes is None else range(ndim - many, ndim)
    axes = integers(axes, "axes")
    for axis in axes:
        check(-ndim <= axis < ndim, f"axis {axis} is out of range: the array has {ndim} dimensions, 0 to {ndim - 1}")
    dims = tuple(axis % ndim for axis in axes)
    sizes = (-1,) * len(dims) if sizes is None else sizes
    check(len(sizes) == len(dims), f"s has {len(sizes)} lengths for {len(dims)} axes: give one length for each axis")
    lengths = tuple(shape[d] if n == -1 else n for d, n in zip(dims, sizes, strict=True))
    for dim, length in zip(dims, lengths, strict=True):
        check(length >= 1, f"length {length} along axis {dim}: a transform needs at least one point")
    return dims, lengths


def transform_of(dims: tuple[int, ...], lengths: tuple[int, ...], norm: str | None, inverse: bool) -> Transform:
    """The transform that numpy.fft.fftn, or ifftn, does along these dimensions.

    Raises:
        ValueError: a dimension is given twice, or the norm is unknown.
    """
    for dim in dims:
        check(dims.count(dim) == 1, f"axis {dim} is given twice in axes: transform it in two calls")
    check(norm in (None, *NORMS), f"norm {norm!r} is unknown: use 'backward', 'ortho' or 'forward'")
    points = math.prod(lengths)
    scaled = {"ortho": points**-0.5, "forward": 1.0 if inverse else 1.0 / points}
    backward = 1.0 / points if inverse else 1.0
    return Transform(dims, lengths, 1 if inverse else -1, scaled.get(norm or "backward", backward))
