"""The arguments of numpy.fft and scipy.fft as dimensions, matrices and a factor, in host integers.

The factor for N points by norm, forward and inverse:

    "backward" (1, 1/N)      "ortho" (1/sqrt N, 1/sqrt N)      "forward" (1/N, 1)
"""

import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple, SupportsIndex, TypeGuard

import jax

from .matrices import HalfRoots, Matrix, Roots
from .trig import FAMILIES, TYPES, Trig, trig

# numpy.fft's transforms: complex, of real arrays, to real spectra; and scipy.fft's, by type.
FOURIER = ("fft", "rfft", "hfft")
KINDS = (*FOURIER, *(f"{name}-{type}" for name in ("dct", "dst") for type in TYPES))
NORMS = ("backward", "ortho", "forward")
Kind = str | tuple[str, ...]  # one of KINDS, or one per axis


class Transform(NamedTuple):
    """A matrix along each of some dimensions.

    Attributes:
        matrices: a matrix per dimension, with a row per result position; input beyond its columns is cropped.
        scale: the factor of the result.
        onto_complex: the result is complex even without dimensions.
    """

    dims: tuple[int, ...]
    matrices: tuple[Matrix, ...]
    scale: float
    onto_complex: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(matrix.rows for matrix in self.matrices)

    @property
    def inverse_scale(self) -> float | None:
        if any(matrix.period is None for matrix in self.matrices):
            return None
        return 1.0 / (self.scale * math.prod(matrix.period or 1 for matrix in self.matrices))

    def takes_real(self, array_is_real: bool) -> bool:
        changes = [matrix.becomes for matrix in self.matrices if matrix.becomes is not None]
        stays = array_is_real and not self.onto_complex and all(matrix.planes == 1 for matrix in self.matrices)
        return changes == ["complex"] or (stays and not changes)

    @property
    def name(self) -> str:
        every = [matrix.whole for matrix in self.matrices]
        waves = dict.fromkeys(matrix.name for matrix in every if isinstance(matrix, Trig))
        others = [matrix for matrix in every if not isinstance(matrix, Trig)]
        return ", ".join([*waves, *([_named(others)] if others or not waves else [])])


def _named(matrices: Sequence[Matrix]) -> str:
    for matrix in matrices:
        if isinstance(matrix, HalfRoots):
            forward = "real" if (matrix.sign > 0) == matrix.onto_real else "Hermitian"
            return f"{'inverse ' * (matrix.sign > 0)}{forward} transform"
    return "inverse transform" if any(getattr(m, "sign", -1) > 0 for m in matrices) else "transform"


def check_known(name: str, value: object, known: Iterable[object]) -> None:
    if value not in known:
        raise ValueError(f"{name} {value!r} is unknown: use one of " + ", ".join(map(repr, known)))


def factor(points: int, norm: str | None, inverse: bool) -> float:
    if norm is not None:
        check_known("norm", norm, NORMS)
    if norm == "ortho":
        return points**-0.5 if points else 1.0
    return 1.0 / max(points, 1) if inverse == (norm != "forward") else 1.0


