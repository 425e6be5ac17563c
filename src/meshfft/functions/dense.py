"""Dense operators, one matrix for each dimension: the paper's KDFT at any points, its inverse, and any matrices.

    Y = (M_1 x M_2 x ...) vec(x)   (x: the Kronecker product)

Every dimension goes over its own one-shuffle ring; only what a matrix is differs.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..layout.layout import Spec
from ..layout.padded_array import AnyArray
from ..numerics.dtypes import check_numeric, complex_dtype, dots_of, real_dtype
from ..operators.matrices import Blocks, Dense, Matrix
from ..operators.operands import entries, sampled
from ..operators.points import Points
from ..operators.scattered import Scattered
from ..operators.transform import Transform, resolve_once
from ..plans.at_points import at_points
from ..plans.execute import moved
from ..plans.inverse_solve import Solution, System, solution
from ..plans.planning import Options, PointsLike, plan_for
from ..plans.request import Setting, read
from .calls import Ints, options_of, with_options


class DenseHow(TypedDict, total=False):
    """The options of dense products: `kdftn` says what they are."""

    spec: Spec | None
    out_spec: Spec | None
    precision: str | None
    multiplications: int | None


class RingHow(DenseHow, total=False):
    """Those, and the mode of rings."""

    ring: str


@with_options
def kdftn(
    x: AnyArray,
    points: PointsLike | Scattered = None,
    *,
    axes: Ints = None,
    norm: str | None = None,
    **how: Unpack[RingHow],
) -> Array:
    """The discrete Fourier transform at any points, uniform or not, by dense Vandermonde products.

        X = (V_1 x V_2 x ...) vec(x),   V_i[k, n] = z_ik^-n   (x: the Kronecker product)
        c_j = sum_n x[n] exp(-2 pi i k_j . n)                 at Scattered points

    Any size on any mesh, any number of points; several axes are sampled at all combinations of their points, or at
    Scattered ones, each with coordinates of its own. Every device makes its rows of V_i block by block, from exact
    phases.

    Args:
        x: a sharded, replicated or single-device array of any numeric type, or its real and imaginary part (re, im).
        points: one Points for each axis; None, there or instead of all, means as many uniform ones as inputs. Or a
            Scattered, with one coordinate for each axis; `axes` are then the last by default.
        norm: as `fftn`, of the number of inputs.
        axes, spec, out_spec: as `fftn`.
        precision: "float32", "float64", or of bfloat16 "bf16x6" (like float32), "bf16x3" (1e-5), "bf16" (3e-3).
        multiplications: 3 or 4 real products for a complex one; by default the cheapest within the precision.
        ring: "one-way", as the paper's one-shuffle scheme sends (Algorithm 1): p - 1 hops to one neighbour; "two-way":
            half of the blocks to each, in half the steps; "auto": the cheaper by the model. Sums that travel, as in
            gradients where points differ, go one way.

    Returns:
        The spectrum, sharded as the array came where the numbers of points divide. At Scattered points, the values:
        batch dimensions first, then those of the points, cut by all mesh axes that cut the image, outermost first, each
        along the first dimension of the points that it divides (where it divides none, a PaddedArray).

    Raises:
        ValueError, TypeError: as `fftn`; a point whose powers leave the type; numbers of points that do not divide; a
            grid of points that is raveled into one list for each axis.

    Costs per device and dimension 8 M_i flops a point of its block, and P_i - 1 hops of the block to a neighbour, which
    can run under the products. Differentiable in x and in the points; each gradient costs as much again. M Scattered
    points of N numbers on P devices cost each 8 M N / P flops and P - 1 hops; their gradient as much for each axis.
    Where N is above some 10,000 `nufftn` is faster.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section III-A (dft1d to dft3d), Algorithm 1.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.kdftn(jnp.ones(4), mf.Points.turns([0.0, 0.25])).real.round(3).tolist()
    [4.0, 0.0]
    """
    spec, options = options_of(how, RingHow)
    request = read(x, spec)
    if isinstance(points, Scattered):
        ways = (options.out_spec, options.precision, options.multiplications, options.ring)
        values: Array = at_points(request, points, axes, norm, *ways)
        return values
    dims, _ = resolve_once(request.shape, None, axes)
    chosen = entries(points, dims)
    transform = sampled(request.shape, dims, chosen, norm, complex_dtype(request.setting.dtype, options.precision))
    y: Array = plan_for(request.setting, transform, options._replace(method="kdft")).execute(request, chosen)
    return y


@with_options
def ikdftn(
    X: AnyArray,
    points: PointsLike = None,
    *,
    s: Ints = None,
    axes: Ints = None,
    norm: str | None = None,
    tikhonov: float | None = None,
    truncation: float | None = None,
    method: str = "auto",
    tol: float | None = None,
    iterations: int | None = None,
    **how: Unpack[DenseHow],
) -> Solution:
    """The inverse of `kdftn`: the array whose samples at the points are X, or nearest to them by least squares.

        X = (V_1 x V_2 x ...) vec(x)   solved for x

    Uniform samples by the conjugate transform. "direct": each V_i is inverted on the host in float64, once, by LU,
    Leja-ordered Björck-Pereyra or, of more samples than unknowns, QR. "iterative": conjugate gradients on the normal
    equations, one axis after the other; on a circle two FFTs apply them. Both are refined by the transform. "auto":
    direct up to 1024, beyond that, and where points are traced, iterative.

    Args:
        X: the samples, taken at `points`; an array or (re, im). Points may be traced (up to 4096 by 4096 off the
            circle): then what is solved is differentiable in them, and NaN where their condition leaves no digit right.
        s, axes, norm, spec, out_spec, precision, multiplications: as `kdftn`; s: unknowns, else as many as samples.
        tikhonov: minimise ||V x - X||^2 + (tikhonov sigma_max)^2 ||x||^2 along each axis instead.
        truncation: leave out singular values below this part of the largest.
        method: "direct", "iterative" or "auto".
        tol: relative residual of the normal equations that ends a round; by default 1e-6, or 1e-13 in complex128.
        iterations: at most, in a round; 1000 by default. Where they run out the residual tells.

    Returns:
        A Solution: `value`, `residual`, `conditions` of the axes, their product `condition`, `methods`, `iterations`.

    Raises:
        ValueError: as `kdftn`; fewer samples than unknowns or a condition number without a digit left, and no weights.

    Costs four dense transforms, and an axis O(N^3) on the host, once, or two FFTs an iteration. Source: section III-A.
    """
    (spec, options), way = options_of(how, DenseHow), (tikhonov, truncation, method, tol, iterations)
    arrays, setting, _ = read(X, spec)
    solved = solution(arrays, _system(setting, points, (s, axes, norm), options, way))
    return dataclasses.replace(solved, value=moved(solved.value, options.out_spec, spec))


def _system(
    setting: Setting, points: PointsLike, what: tuple[Ints, Ints, str | None], options: Options, way: tuple[Any, ...]
) -> System:
    """What `ikdftn` is to solve, and how."""
    s, axes, norm = what
    dtype, start = complex_dtype(setting.dtype, options.precision), setting.start
    dims, sizes = resolve_once(start.shape, s, axes)
    chosen = _all_points(entries(points, dims), dims, start.shape)
    goal = functools.reduce(lambda layout, to: layout.resize(*to), zip(dims, sizes, strict=True), start)
    dots = dots_of(setting.dtype, options.precision, options.multiplications)
    forward = sampled(goal.shape, dims, chosen, norm, dtype)
    return System(goal, start, forward, chosen, "kdft", setting.mesh, setting.machine, dtype, dots, *way)


def _all_points(given: tuple[Points | None, ...], dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Points, ...]:
    """The points of every axis, as many as it has samples."""
    chosen = tuple(points or Points.uniform(shape[dim]) for points, dim in zip(given, dims, strict=True))
    for points, dim in zip(chosen, dims, strict=True):
        if points.size != shape[dim]:
            raise ValueError(f"axis {dim} has {shape[dim]} samples and {points.size} points: give one for each")
    return chosen


@dataclasses.dataclass(frozen=True)
class BlockMatrix:
    """A matrix given by a function of int32 index vectors, which makes any block of it where that is used.

    Attributes:
        shape: rows and columns.
        block: block(rows, columns) is the array of entries at these rows and columns, of shape
            (len(rows), len(columns)). Indices may lie beyond the shape; what it returns there is dropped.
    """

    shape: tuple[int, int]
    block: Callable[[Array, Array], Array]


Source = BlockMatrix | Points | Array | np.ndarray


@with_options
def apply_separable(
    matrices: Sequence[ArrayLike | BlockMatrix | Points | None],
    x: AnyArray,
    *,
    axes: Ints = None,
    **how: Unpack[RingHow],
) -> Array:
    """Multiplies every dimension of a sharded array by a dense matrix of its own.

        Y[k_1, k_2, ...] = sum over n_1, n_2, ... of M_1[k_1, n_1] M_2[k_2, n_2] ... x[n_1, n_2, ...]

    Args:
        matrices: for each axis an array (m, n), n the size of the dimension and m that in the result, a BlockMatrix, a
            Points (its Vandermonde matrix), or None to leave that dimension alone.
        x: a sharded, replicated or single-device array, or its real and imaginary part (re, im).
        axes: the dimensions of the matrices; None means all.
        spec, out_spec, precision, multiplications, ring: as `kdftn`.

    Returns:
        The product, sharded as the array came where sizes still divide; real where everything is.

    Raises:
        ValueError, TypeError: a matrix that is none or does not fit its dimension; sizes that no layout divides.

    Costs as `kdftn`. Differentiable in the array and in the matrices. Source: the paper's Algorithm 1, for any matrix.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.apply_separable([jnp.ones((1, 3)), None], jnp.ones((3, 2))).tolist()
    [[3.0, 3.0]]
    """
    spec, options = options_of(how, RingHow)
    request = read(x, spec)
    dims, _ = resolve_once(request.shape, None, axes)
    sources = _sources(matrices, dims)
    real = real_dtype(complex_dtype(request.setting.dtype, options.precision))
    chosen = tuple(_matrix(source, request.shape[dim], dim, real) for dim, source in sources.items())
    plan = plan_for(request.setting, Transform(tuple(sources), chosen, 1.0), options._replace(method="kdft"))
    y: Array = plan.execute(request, tuple(None if isinstance(m, BlockMatrix) else m for m in sources.values()))
    return y


def _sources(matrices: Sequence[ArrayLike | BlockMatrix | Points | None], dims: tuple[int, ...]) -> dict[int, Source]:
    """The matrices by dimension, as arrays or as they describe themselves."""
    if not isinstance(matrices, list | tuple):
        raise TypeError("matrices is no list: give one matrix, or None, for each axis")
    if len(matrices) != len(dims):
        raise ValueError(f"there are {len(matrices)} matrices for {len(dims)} axes: give one for each, or None")
    return {dim: _source(matrix, dim) for dim, matrix in zip(dims, matrices, strict=True) if matrix is not None}


def _source(matrix: ArrayLike | BlockMatrix | Points, dim: int) -> Source:
    if isinstance(matrix, Points):
        return matrix.settled
    if isinstance(matrix, BlockMatrix):
        shape = getattr(_sketch(matrix), "shape", None)
        if shape != (2, 3):
            raise ValueError(f"block(rows, columns) has shape {shape} for 2 rows and 3 columns: give (2, 3)")
        return matrix
    array = matrix if isinstance(matrix, jax.Array) else np.asarray(matrix)
    check_numeric(array.dtype)
    if array.ndim != 2:
        raise ValueError(f"the matrix of axis {dim} has shape {array.shape}: give two dimensions, (m, n)")
    return array


def _sketch(matrix: BlockMatrix) -> jax.ShapeDtypeStruct:
    """Shape and type of a block of two rows and three columns."""
    sketch: jax.ShapeDtypeStruct = jax.eval_shape(matrix.block, *(np.arange(n, dtype=np.int32) for n in (2, 3)))
    return sketch


def _matrix(source: Source, size: int, dim: int, real: np.dtype) -> Matrix:
    """What the steps multiply the dimension by."""
    if isinstance(source, Points):
        source.check_range(size, real, f"points of axis {dim}")
        return source.matrix(size)
    rows, columns = source.shape
    if columns != size:
        raise ValueError(
            f"the matrix of axis {dim} has shape {(rows, columns)}, the dimension {size}: give (m, {size})"
        )
    if rows < 1:
        raise ValueError(f"the matrix of axis {dim} has no rows: give at least one")
    if isinstance(source, BlockMatrix):
        return Blocks(source.block, rows, columns, planes=2 if jnp.iscomplexobj(_sketch(source)) else 1)
    return Dense(rows, columns, planes=2 if jnp.iscomplexobj(source) else 1)
