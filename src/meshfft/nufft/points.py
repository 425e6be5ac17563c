"""Scattered points: coordinates of samples of a spectrum, or of the z-plane in each dimension.

    X_j = sum_n x[n] exp(-2 pi i k_j . n)        n over d dimensions, k_j in turns (cycles per sample)
    X_j = sum_n x[n] z_j1^-n1 z_j2^-n2 ...       z_jm = r_jm exp(2 pi i k_jm)

Coordinates have period 1. Concrete ones are stored in float64 on the host, traced ones in their type or float32.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import DTypeLike

from ..layout.layout import line_shape
from ..layout.placement import to_host
from ..numerics.phases import Floats, Limbs, of_radii, snapped
from ..operators.matrices import Logarithm, limbs_of
from ..operators.points import PointValues, Unit, frozen, kind_of, log_of, turns_of, wide
from ..operators.transform import integers

NEAR = 64 * math.pi  # radians; up to here division by 2 pi errs by at most 1e-14 turns


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Scattered:
    """Points of a spectrum over d dimensions; made by `turns`, `radians`, `z`
    or `field_of_view`.

    A pytree, for `jit` and `grad`. Trajectories keep their shape, as (spokes,
    samples, d).

    Attributes:
        coords: their coordinates, of shape (..., d).
        unit: of the coordinates, "turns" or "radians".
        log_radius: natural logarithms of the radii, of the same shape; None on
            the unit circle.
        rest: errors of rounding log z to float64, on the host.

    >>> mf.Scattered.turns(np.zeros((100, 3)))
    <Scattered: 100 points in 3 dimensions, turns>
    """

    coords: Floats
    unit: Unit = dataclasses.field(metadata={"static": True})
    log_radius: Floats | None = None
    rest: Logarithm[np.ndarray] | None = None

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise ValueError(f"unit {self.unit!r} is unknown: use mf.Scattered.turns(k), .radians(k) or .field_of_view")

    @staticmethod
    def turns(coords: PointValues, radius: PointValues | None = None) -> "Scattered":
        """Points in cycles per sample; any real numbers, of period 1.

        Args:
            coords: of shape (..., d).
            radius: radii of the points in each dimension, 1 by default;
                broadcasts to coords. Off the unit circle use the sum itself:
                `kdftn`, or `nufftn` with method="kdft".

        Raises:
            ValueError, TypeError: not an array of shape (..., d), or one with
                an infinity or a NaN.
        """
        values = _received(coords)
        if isinstance(values, np.ndarray) and _like_radians(values):
            warnings.warn(
                "the points fill -pi to pi: as turns they repeat with period 1. Were these radians? "
                "Then use mf.Scattered.radians",
                stacklevel=2,
            )
        return _with_radius(values, "turns", radius)

    @staticmethod
    def radians(coords: PointValues, radius: PointValues | None = None) -> "Scattered":
        """Points in radians per sample, of period 2 pi, as finufft and NFFT
        libraries take them; `radius` as for `turns`.
        """
        return _with_radius(_received(coords), "radians", radius)

    @staticmethod
    def z(z: PointValues) -> "Scattered":
        """Nonzero points of the z-plane in each dimension, complex, of shape
        (..., d); rounding and radii near 1 as for `Points.z`.
        """
        values: Any = wide(z) if isinstance(z, Tracer) else to_host(z)
        if not isinstance(values, Tracer):
            _received(np.zeros(values.shape))  # checks the shape
            if kind_of(values.dtype) not in "iufc":
                raise TypeError(f"z is {values.dtype}: give complex numbers, of shape (..., d)")
            values = values.astype(np.complex128)
        angle, radius, rest = jax.tree.map(frozen, log_of(values))
        return Scattered(angle, "radians", radius, rest)

    @staticmethod
    def field_of_view(coords: PointValues, shape: Sequence[int]) -> "Scattered":
        """Points in cycles per field of view, from -N/2 to N/2 along a
        dimension of N samples, as sigpy and BART do.

        Args:
            coords: of shape (..., d).
            shape: the sizes N of the d dimensions.
        """
        values, sizes = _received(coords), integers(shape, "shape")
        if len(sizes) != values.shape[-1] or min(sizes) < 1:
            raise ValueError(
                f"shape {sizes} is that of {len(sizes)} dimensions, points have {values.shape[-1]} coordinates: give "
                "the size of the image, 1 or more along each"
            )
        lengths = np.array(sizes, values.dtype).reshape(line_shape(values.ndim - 1, values.ndim))
        return Scattered(frozen(values / lengths), "turns")

    @staticmethod
    def lengths(coords: PointValues) -> "Scattered":
        """Positions in any unit of length, without a period: for type 3."""
        return Scattered(_received(coords), "turns")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the points."""
        return tuple(self.coords.shape[:-1])

    @property
    def dims(self) -> int:
        """The number d of coordinates."""
        return int(self.coords.shape[-1])

    @property
    def size(self) -> int:
        """The number of points."""
        return math.prod(self.shape)

    @property
    def known(self) -> bool:
        """Whether the coordinates are numbers on the host."""
        return isinstance(self.coords, np.ndarray)

    @property
    def settled(self) -> "Scattered":
        """The points as checked numbers on the host, if they are concrete."""
        coords = self.coords
        ours = isinstance(coords, np.ndarray) and coords.dtype == np.float64 and not coords.flags.writeable
        if ours or isinstance(coords, Tracer) or isinstance(self.log_radius, Tracer):
            return self
        radius = None if self.log_radius is None else _received(self.log_radius)
        return Scattered(_received(self.coords), self.unit, radius, self.rest)

    @functools.cached_property
    def in_turns(self) -> np.ndarray:
        """The coordinates in turns, of shape (M, d), float64."""
        flat = np.asarray(self.coords).reshape(-1, self.dims)
        if self.unit == "turns":
            return flat
        if np.abs(flat).max(initial=0.0) <= NEAR:
            return flat / (2 * np.pi)
        return np.asarray(turns_of(flat))

    def operand(self, real: DTypeLike) -> Logarithm[Limbs] | Logarithm[Array]:
        """Coordinates, dimension first, for a dense sum; known ones as limbs."""
        if self.known:
            return _limbs(self, np.dtype(real))
        radius = None if self.log_radius is None else jnp.moveaxis(jnp.asarray(self.log_radius), -1, 0)
        return Logarithm(jnp.moveaxis(jnp.asarray(self.coords), -1, 0), radius)

    def check_range(self, sizes: Sequence[int], real: DTypeLike) -> None:
        """Raises ValueError if powers at a point leave the range of the type."""
        if not isinstance(self.log_radius, np.ndarray) or not self.size:
            return
        reach = np.abs(self.log_radius.reshape(-1, self.dims)) @ (np.array(sizes) - 1.0)
        worst, limit = int(np.argmax(reach)), float(np.log(jnp.finfo(real).max))
        if not reach[worst] <= limit:
            wider = ", or use precision='float64'" * (jnp.finfo(real).bits == 32)
            raise ValueError(
                f"point {worst} has log radii {self.log_radius.reshape(-1, self.dims)[worst].tolist()}, whose powers "
                f"for {tuple(sizes)} samples leave {jnp.finfo(real).dtype} (sum of |log r| n is {reach[worst]:.4g}, "
                f"the limit {limit:.4g}): keep radii nearer to 1{wider}"
            )

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Scattered):
            return self is other
        return self._key == other._key and all(map(_alike, jax.tree.leaves(self), jax.tree.leaves(other)))

    def __hash__(self) -> int:
        return hash(self._key)

    @functools.cached_property
    def _key(self) -> tuple[object, ...]:
        """Identity of traced points, or a sum of the bits of concrete ones."""
        return (*map(_identity, jax.tree.leaves(self)), self.coords.shape, self.unit)

    def __repr__(self) -> str:
        off = "" if self.log_radius is None else ", off the unit circle"
        return f"<Scattered: {' x '.join(map(str, self.shape))} points in {self.dims} dimensions, {self.unit}{off}>"


