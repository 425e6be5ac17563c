"""Points: samples of the z-plane along one dimension.

    X[k] = sum_n x[n] z_k^-n,   z_k = r_k exp(2 pi i t_k)

Points are stored as an angle and log r_k, so that powers do not overflow early or lose phase: known ones in float64,
their logarithms in two; traced ones in their type, or in float32 if that is narrower.
"""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike

from ..layout.memory import check_held
from ..layout.placement import to_host
from ..numerics.phases import Floats, Limbs, finite, logarithm, of_radians, of_radii, snapped, spiral
from .matrices import Logarithm, Matrix, Roots, Samples, limbs_of
from .transform import is_integer

F = TypeVar("F")
Unit = Literal["turns", "radians"]
PointValues = ArrayLike | Sequence[object]
SCATTERED = (
    "Points sample the grid of all combinations of those of each axis; scattered points, each with coordinates of its "
    "own, are mf.Scattered.turns(k), of shape (..., d)"
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """The samples of one dimension; made by `uniform`, `turns`, `radians`,
    `z`, `zoom` or `chirp`. A pytree.

    Attributes:
        angle: the angles of the samples, of shape (M,); None if uniform.
        log_radius: natural logarithms of their radii, of shape (M,); None on
            the unit circle.
        unit: of the angles, "turns" or "radians".
        size: the number M of samples.
        rest: errors of rounding log z to float64, on the host.

    >>> mf.Points.zoom(0.1, 0.2, 64)
    <Points: 64 on the unit circle, 0.1 to 0.198438 turns>
    """

    angle: Floats | None
    log_radius: Floats | None
    unit: Unit = dataclasses.field(metadata={"static": True})
    size: int = dataclasses.field(metadata={"static": True})
    rest: Logarithm[Floats] | None = None

    @staticmethod
    def uniform(n: int) -> "Points":
        """The n-th roots of unity, exp(2 pi i k / n), for any number of inputs."""
        return Points(None, None, "turns", _count("uniform has n", n))

    @staticmethod
    def turns(t: PointValues, radius: PointValues | None = None) -> "Points":
        """radius exp(2 pi i t): frequencies in cycles per sample, exact however
        large n t is.
        """
        return _points(t, radius, "turns")

    @staticmethod
    def radians(w: PointValues, radius: PointValues | None = None) -> "Points":
        """radius exp(i w): angular frequencies in radians per sample, exact for
        w below 1e30.
        """
        return _points(w, radius, "radians")

    @staticmethod
    def z(z: PointValues) -> "Points":
        """Any nonzero points, on the unit circle or off it.

        The rounding of z, 1e-16 in complex128, is multiplied by n: pass turns
        or radians instead. Radii are 1 if all are within 8e-16 of 1.
        """
        return _kept("radians", *log_of(_flat(_received(z, complex_too=True))))

    @staticmethod
    def zoom(f0: float | Array, f1: float | Array, m: int) -> "Points":
        """m samples of the unit circle from f0 to f1 cycles per sample, f1 left
        out (scipy.signal.zoom_fft at fs=1).
        """
        m = _check_line("zoom", m, f0=f0, f1=f1)
        f0, f1 = (wide(f) if isinstance(f, Tracer) else float(f) for f in (f0, f1))  # their own type may be too narrow
        return _points(_line(f0, (f1 - f0) / m, m), None, "turns")

    @staticmethod
    def chirp(a: complex | Array, w: complex | Array, m: int) -> "Points":
        """The spiral z_k = a w^-k for k < m (scipy.signal.czt); rounding of a
        and w as in `z`.
        """
        m = _check_line("chirp", m, a=a, w=w)
        traced = isinstance(a, Tracer) or isinstance(w, Tracer)
        if not traced and (a == 0 or w == 0):
            raise ValueError(f"chirp has a = {a}, w = {w}: neither may be 0")
        if traced:
            (t, r), (turned, grown) = ((jnp.angle(v) / (2 * np.pi), jnp.log(jnp.abs(v))) for v in map(wide, (a, w)))
            return _kept("turns", _line(t, -turned, m), _line(r, -grown, m))
        radius, angle = spiral(a, w, m)
        off = snapped(np.log(np.abs(np.array([a, w])))) is not None
        return _kept("radians", angle[0], radius[0] if off else None, Logarithm(angle[1], radius[1]))

    @property
    def settled(self) -> "Points":
        """The points, with JAX's concrete arrays copied to the host."""
        if self.known or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            return self
        return jax.tree.map(lambda leaf: frozen(to_host(leaf).astype(np.float64)), self)

    @property
    def known(self) -> bool:
        return all(leaf is None or isinstance(leaf, np.ndarray) for leaf in (self.angle, self.log_radius))

    @property
    def in_turns(self) -> Floats:
        if self.angle is None:
            return np.arange(self.size) / self.size
        if self.unit == "turns":
            return self.angle
        return turns_of(self.angle)

    def matrix(self, columns: int) -> Matrix:
        if self.angle is None:
            return Roots(self.size, -1, self.size, max(columns, self.size))
        return Samples(self.size, columns, None if self.known else self.unit)

    def operand(self, real: DTypeLike) -> Logarithm[Floats] | Logarithm[Limbs] | None:
        """The matrix's operand: nothing, limbs made on the host, or traced floats."""
        if self.angle is None:
            return None
        floats = Logarithm(self.angle, self.log_radius)
        return limbs_of(floats, self.unit, real, self.rest) if self.known else floats

    def check_range(self, columns: int, real: DTypeLike, name: str) -> None:
        """Raises ValueError if a power z^-n of the worst point leaves the type."""
        if self.log_radius is None or not self.known or columns < 2:
            return
        limit, reach = float(np.log(jnp.finfo(real).max)), np.abs(self.log_radius) * (columns - 1)
        worst, most = int(np.argmax(reach)), limit / (columns - 1)
        if not reach[worst] <= limit:
            raise ValueError(
                f"{name}: point {worst} has radius {np.exp(float(self.log_radius[worst])):.6g}, and its powers up to "
                f"{columns - 1} leave {jnp.finfo(real).dtype} (|log r| n is {reach[worst]:.4g}, the limit "
                f"{limit:.4g}): keep radii between {np.exp(-most):.6g} and {np.exp(most):.6g}, or use "
                "precision='float64'"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        leaves = (leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf for leaf in jax.tree.leaves(self))
        return (*leaves, self.unit, self.size)

    def __repr__(self) -> str:
        if self.angle is None:
            return f"<Points: {self.size}, uniform>"
        angles = f"{_extent(self.angle)} {self.unit}"
        if self.log_radius is None:
            return f"<Points: {self.size} on the unit circle, {angles}>"
        return f"<Points: {self.size} off the unit circle, {angles}, log radii {_extent(self.log_radius)}>"


def turns_of(radians: Floats) -> Floats:
    """Turns modulo 1 of any radians, exact to a rounding."""
    high, middle, low = of_radians(radians, 3)
    return high * 2.0**-32 + middle * 2.0**-64 + low * 2.0**-96


def log_of(z: Floats) -> tuple[Floats, Floats | None, Logarithm[Floats] | None]:
    """Angles and log radii of nonzero points and, on the host, what these lose as float64."""
    if not isinstance(z, np.ndarray):
        return jnp.angle(z), jnp.log(jnp.abs(z)), None
    if (z == 0).any():
        at = ", ".join(map(str, np.argwhere(z == 0)[0]))
        raise ValueError(f"point {at} is z = 0, which has no power -n: drop it")
    radius, angle = logarithm(z)
    return angle[0], snapped(radius[0]), Logarithm(angle[1], radius[1])


def wide(values: Any) -> Array:
    """Numbers of at least 32 bits, as fixed-point digits and logarithms overflow or round in narrower floats."""
    numbers = jnp.asarray(values)
    return numbers if numbers.dtype.itemsize >= 4 else numbers.astype(jnp.float32)


def kind_of(dtype: np.dtype) -> str:
    """NumPy's kind of a type, "f" for bfloat16 too."""
    return "f" if jnp.issubdtype(dtype, jnp.floating) else dtype.kind


def frozen(values: F) -> F:
    """The values, which nobody can change under a plan."""
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
    return values


def _points(angle: PointValues, radius: PointValues | None, unit: Unit) -> Points:
    values = _flat(_received(angle, complex_too=False))
    if radius is None:
        return _kept(unit, values, None)
    given = _received(radius, complex_too=False)
    if given.shape not in ((), values.shape):
        raise ValueError(f"there are {given.shape} radii for {values.shape} angles: give one, or one for each")
    if not isinstance(given, np.ndarray):
        return _kept(unit, values, jnp.broadcast_to(jnp.log(given), values.shape))
    high, low = (np.broadcast_to(part, values.shape) for part in of_radii(given))
    return _kept(unit, values, high, Logarithm(np.zeros(values.shape), low))


def _kept(unit: Unit, angle: Floats, log_radius: Floats | None, rest: Logarithm[Floats] | None = None) -> Points:
    rest = jax.tree.map(lambda leaf: frozen(finite(leaf)), rest)
    return Points(frozen(finite(angle)), frozen(log_radius), unit, int(angle.shape[0]), rest)


def _extent(values: object) -> str:
    return f"{values.min():.6g} to {values.max():.6g}" if isinstance(values, np.ndarray) else "unknown"


def _count(name: str, many: object) -> int:
    if not is_integer(many) or operator.index(many) < 1:
        raise ValueError(f"{name} = {many!r}: give the number of points, at least 1")
    return operator.index(many)


def _check_line(name: str, m: int, **numbers: complex | Array) -> int:
    m = _count(f"{name} has m", m)
    for key, value in numbers.items():
        if isinstance(value, Tracer):
            continue
        if np.ndim(value) != 0 or kind_of(np.asarray(value).dtype) not in "biufc":
            raise TypeError(f"{name} has {key} = {value!r}: give a number")
        if not np.isfinite(value):
            raise ValueError(f"{name} has {key} = {value}, which is not finite: give a finite number")
    check_held(4 * 8 * m, f"{name} has m = {m} points, which", "give fewer points")
    return m


def _received(values: PointValues, complex_too: bool) -> Floats:
    if isinstance(values, Tracer):
        if not jnp.issubdtype(values.dtype, jnp.inexact if complex_too else jnp.floating):
            raise TypeError(f"points are traced {values.dtype}: give floats")
        return wide(values)
    array = to_host(values if isinstance(values, jax.Array) else np.asarray(values))
    if kind_of(array.dtype) not in "biuf" + "c" * complex_too:
        raise TypeError(f"points are {array.dtype}: give real numbers")
    return array.astype(np.complex128 if complex_too else np.float64)


def _line(start: float | Array, step: float | Array, m: int) -> Floats:
    """start + k step for k < m, exact in turns: multiplies the upper half of step first."""
    if isinstance(start, Tracer) or isinstance(step, Tracer):
        return start + step * jnp.arange(m, dtype=jnp.result_type(start, step))
    high = float(np.float32(step))
    k = np.arange(m)
    return start + (k * high + k * (float(step) - high))


def _flat(values: Floats) -> Floats:
    if values.ndim != 1 or values.size < 1:
        several = f". {SCATTERED}" if values.ndim > 1 else ""
        raise ValueError(
            f"points have shape {values.shape}: give a sequence of at least one, for one dimension{several}"
        )
    return values
