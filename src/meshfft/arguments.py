"""numpy.fft's arguments, resolved: which dimensions, by which matrices, with which factor. Host integers only."""

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from .errors import check
from .matrices import Matrix, Roots
from .norms import factor


class Transform(NamedTuple):
    """A matrix along each of some dimensions.

    Attributes:
        dims: the dimensions, none negative, none twice.
        matrices: the matrix of each, as many rows as the result has positions; input beyond its columns is cropped.
        scale: the factor of the result.
    """

    dims: tuple[int, ...]
    matrices: tuple[Matrix, ...]
    scale: float

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions of the result along each dimension."""
        return tuple(matrix.rows for matrix in self.matrices)

    @property
    def inverse_scale(self) -> float | None:
        """The factor that makes the adjoint, unscaled, the inverse; None where it is not."""
        whole = all(matrix.whole for matrix in self.matrices)
        return 1.0 / (self.scale * math.prod(self.lengths)) if whole else None

    @property
    def backward(self) -> bool:
        """True for the transform with the plus sign."""
        return any(isinstance(matrix, Roots) and matrix.sign > 0 for matrix in self.matrices)


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
    check_once(dims)
    matrices = tuple(Roots(n, 1 if inverse else -1, n, n) for n in lengths)
    return Transform(dims, matrices, factor(math.prod(lengths), norm, inverse))


def resolve_once(
    shape: Sequence[int], s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`resolve`, for transforms that take no dimension twice."""
    dims, lengths = resolve(shape, s, axes)
    check_once(dims)
    return dims, lengths


def check_once(dims: tuple[int, ...]) -> None:
    """Raises ValueError where a dimension is given twice."""
    for dim in dims:
        check(dims.count(dim) == 1, f"axis {dim} is given twice in axes: transform it in two calls")