def fast_length(least: int, parts: int, real: bool = False) -> int:
    """The least multiple of `parts`, at least `least`, whose parts have fast transforms."""
    from scipy import fft  # importing takes 0.2 s

    return parts * int(fft.next_fast_len(-(-least // parts), real))


def integers(values: object, name: str) -> tuple[int, ...]:
    """One integer or several, NumPy's and JAX's included."""
    listed = (values,) if is_integer(values) else _listed(values)
    if listed is None or not all(map(is_integer, listed)):
        shape = getattr(values, "shape", ())
        large = len(shape) > (name != "shape")
        given = f"an array of shape {shape}" if large else repr(values)
        remedy = "its shape, x.shape" if large and name == "shape" else "a sequence of integers, such as (0, 1)"
        raise TypeError(f"{name} is {given}: give {remedy}")
    return tuple(map(operator.index, listed))


def integer(value: object, name: str) -> int:
    if not is_integer(value):
        error = TypeError if _listed(value) is None else ValueError
        raise error(f"{name} is {value!r}: give an integer")
    return operator.index(value)


def lengths_of(s: object) -> tuple[int, ...] | None:
    """The argument `s`, with -1 for None, the array's length."""
    listed = None if s is None or is_integer(s) else _listed(s)
    return None if s is None else integers(s if listed is None else [-1 if n is None else n for n in listed], "s")


def is_integer(value: object) -> TypeGuard[SupportsIndex]:
    if isinstance(value, bool | jax.core.Tracer) or getattr(value, "shape", ()) != ():
        return False
    try:
        return operator.index(value) is not None  # type: ignore[arg-type]
    except TypeError:
        return False


def reals(values: object) -> tuple[float, ...] | None:
    listed = _listed(values)
    return tuple(map(float, listed)) if listed is not None and all(map(_is_real, listed)) else None


def _is_real(value: object) -> bool:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    held = kind in ("i", "u", "f") and getattr(value, "shape", None) == () and not isinstance(value, jax.core.Tracer)
    return isinstance(value, Real) or held


def _listed(values: object) -> tuple[Any, ...] | None:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | jax.core.Tracer):
        return None
    try:
        return tuple(values)
    except TypeError:
        return None


def becomes(kind: str, inverse: bool) -> str | None:
    """As `Matrix.becomes`, along the last axis."""
    return None if kind not in ("rfft", "hfft") else "complex" if (kind == "rfft") != inverse else "real"


def natural_dtype(kind: Kind) -> str:
    kinds = (kind,) if isinstance(kind, str) else kind
    return "complex64" if kinds[-1:] != ("rfft",) and {"fft", "hfft"}.intersection(kinds) else "float32"


def resolve(
    shape: Sequence[int], s: Sequence[int] | None, axes: Sequence[int] | None, kind: Kind = "fft", inverse: bool = False
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions and lengths as in numpy.fft.fftn: no axes means all, or the last len(s).

    A half spectrum of m numbers represents 2 (m - 1) points without `s`. A dimension of no points may keep its length
    if numbers do not become real or complex along it.
    """
    ndim, sizes = len(shape), lengths_of(s)
    if axes is None:
        many = ndim if sizes is None else len(sizes)
        if many > ndim:
            raise ValueError(f"s has {many} lengths, the array {ndim} dimensions: give at most {ndim}")
        axes = range(ndim - many, ndim)
    dims = dims_of(ndim, axes)
    sizes = (-1,) * len(dims) if sizes is None else sizes
    if len(sizes) != len(dims):
        raise ValueError(f"s has {len(sizes)} lengths for {len(dims)} axes: give one length for each axis")
    if not isinstance(kind, str):
        if len(kind) != len(dims):
            raise ValueError(f"kind has {len(kind)} names for {len(dims)} axes: give one for all, or one for each axis")
        kind = kind[-1] if kind else "fft"
    lengths = tuple(shape[d] if n == -1 else n for d, n in zip(dims, sizes, strict=True))
    change = becomes(kind, inverse)
    if change is not None and not dims:
        raise ValueError("axes is empty: a real transform needs one axis at least")
    if change == "real" and s is None:
        half = lengths[-1]
        if half <= 1:
            raise ValueError(f"half a spectrum of {half} numbers stands for 2 ({half} - 1) points: give n= or s=")
        lengths = (*lengths[:-1], 2 * (half - 1))
    changed = dims[-1:] if change is not None else ()
    for dim, length, size in zip(dims, lengths, sizes, strict=True):
        empty = kind in FOURIER and size == -1 and length == 0 and dim not in changed
        if length < 1 and not empty:
            raise ValueError(f"length {length} along axis {dim}: a transform needs at least one point")
    return dims, lengths


def dims_of(ndim: int, axes: int | Sequence[int]) -> tuple[int, ...]:
    axes = integers(axes, "axes")
    for axis in axes:
        if not -ndim <= axis < ndim:
            known = f"give one from {-ndim} to {ndim - 1}" if ndim else "a number without axes has nothing to transform"
            raise ValueError(f"axis {axis} is out of range: the array has {ndim} dimensions, {known}")
    return tuple(axis % ndim for axis in axes)


def resolve_once(
    shape: Sequence[int], s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims, lengths = resolve(shape, s, axes)
    check_once(dims)
    return dims, lengths


def check_once(dims: tuple[int, ...], remedy: str = "transform it in two calls") -> None:
    for dim in dims:
        if dims.count(dim) != 1:
            raise ValueError(f"axis {dim} is given twice in axes: {remedy}")


def transform_of(
    dims: tuple[int, ...],
    lengths: tuple[int, ...],
    norm: str | None,
    inverse: bool,
    kind: Kind = "fft",
    orthogonalize: bool | None = None,
) -> Transform:
    """Cosines and sines are orthogonalized by default if the norm is "ortho"."""
    check_once(dims)
    if not isinstance(kind, str):
        return _of_each(dims, lengths, norm, inverse, kind)
    check_known("kind", kind, KINDS)
    if kind not in FOURIER:
        family, type = FAMILIES[kind.startswith("dst")], int(kind[-1])
        orthogonal = norm == "ortho" if orthogonalize is None else bool(orthogonalize)
        waves = tuple(trig(family, type, length, orthogonal, inverse) for length in lengths)
        return Transform(dims, waves, math.prod(factor(int(wave.period), norm, inverse) for wave in waves))
    sign, change = (1 if inverse else -1), becomes(kind, inverse)
    matrices: list[Matrix] = [Roots(max(n, 1), sign, n, n) for n in lengths]
    if change is not None:
        matrices[-1] = HalfRoots(lengths[-1], sign, change == "real", change == "real")
    return Transform(dims, tuple(matrices), factor(math.prod(lengths), norm, inverse), kind == "fft" and not dims)


def _of_each(
    dims: tuple[int, ...], lengths: tuple[int, ...], norm: str | None, inverse: bool, kinds: tuple[str, ...]
) -> Transform:
    one = [transform_of((d,), (n,), norm, inverse, kind) for d, n, kind in zip(dims, lengths, kinds, strict=True)]
    if any(becomes(kind, inverse) for kind in kinds[:-1]):
        raise ValueError(f"kind is {kinds}: a real transform is that of the last axis, name it last in axes and kind")
    return Transform(dims, sum((part.matrices for part in one), ()), math.prod(part.scale for part in one))
