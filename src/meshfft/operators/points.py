"""Points: where a transform samples the z-plane along one dimension.

    X[k] = sum_n x[n] z_k^-n,   z_k = r_k exp(2 pi i t_k)

A point is kept as its logarithm, an angle and log r_k, so that powers neither overflow early nor lose phase. What is
given as NumPy arrays, lists or concrete JAX arrays is kept in float64; what JAX is differentiating or compiling stays
traced, in its own type.
"""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from ..layout.gathering import to_host
from ..layout.memory import check_held
from ..numerics.dtypes import real_dtype
from ..numerics.norms import factor
from ..numerics.phases import of_radians
from .matrices import Logarithm, Matrix, Roots, Samples, limbs_of
from .transform import Transform, is_integer

Unit = Literal["turns", "radians"]
Numbers = ArrayLike | Sequence[complex]
APART = (
    "kdftn samples the grid of all combinations of the points of its axes; scattered points, each with coordinates of "
    "its own, are another transform, which meshfft does not have yet"
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """The samples of one dimension; made by `uniform`, `turns`, `radians`, `z`, `zoom` or `chirp`.

    A pytree, so that it can be an argument of `jit` and `grad`.

    Attributes:
        angle: the angles of the samples, of shape (M,); None where they are uniform.
        log_radius: natural logarithms of their radii, of shape (M,); None on the unit circle.
        unit: of the angles, "turns" or "radians".
        size: the number M of samples.
    """

    angle: Any
    log_radius: Any
    unit: Unit = dataclasses.field(metadata={"static": True})
    size: int = dataclasses.field(metadata={"static": True})

    @staticmethod
    def uniform(n: int) -> "Points":
        """The n-th roots of unity, exp(2 pi i k / n); more or fewer of them than there are inputs."""
        return Points(None, None, "turns", _count("uniform has n", n))

    @staticmethod
    def turns(t: Numbers, radius: Numbers | None = None) -> "Points":
        """radius exp(2 pi i t): frequencies in cycles per sample. No digit is lost, however large n t is."""
        return _points(t, _logarithm(radius), "turns")

    @staticmethod
    def radians(w: Numbers, radius: Numbers | None = None) -> "Points":
        """radius exp(i w): angular frequencies in radians per sample. No digit is lost for w below 1e30."""
        return _points(w, _logarithm(radius), "radians")

    @staticmethod
    def z(z: Numbers) -> "Points":
        """Any points but zero, on the unit circle or off it.

        Rounding of z itself, 1e-16 in complex128, is multiplied by n: give turns or radians where they are known. Radii
        within that of 1 are 1.
        """
        values = _received(z, complex_too=True)
        if not isinstance(values, np.ndarray):
            return _points(jnp.angle(values), jnp.log(jnp.abs(values)), "radians")
        if values.ndim != 1:
            raise ValueError(_flat(values.shape))
        zero = np.flatnonzero(values == 0)
        if zero.size:
            raise ValueError(f"point {_first(zero)} is z = 0, which has no power -n: drop it")
        return _points(np.angle(values), _snapped(np.log(np.abs(values))), "radians")

    @staticmethod
    def zoom(f0: Any, f1: Any, m: int) -> "Points":
        """m samples of the unit circle from f0 to f1 cycles per sample, f1 left out (scipy.signal.zoom_fft at fs=1)."""
        m = _count("zoom has m", m)
        _check_numbers("zoom", f0=f0, f1=f1)
        _check_many("zoom", m)
        return _points(_line(f0, (f1 - f0) / m, m), None, "turns")

    @staticmethod
    def chirp(a: Any, w: Any, m: int) -> "Points":
        """The spiral z_k = a w^-k for k < m (scipy.signal.czt); rounding of a and w as in `z`."""
        m = _count("chirp has m", m)
        _check_numbers("chirp", a=a, w=w)
        _check_many("chirp", m)
        traced = isinstance(a, jax.core.Tracer) or isinstance(w, jax.core.Tracer)
        xp = jnp if traced else np
        if not traced and (a == 0 or w == 0):
            raise ValueError(f"chirp has a = {a}, w = {w}: neither may be 0")
        turn = [xp.angle(v) / (2 * np.pi) for v in (a, w)]
        radius = [xp.log(xp.abs(v)) for v in (a, w)]
        if not traced and _snapped(np.array(radius)) is None:
            return _points(_line(turn[0], -turn[1], m), None, "turns")
        return _points(_line(turn[0], -turn[1], m), _line(radius[0], -radius[1], m), "turns")

    @property
    def settled(self) -> "Points":
        """The points as numbers on the host, where they came back from JAX as concrete arrays."""
        leaves = (self.angle, self.log_radius)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or self.known:
            return self
        angle, radius = (None if leaf is None else _frozen(to_host(leaf).astype(np.float64)) for leaf in leaves)
        return Points(angle, radius, self.unit, self.size)

    @property
    def known(self) -> bool:
        """True where the points are uniform or numbers on the host."""
        return all(leaf is None or isinstance(leaf, np.ndarray) for leaf in (self.angle, self.log_radius))

    @property
    def in_turns(self) -> Any:
        """The angles in turns."""
        if self.angle is None:
            return np.arange(self.size) / self.size
        if self.unit == "turns":
            return self.angle
        return sum(limb * 2.0 ** (-32 * j) for j, limb in enumerate(of_radians(self.angle, 3), 1))

    def matrix(self, columns: int) -> Matrix:
        """The Vandermonde matrix of these points and so many inputs."""
        if self.angle is None:
            return Roots(self.size, -1, self.size, max(columns, self.size))
        return Samples(self.size, columns, None if self.known else self.unit)

    def operand(self, real: jax.typing.DTypeLike) -> Logarithm | None:
        """What the matrix needs of them: nothing, limbs made on the host, or the traced floats themselves."""
        if self.angle is None:
            return None
        floats = Logarithm(self.angle, self.log_radius)
        return limbs_of(floats, self.unit, real) if self.known else floats

    def check_range(self, columns: int, real: jax.typing.DTypeLike, name: str) -> None:
        """Raises ValueError where a power z^-n leaves the type, naming the worst point."""
        if self.log_radius is None or not self.known or columns < 2:
            return
        limit, reach = float(np.log(jnp.finfo(real).max)), np.abs(self.log_radius) * (columns - 1)
        worst = int(np.argmax(reach))
        radius, most = float(self.log_radius[worst]), limit / (columns - 1)
        if not reach[worst] <= limit:
            raise ValueError(
                f"{name}: point {worst} has radius {np.exp(radius):.6g}, and its powers up to {columns - 1} leave "
                f"{jnp.finfo(real).dtype} (|log r| n is {reach[worst]:.4g}, the limit {limit:.4g}): keep radii between "
                f"{np.exp(-most):.6g} and {np.exp(most):.6g}, or use precision='float64'"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        leaves = (self.angle, self.log_radius)
        return (*(leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves), self.unit, self.size)

    def __repr__(self) -> str:
        kind = "uniform" if self.angle is None else "on the unit circle" if self.log_radius is None else "off it"
        return f"<Points: {self.size}, {kind}>"


def sampled(
    shape: Sequence[int], dims: tuple[int, ...], points: tuple[Points | None, ...], norm: str | None, dtype: np.dtype
) -> Transform:
    """The KDFT of some dimensions at points, one entry for each; None means as many uniform ones as inputs.

    Raises:
        ValueError: the norm is unknown, or powers of a point leave the type.
    """
    real, matrices = real_dtype(dtype), []
    for dim, chosen in zip(dims, points, strict=True):
        chosen = Points.uniform(max(shape[dim], 1)) if chosen is None else chosen
        chosen.check_range(shape[dim], real, f"points of axis {dim}")
        matrices.append(chosen.matrix(shape[dim]))
    return Transform(dims, tuple(matrices), factor(math.prod(shape[d] for d in dims), norm, False))


def _points(angle: Numbers, log_radius: Any, unit: Unit) -> Points:
    values = _received(angle, complex_too=False)
    if values.ndim != 1 or values.size < 1:
        raise ValueError(_flat(values.shape))
    log_radius = _spread(log_radius, values)
    known = [leaf for leaf in (values, log_radius) if isinstance(leaf, np.ndarray)]
    for leaf in known:
        strange = np.flatnonzero(~np.isfinite(leaf))
        if strange.size:
            raise ValueError(f"point {_first(strange)} is not finite: give finite points")
    return Points(_frozen(values), _frozen(log_radius), unit, int(values.shape[0]))


def _count(name: str, many: Any) -> int:
    """A number of points, at least one."""
    if not is_integer(many) or not many >= 1:
        raise ValueError(f"{name} = {many!r}: give the number of points, at least 1")
    return operator.index(many)


def _check_many(name: str, m: int) -> None:
    """Raises MemoryError where so many points, and what they are worked out from, cannot be made."""
    check_held(4 * 8 * m, f"{name} has m = {m} points, which", "give fewer points")


def _frozen(values: Any) -> Any:
    """Host numbers that nobody can change under a plan."""
    if isinstance(values, np.ndarray):
        values = values.copy()
        values.setflags(write=False)
    return values


def _check_numbers(name: str, **values: Any) -> None:
    """Raises unless these are finite numbers, or traced."""
    for key, value in values.items():
        if not isinstance(value, jax.core.Tracer):
            number = np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biufc"
            if not number:
                raise TypeError(f"{name} has {key} = {value!r}: give a number")
            if not np.isfinite(value):
                raise ValueError(f"{name} has {key} = {value}, which is not finite: give a finite number")


def _spread(log_radius: Any, angle: Any) -> Any:
    """One radius for each angle."""
    if log_radius is None or log_radius.shape == angle.shape:
        return log_radius
    if log_radius.ndim != 0:
        raise ValueError(f"there are {log_radius.shape} radii for {angle.shape} angles: give one, or one for each")
    return (np if isinstance(log_radius, np.ndarray) else jnp).broadcast_to(log_radius, angle.shape)


def _logarithm(radius: Any) -> Any:
    """The natural logarithm of radii, or None where there are none."""
    if radius is None:
        return None
    values = _received(radius, complex_too=False)
    if not isinstance(values, np.ndarray):
        return jnp.log(values)
    bad = np.flatnonzero(~(values > 0))
    if bad.size:
        raise ValueError(f"radius {_first(bad)} is {values.ravel()[_first(bad)]}: give positive radii")
    return np.asarray(np.log(values))


def _snapped(log_radius: np.ndarray) -> np.ndarray | None:
    """None for radii that are 1 to rounding."""
    return log_radius if np.abs(log_radius).max(initial=0.0) > 4 * np.finfo(np.float64).eps else None


def _received(values: Any, complex_too: bool) -> Any:
    """Host numbers in 64 bits, traced ones as they are."""
    if isinstance(values, jax.core.Tracer):
        kind = jnp.floating if not complex_too else jnp.inexact
        if not jnp.issubdtype(values.dtype, kind):
            raise TypeError(f"points are traced {values.dtype}: give floats")
        return values
    array = to_host(values)
    if array.dtype.kind not in "biuf" + "c" * complex_too:
        raise TypeError(f"points are {array.dtype}: give real numbers")
    return array.astype(np.complex128 if complex_too else np.float64)


def _line(start: Any, step: Any, m: int) -> Any:
    """start + k step for k < m, with the products exact in turns: step's upper half first, modulo one."""
    if isinstance(start, jax.core.Tracer) or isinstance(step, jax.core.Tracer):
        return start + step * jnp.arange(m, dtype=jnp.result_type(start, step))
    high = float(np.float32(step))
    k = np.arange(m)
    return start + (k * high + k * (float(step) - high))


def _flat(shape: tuple[int, ...]) -> str:
    several = f". {APART}" if len(shape) > 1 else ""
    return f"points have shape {shape}: give a sequence of at least one, for one dimension{several}"


def _first(indices: np.ndarray) -> int:
    return int(indices[0]) if indices.size else 0
