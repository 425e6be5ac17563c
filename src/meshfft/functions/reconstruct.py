"""Images from scattered samples of their spectra, measured by several coils: CG-SENSE.

Its normal matrix is Toeplitz: per coil two FFTs of twice the size, without points. Each program ends before the next.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, block_until_ready
from jax.core import Tracer
from jax.sharding import AxisType, Mesh

from ..layout.layout import AnyMesh, Spec
from ..layout.padded_array import AnyArray, PaddedArray, stored_of
from ..nufft.functions import scattered_plan
from ..nufft.grid.window import check_tol
from ..nufft.penalties import PENALTIES
from ..nufft.plan import ScatteredPlan
from ..nufft.points import Scattered, known_kind
from ..nufft.problem import plain_number
from ..nufft.solvers import INNER, LeastSquares, descent, dot, of_unit, over, penalised, relative
from ..numerics.dtypes import complex_dtype
from ..numerics.split_complex import split
from ..operators.transform import integers, is_integer, reals
from .shard import shard

FAINT = 1e-6  # relative to the largest sum of squares of the maps; fainter pixels stay 0
BELOW = {"complex64": "complex128 values after jax.config.update('jax_enable_x64', True)"}  # for a smaller tolerance
MOST_EXPONENT = 100  # of a power of two that has an inverse in single precision
Report = Callable[[str, int, float], None]


class Reconstruction(NamedTuple):
    """An image that `reconstruct` found.

    Attributes:
        image: the image (without maps, one per coil), sharded as `spec`.
        residuals: of N x = b in `reconstruct`, relative, at the start and after
            every step; with `tv` or `wavelet` after every round of 5 steps.

    >>> points = mf.Scattered.turns([[0.0], [0.25], [0.5], [-0.25]])
    >>> found = mf.reconstruct(np.ones(4), points, (4,), iterations=2)
    >>> len(found.residuals)
    3
    """

    image: Array
    residuals: tuple[float, ...]


def reconstruct(
    values: AnyArray,
    points: Scattered | ScatteredPlan,
    shape: Sequence[int] | None = None,
    *,
    maps: AnyArray | None = None,
    iterations: int = 20,
    density: int = 12,
    l2: float = 0.0,
    tv: float = 0.0,
    wavelet: float = 0.0,
    mesh: AnyMesh | None = None,
    spec: Spec | None = None,
    tol: float = 1e-4,
    origin: str = "centre",
    report: Report = lambda part, done, residual: None,
) -> Reconstruction:
    """Reconstructs an image from several coils' samples of its spectrum, by
    CG-SENSE: conjugate gradients on the Toeplitz normal equations N x = b.

        min |A S x - d|^2 + l2 |x|^2,   N = S^H A^H A S,   b = S^H A^H d
        (A S x)_cj = sum_n S_cn x_n exp(-2 pi i k_j . n)

    With `tv` or `wavelet`, ADMM minimises

        |A S x - d|^2 / 2 + tv sum |grad x|
        |A S x - d|^2 / 2 + wavelet sum |details of W x|

    where W has four levels of orthogonal Haar wavelets; the averages of the
    last level are not penalised.

    Args:
        values: d, shaped as the points, (coils, ...) for several coils.
        points: k; or a plan for them and images (coils, *shape), which replaces
            shape, mesh, spec, tol and origin.
        shape: pixels of the image along each dimension.
        maps: S, complex (coils, *shape); None finds an image for every coil.
        iterations: steps of conjugate gradients; for ADMM in whole rounds of 5.
        density: rounds of Pipe and Menon's weights; steps start at the weighted
            adjoint, or from zeros if density is 0.
        l2, tv, wavelet: weights relative to the largest eigenvalue of N; tv and
            wavelet also to the start's brightest pixel. Give one of these two
            at most, on Auto axes, with density > 0.
        mesh, spec: how images (coils, *shape) are cut, evenly; by default
            mesh axis i cuts dimension i.
        tol: relative error of A, 1e-2 to 1e-6, or to 1e-12 in complex128.
        origin: "centre", pixels count from -(N // 2), or "corner", from 0.
        report: called with the part of the work ("normal operator", "adjoint",
            "density", "start", "solve"), steps done and the residual (NaN
            before the first).

    Raises:
        ValueError: values, maps, points, shape and mesh that do not fit; a
            weight below 0, or both penalties; a NaN or an infinity in the
            values or the maps.
        TypeError: traced values, maps or points, as inside `jit`.

    Costs a plan, an adjoint of 2^d times the pixels, `density` gridding rounds
    without an FFT, and per step and coil an FFT of 2^d times the pixels forward
    and back; ADMM 7 / 5 of that, and halos. Source: Pruessmann et al.,
    "Advances in sensitivity encoding with arbitrary k-space trajectories", MRM
    2001.

    >>> k = mf.Scattered.turns([[0.0], [0.25], [0.5], [-0.25]])
    >>> found = mf.reconstruct([4.0, 0.0, 0.0, 0.0], k, (4,), iterations=4)
    >>> np.abs(found.image).round(2).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    _check_arguments(values, points, maps)
    _check_numbers(iterations, density, {"l2": l2, "tv": tv, "wavelet": wavelet})
    data = values if isinstance(values, Array | PaddedArray) else np.asarray(values)
    if not isinstance(points, ScatteredPlan):
        images = coil_images(data.shape, points.shape, _sizes(shape, known_kind(points)))
        check_maps(None if maps is None else np.shape(maps), images, points.dims)
        dtype = complex_dtype(np.dtype(jax.dtypes.canonicalize_dtype(data.dtype)), None)
        check_tol(plain_number(tol), dtype, BELOW)
        plan = scattered_plan(images, points, dtype=dtype, mesh=mesh, spec=spec, tol=tol, origin=origin)
    elif shape is None and mesh is None and spec is None:
        plan = points
    else:
        raise ValueError("the plan says shape, mesh and spec: leave them out, or give points in its place")
    penalty = next(((name, weight) for name, weight in (("tv", tv), ("wavelet", wavelet)) if weight), None)
    _check_plan(plan, data.shape, penalty and penalty[0])
    problem = _problem(plan, data, _placed(plan, maps), density=density, unit=bool(l2 or penalty), report=report)
    return _solved(problem, iterations, l2, penalty, report)


def _check_arguments(values: AnyArray, points: Scattered | ScatteredPlan, maps: AnyArray | None) -> None:
    if isinstance(values, tuple) or isinstance(maps, tuple):  # a pair looks like two coils
        raise TypeError("the values or the maps are a tuple, as pairs (re, im) are: give a complex array")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((values, maps, points))):
        within = "inside solve A^H A x = A^H d, by plan.normal() and plan.adjoint of a mf.scattered_plan"
        raise TypeError(f"the values, maps or points are traced: call it outside of jit, grad and vmap; {within}")


