"""numpy.fft's arguments, resolved: which dimensions, to which lengths, with which factor. Host integers only."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from .errors import check

NORMS = (None, "backward", "ortho", "forward")


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


def resolve_dims(
    shape: Sequence[int], s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions and lengths as numpy.fft.fftn reads them: no axes means all, or the last len(s)."""
    ndim = len(shape)
    if axes is None:
        axes = range(ndim) if s is None else range(ndim - len(s), ndim)
    for axis in axes:
        check(-ndim <= axis < ndim, f"axis {axis} is out of range: the array has {ndim} dimensions, 0 to {ndim - 1}")
    dims = tuple(axis % ndim for axis in axes)
    sizes = [-1] * len(dims) if s is None else list(s)
    check(len(sizes) == len(dims), f"s has {len(sizes)} lengths for {len(dims)} axes: give one length for each axis")
    lengths = tuple(shape[d] if n == -1 else int(n) for d, n in zip(dims, sizes, strict=True))
    for dim, length in zip(dims, lengths, strict=True):
        check(length >= 1, f"length {length} along axis {dim}: a transform needs at least one point")
    return dims, lengths


def resolve(
    shape: Sequence[int], s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None, inverse: bool
) -> Transform:
    """The transform that numpy.fft.fftn, or ifftn, does with these arguments.

    Raises:
        ValueError: an axis is out of range or given twice, a length is not positive, or the norm is unknown.
    """
    dims, lengths = resolve_dims(shape, s, axes)
    for dim in dims:
        check(dims.count(dim) == 1, f"axis {dim} is given twice in axes: transform it in two calls")
    check(norm in NORMS, f"norm {norm!r} is unknown: use 'backward', 'ortho' or 'forward'")
    points = math.prod(lengths)
    scaled = {"ortho": points**-0.5, "forward": 1.0 if inverse else 1.0 / points}
    default = 1.0 / points if inverse else 1.0
    return Transform(dims, lengths, 1 if inverse else -1, scaled.get(norm or "backward", default))
