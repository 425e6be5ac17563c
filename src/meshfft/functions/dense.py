"""Dense operators, one matrix per dimension: the KDFT at any points, its inverse, and any matrices."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Unpack, overload

from jax import Array
from jax.typing import ArrayLike

from ..layout.layout import resized
from ..layout.padded_array import AnyArray, AnyStored, OnePlane, PaddedArray, PlanePair, Transformed
from ..nufft.inverse import Limits
from ..nufft.planning import solved_at_points, sum_plan
from ..nufft.points import Scattered
from ..numerics.dtypes import real_dtype
from ..operators.operands import BlockMatrix, entries, matrix_of, sampled, sources_of
from ..operators.points import Points
from ..operators.transform import Transform, integers, resolve_once
from ..plans.deferred_primitive import deferred
from ..plans.execute import moved
from ..plans.inverse_solve import Solution, solution
from ..plans.iterative_solve import System
from ..plans.options import DenseHow, PointsLike, RingHow, check_options, options_of, spelled, with_options
from ..plans.planning import plan_for
from ..plans.request import on_arrays, read
from ..steps.problem import Options
from .calls import Ints

AnyPoints = PointsLike | Scattered
Matrices = Sequence[ArrayLike | BlockMatrix | Points | None]


@with_options
def kdftn(
    x: AnyArray, points: AnyPoints = None, *, axes: Ints = None, norm: str | None = None, **how: Unpack[RingHow]
) -> Transformed:
    """The discrete Fourier transform at any points, uniform or not, by dense
    Vandermonde products.

        X = kron(V_1, V_2, ...) vec(x),   V_i[k, n] = z_ik^-n
        c_j = sum_n x[n] z_j1^-n1 z_j2^-n2 ...  at Scattered points

    Any sizes, meshes and numbers of points. Points per axis span a product
    grid; Scattered points need not.

    Args:
        x, axes, spec, out_spec: as `a`, axes, spec, out_spec of `fftn`.
        points: one Points per axis; None for an axis, or for all, means as many
            uniform frequencies as inputs. Or a Scattered with a coordinate per
            axis, by default the last axes.
        norm: as `fftn`, by the number of inputs.
        precision: "float32", "float64", or an error bound such as 1e-10; in
            bfloat16 "bf16x6" (like float32), "bf16x3" (1e-5), "bf16" (3e-3);
            float64 in 4 to 7 slices of 8 bits, "int8x4" (2e-9) to "int8x7"
            (1e-15).
        multiplications: 3 or 4 real products per complex one; by default the
            cheaper within the precision.
        ring: "one-way", the paper's one-shuffle (Algorithm 1): p - 1 hops to
            one neighbour; "two-way": half of the blocks to each neighbour, in
            half the steps; "auto": the cheaper by the model. Rings that add
            partial sums, as in gradients, are one-way.
        other options: as `fftn`. Gradients in points and matrices are sent
            exactly.

    Returns:
        The spectrum, sharded as `x` if its mesh axes divide the numbers of
        points. At Scattered points the values, batch dimensions first; each
        mesh axis of a transformed dimension, outermost first, moves to the
        earliest dimension of points that it divides (a PaddedArray if none).

    Raises:
        ValueError, TypeError: as `fftn`; a point whose powers overflow; points
            of a raveled meshgrid.

    Costs per device and dimension 8 M_i flops per element of its block,
    and P_i - 1 hops of it, which can overlap the products. Differentiable in x
    and in the points; each gradient costs as much again. M Scattered points and
    N inputs cost each of P devices 8 M N / P flops and P - 1 hops; above N =
    10,000 or so `nufftn` is faster. Source: Lu et al., "Large-Scale Discrete
    Fourier Transform on TPUs", III-A (dft1d to dft3d), Algorithm 1.

    >>> points = mf.Points.turns([0.0, 0.25])
    >>> mf.kdftn(jnp.ones(4), points).real.round(3).tolist()
    [4.0, 0.0]
    """
    options, request = options_of(how, RingHow), read(x, how.get("spec"))
    if isinstance(points, Scattered):
        return sum_plan(request.setting, points, axes, norm, options).execute(request)
    dims, _ = resolve_once(request.shape, None, axes)
    chosen = entries(points, dims)
    transform = sampled(request.shape, dims, chosen, norm, options.dtype(request.setting.dtype))
    return plan_for(request.setting, transform, options._replace(method="kdft")).execute(request, chosen)


@functools.partial(deferred, linear=False)
@spelled
def ikdftn(
    X: AnyArray,
    points: AnyPoints = None,
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
    """The inverse of `kdftn`: the array with samples X at the points, or the
    least-squares fit to them.

        X = kron(V_1, V_2, ...) vec(x)   solved for x

    Uniform axes use the conjugate transform. "direct" inverts V_i once, on the
    host in float64, by LU, Leja-ordered Björck-Pereyra or, for more samples
    than unknowns, QR. "iterative": conjugate gradients on the normal equations,
    axis by axis; on the unit circle, by two FFTs. "auto": direct up to 1024 by
    1024, iterative above and for traced points. Without `tikhonov`, the
    residual X - V x refines the solution.

    Args:
        X: the samples, an array or (re, im).
        points: as `kdftn`. Traced points (up to 4096 by 4096 off the unit
            circle) make the solution differentiable in them; it is NaN if their
            condition leaves no digit. Scattered points need `s`, and work only
            outside of `jit` and `grad`.
        s: unknowns along each axis; by default the number of samples.
        axes, norm, spec, out_spec, precision, multiplications, ring: as
            `kdftn`; Scattered points use a ring only off the unit circle.
        tikhonov: minimise ||V x - X||^2 + (tikhonov sigma_max)^2 ||x||^2 along
            each axis instead.
        truncation: drop singular values below this fraction of the largest.
            Like tikhonov, not at traced points.
        method: "direct", "iterative" or "auto".
        tol: relative residual of the normal equations at which iterations stop;
            by default 1e-6, or 1e-13 in complex128.
        iterations: the most per round of refinement, 1000 by default (300 at
            Scattered points); the residual shows whether they sufficed.

    Returns:
        A Solution, with its residual and condition numbers.

    Raises:
        ValueError: as `kdftn`; without tikhonov and truncation, fewer samples
            than unknowns or a condition that leaves no digit.

    Costs four dense transforms, and per axis O(N^3) on the host, once, or two
    FFTs an iteration. Source: as `kdftn`, section III-A.

    >>> points = mf.Points.turns([0.0, 0.25, 0.5, 0.8])
    >>> found = mf.ikdftn(mf.kdftn(np.ones(4), points), points)
    >>> found.value.real.round(4).tolist(), round(found.condition, 2)
    ([1.0, 1.0, 1.0, 1.0], 1.43)
    """
    options, spec = options_of(how, DenseHow), how.get("spec")
    check_options(options)
    if isinstance(points, Scattered):
        limits = Limits.of(method, truncation, tol, iterations, tikhonov)
        if s is None:
            raise ValueError("s is missing: give the number of unknowns along each axis, such as s=(64, 64)")
        return solved_at_points(read(X, spec), points, integers(s, "s"), axes, norm, options, limits)
    arrays, setting, _ = read(X, spec)
    start, dtype = setting.start, options.dtype(setting.dtype)
    dims, sizes = resolve_once(start.shape, s, axes)
    samples = [start.shape[dim] for dim in dims]
    chosen = tuple(one or Points.uniform(n) for one, n in zip(entries(points, dims), samples, strict=True))
    for one, n, dim in zip(chosen, samples, dims, strict=True):
        if one.size != n:
            raise ValueError(f"axis {dim} has {n} samples and {one.size} points: give one for each")
    goal = resized(start, dims, sizes)
    forward = sampled(goal.shape, dims, chosen, norm, dtype)
    where = (setting.mesh, setting.machine, dtype, options.dots(setting.dtype, setting.machine.chip))
    how_solved = Options("kdft", ring=options.ring)
    system = System(goal, start, forward, chosen, how_solved, *where, tikhonov, truncation, method, tol, iterations)
    solved = solution(arrays, system)
    return dataclasses.replace(solved, value=moved(solved.value, options.out_spec, spec))


@overload
def apply_separable(matrices: Matrices, x: PaddedArray, *, axes: Ints = None, **how: Unpack[RingHow]) -> AnyStored: ...
@overload
def apply_separable(matrices: Matrices, x: ArrayLike, *, axes: Ints = None, **how: Unpack[RingHow]) -> Array: ...
@overload
def apply_separable(
    matrices: Matrices, x: tuple[OnePlane, ...], *, axes: Ints = None, **how: Unpack[RingHow]
) -> Array | PlanePair: ...
@spelled
def apply_separable(matrices: Matrices, x: AnyArray, *, axes: Ints = None, **how: Unpack[RingHow]) -> Transformed:
    """Multiplies each dimension of a sharded array by a dense matrix.

        Y[k_1, k_2, ...] = sum over n_1, n_2, ... of
                           M_1[k_1, n_1] M_2[k_2, n_2] ... x[n_1, n_2, ...]

    Args:
        matrices: per axis an array (m, n), n the size of the dimension and m
            its new size; a BlockMatrix; a Points (its Vandermonde matrix); or
            None to leave the dimension unchanged.
        axes: the dimensions of the matrices; None means all.
        x, other options: as `kdftn`.

    Returns:
        The product, sharded as `x` if its mesh axes divide the new sizes; real
        if `x` and the matrices are.

    Raises:
        ValueError, TypeError: an operand that is no matrix or does not fit.

    Costs as `kdftn`. Differentiable in array and matrices. Source: as `kdftn`,
    Algorithm 1, for any matrix.

    >>> mf.apply_separable([jnp.ones((1, 3)), None], jnp.ones((3, 2))).tolist()
    [[3.0, 3.0]]
    """
    return _separable(x, matrices, axes=axes, **how)


@on_arrays
def _separable(x: AnyArray, matrices: Matrices, *, axes: Ints, **how: Unpack[RingHow]) -> Transformed:
    options, request = options_of(how, RingHow), read(x, how.get("spec"))
    dims, _ = resolve_once(request.shape, None, axes)
    sources = sources_of(matrices, dims)
    real = real_dtype(options.dtype(request.setting.dtype))
    chosen = tuple(matrix_of(source, request.shape[dim], dim, real) for dim, source in sources.items())
    plan = plan_for(request.setting, Transform(tuple(sources), chosen, 1.0), options._replace(method="kdft"))
    return plan.execute(request, tuple(None if isinstance(m, BlockMatrix) else m for m in sources.values()))