def known_kind(points: object) -> Scattered:
    if not isinstance(points, Scattered):
        raise TypeError(f"points is a {type(points).__name__}: say what the coordinates are, as mf.Scattered.turns(k)")
    return points


def anywhere(points: Scattered) -> Scattered:
    """Points of this shape and unit without coordinates: the cache key of plans."""
    shaped: Any = jax.ShapeDtypeStruct(points.coords.shape, np.float32)
    return Scattered(shaped, points.unit, None if points.log_radius is None else shaped)


@functools.lru_cache(maxsize=16)
def _limbs(points: Scattered, real: np.dtype) -> Logarithm[Limbs]:
    floats, rest = jax.tree.map(
        lambda leaf: np.moveaxis(np.asarray(leaf), -1, 0), (Logarithm(points.coords, points.log_radius), points.rest)
    )
    return limbs_of(floats, points.unit, real, rest)


def _identity(leaf: object) -> object:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype, int(_bits(leaf).sum(dtype=np.uint64))
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else id(leaf)


def _alike(leaf: object, other: object) -> bool:
    if leaf is other or not (isinstance(leaf, np.ndarray) and isinstance(other, np.ndarray)):
        return True
    return np.array_equal(_bits(leaf), _bits(other))


def _bits(leaf: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(leaf).view(f"u{min(leaf.itemsize, 8)}")


def _with_radius(coords: Floats, unit: Unit, radius: PointValues | None) -> Scattered:
    if radius is None:
        return Scattered(coords, unit)
    if isinstance(radius, Tracer) or isinstance(coords, Tracer):
        return Scattered(coords, unit, jnp.broadcast_to(jnp.log(wide(radius)), coords.shape))
    given = to_host(radius)
    if kind_of(given.dtype) not in "iuf":
        raise TypeError(f"radius is {given.dtype}: give positive real numbers")
    parts = of_radii(given)
    try:
        high, low = (frozen(np.array(np.broadcast_to(part, coords.shape))) for part in parts)
    except ValueError:
        raise ValueError(f"radius has shape {given.shape}: give one that broadcasts to {coords.shape}") from None
    return Scattered(coords, unit, snapped(high), Logarithm(frozen(np.zeros(coords.shape)), low))


def _received(coords: PointValues) -> Floats:
    if isinstance(coords, Scattered):
        raise TypeError("coords is a Scattered: give its coordinates, coords.coords, or use it as it is")
    values: Floats = coords if isinstance(coords, Tracer) else to_host(coords)
    if (kind := kind_of(values.dtype)) not in "iuf":
        raise TypeError(f"coords are {values.dtype}: give real numbers, of shape (..., d)")
    if values.ndim < 2 or values.shape[-1] == 0:
        raise ValueError(
            f"coords have shape {values.shape}: give (..., d), with one coordinate for each transformed dimension, as "
            "(1000, 1) in one dimension"
        )
    if not isinstance(values, np.ndarray):
        return wide(values if kind == "f" else values.astype(float))
    values = values.astype(np.float64)
    if not np.isfinite((values.min(initial=0.0), values.max(initial=0.0))).all():
        at = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(f"point {tuple(map(int, at[:-1]))} has coordinate {values[tuple(at)]}: drop it")
    return frozen(values)


def _like_radians(values: np.ndarray) -> bool:
    low, high, limit = float(values.min(initial=0.0)), float(values.max(initial=0.0)), np.pi * (1 + 1e-6)
    return -limit <= low < -2.5 and 2.5 < high <= limit