def _sizes(shape: Sequence[int] | None, points: Scattered) -> tuple[int, ...]:
    if shape is None:
        raise ValueError("the size of the image is not given: give shape=(128, 128), pixels along each dimension")
    sizes = integers(shape, "shape")
    if len(sizes) != points.dims:
        raise ValueError(f"shape is {sizes}, the points have {points.dims} coordinates: give a size for each")
    return sizes


def _check_plan(plan: ScatteredPlan, values: tuple[int, ...], penalty: str | None) -> None:
    if penalty and isinstance(plan.mesh, Mesh) and AxisType.Explicit in plan.mesh.axis_types:
        raise ValueError(
            f"{penalty} takes differences across the blocks of Auto mesh axes, and this mesh has Explicit ones: make "
            "it with axis_types=(jax.sharding.AxisType.Auto,) * n"
        )
    images = plan.in_layout.shape
    wanted = (*images[: len(images) - len(plan.dims)], *plan.points.shape)
    if values != wanted:
        raise ValueError(f"the values have shape {values}, the plan's have {wanted}: give values of that shape")
    if not plan.in_layout.even:
        raise ValueError(f"the mesh does not cut images {images} evenly: give other sizes, another mesh or spec=")


def coil_images(values: tuple[int, ...], points: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of all coils' images; ValueError unless each point has one value."""
    rest = len(values) - len(points)
    if rest not in (0, 1) or values[rest:] != points:
        both = f"the values have shape {values} and the points {points}"
        raise ValueError(f"{both}: give one value for each point, with the coils before them")
    return (*values[:rest], *shape)


def check_maps(maps: tuple[int, ...] | None, images: tuple[int, ...], dims: int) -> None:
    """Raises ValueError unless each coil's image has a map, or none has."""
    if maps is not None and (maps != images or len(images) != dims + 1):
        wanted = f"maps of shape {images}" if len(images) > dims else "none for values without coils"
        raise ValueError(f"the maps have shape {maps} and the coils' images {images}: give {wanted}")


def _check_numbers(iterations: int, density: int, weights: dict[str, float]) -> None:
    for name, count in (("iterations", iterations), ("density", density)):
        if not is_integer(count) or count < 0:
            raise ValueError(f"{name} is {count!r}: give a whole number, 0 or more")
    for name, weight in weights.items():
        if (real := reals((weight,))) is None or not (math.isfinite(real[0]) and real[0] >= 0):
            raise ValueError(f"{name} is {weight!r}, which is no weight: give 0 or more, as 1e-4")
    penalties = [name for name in PENALTIES if weights[name]]
    if len(penalties) > 1:
        raise ValueError(f"tv is {weights['tv']:g} and wavelet {weights['wavelet']:g}: leave one out")
    if penalties and not density:
        raise ValueError(f"{penalties[0]} is relative to the start, and density=0 starts from zero: leave one out")


def _placed(plan: ScatteredPlan, maps: AnyArray | None) -> Array | None:
    if maps is None:
        return None
    check_maps(tuple(np.shape(maps)), plan.in_layout.shape, len(plan.dims))
    dtype, mesh = plan.dtype, plan.mesh
    typed = maps if isinstance(maps, Array) and maps.dtype == dtype else np.asarray(maps).astype(dtype)
    return stored_of(shard(typed, mesh, plan.in_layout.spec)) if isinstance(mesh, Mesh) else jnp.asarray(typed)


def _solved(
    problem: LeastSquares, iterations: int, l2: float, penalty: tuple[str, float] | None, report: Report
) -> Reconstruction:
    size, residuals = INNER if penalty else 1, list[float]()
    found = descent(problem, l2)
    if penalty:
        found = penalised(problem, PENALTIES[penalty[0]](problem.dims), penalty[1], l2)
    for count, now in enumerate(itertools.islice(found, -(-iterations // size) + 1)):
        residuals.append(relative(problem, now))
        if not math.isfinite(residuals[-1]):
            raise ValueError("the values, or the maps, hold a NaN or an infinity: put 0 in its place")
        report("solve", min(size * count, iterations), residuals[-1])
    return Reconstruction(functools.reduce(operator.mul, problem.units, now.image), tuple(residuals))


def _problem(
    plan: ScatteredPlan, values: AnyArray, maps: Array | None, *, density: int, unit: bool, report: Report
) -> LeastSquares:
    """The least-squares problem; if `unit`, weights are relative to the largest eigenvalue of N.

    The start is the adjoint of compensated samples over the maps' sum of squares, scaled to fit the samples.
    """
    report("normal operator", 0, math.nan)
    toeplitz = plan.normal()
    block_until_ready(toeplitz.kernel)
    maps, unit_of_maps = (None, 1.0) if maps is None else _of_size_one(maps)

    def normal(x: Array) -> Array:
        product: Array = block_until_ready(_combined(maps, toeplitz(_seen(maps, x))))
        return product

    report("adjoint", 0, math.nan)
    placed, unit_of_data = _of_size_one(block_until_ready(plan.place(values)))
    right = block_until_ready(_combined(maps, plan.adjoint(placed, placed=True)))
    units = (unit_of_data, 1 / unit_of_maps)
    problem = LeastSquares(normal, right, jnp.zeros_like(right), len(plan.dims), units)
    if density:
        report("density", 0, math.nan)
        weights = jnp.expand_dims(
            block_until_ready(plan.density(density)).astype(placed.dtype), tuple(range(placed.ndim - 1))
        )
        report("start", 0, math.nan)
        image = block_until_ready(_bare(maps, _combined(maps, plan.adjoint(placed * weights, placed=True))))
        problem = problem._replace(start=block_until_ready(_fitted(image, right, normal(image))))
    return of_unit(problem) if unit else problem


def _of_size_one(x: Array) -> tuple[Array, float]:
    """x / u of size about 1, and the power of two u: squares of 1e-20 or 1e20 leave single precision."""
    size = max(float(jnp.max(jnp.abs(part), initial=0)) for part in split(x))
    unit = 2.0 ** max(-MOST_EXPONENT, min(MOST_EXPONENT, math.frexp(size)[1]))
    return block_until_ready(x * (1 / unit)), unit


@jax.jit
def _fitted(image: Array, right: Array, product: Array) -> Array:
    fitted: Array = image * over(dot(image, right), dot(image, product)).astype(image.dtype)
    return fitted


@jax.jit
def _seen(maps: Array | None, x: Array) -> Array:
    return x if maps is None else maps * x[None]


@jax.jit
def _combined(maps: Array | None, images: Array) -> Array:
    return images if maps is None else jnp.sum(jnp.conj(maps) * images, 0)


@jax.jit
def _bare(maps: Array | None, image: Array) -> Array:
    if maps is None:
        return image
    power = jnp.sum(jnp.abs(maps) ** 2, 0)
    return over(image, jnp.where(power > FAINT * jnp.max(power), power, 0).astype(image.dtype))
