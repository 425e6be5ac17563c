"""The paper's KDFT: samples anywhere on the z-plane, by dense products over the one-shuffle ring."""

from collections.abc import Sequence
from typing import Any

from .arguments import check_once, resolve
from .dispatch import Options, received, setting, transformed
from .dtypes import complex_dtype
from .errors import check
from .layout import Spec
from .points import Points, entries, sampled
from .solve import Solution, Weights, solution


def kdftn(
    x: Any,
    points: Points | Sequence[Points | None] | None = None,
    *,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    spec: Spec | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
) -> Any:
    """The discrete Fourier transform at any points, uniform or not, by dense Vandermonde products.

        X = (V_1 x V_2 x ...) vec(x),   V_i[k, n] = z_ik^-n   (x: the Kronecker product)

    Any size on any mesh, and any number of points. Every device makes its rows of V_i a block at a time from exact
    phases: the error does not grow with the size.

    Args:
        x: a sharded, replicated or single-device array of any numeric type, or a tuple of planes (re, im).
        points: one Points for each axis; None, there or instead of all, means as many uniform ones as inputs, the
            transform of `fftn`.
        axes: dimensions; None means all.
        norm: as `fftn`, of the number of inputs.
        spec: as `fftn`.
        precision: of the products: "float32", "float64", "bf16x6" (as good as float32 on a matrix unit for bfloat16),
            "bf16x3" (1e-5), "bf16" (3e-3) or "default", which is that of the type of x.
        multiplications: 3 or 4 real products for a complex one; by default what the plan finds cheapest within the
            precision. Three have 1.4 times the error.

    Returns:
        The spectrum, sharded as the array came where the numbers of points divide.

    Raises:
        ValueError: as `fftn`; or a point whose powers leave the type; or numbers of points that no layout divides.
        TypeError: as `fftn`.

    Costs per device and dimension 8 M_i flops a point of its block, and P_i - 1 hops of the block to a neighbour, each
    of which can run under a product. Differentiable in x and in the points; each gradient costs as much again.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section III-A (equations dft1d, dft2d_matrix
    and dft3d_matrix) and Algorithm 1.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.kdftn(jnp.ones(4), mf.Points.turns([0.0, 0.25])).real.round(3).tolist()
    [4.0, 0.0]
    """
    arrays = received(x)
    dims, _ = resolve(arrays[0].shape, None, axes)
    check_once(dims)
    chosen = entries(points, dims)
    transform = sampled(arrays[0].shape, dims, chosen, norm, complex_dtype(arrays[0].dtype, precision))
    return transformed(arrays, transform, Options("kdft", "natural", spec, precision, multiplications), chosen)


def ikdftn(
    X: Any,
    points: Points | Sequence[Points | None] | None = None,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    tikhonov: float | None = None,
    truncation: float | None = None,
    spec: Spec | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
) -> Solution:
    """The inverse of `kdftn`: the array whose samples at the points are X.

        X = (V_1 x V_2 x ...) vec(x)   solved for x; with more samples than unknowns, in the sense of least squares

    Each V_i is inverted on the host in float64, once for the same points: uniform samples by the conjugate transform,
    as many samples as unknowns by LU or Leja-ordered Björck-Pereyra, more by QR. The inverses go over the same rings
    as the transform, with one step of refinement by it.

    Args:
        X: the samples, a sharded array or a tuple of planes.
        points: where they were taken, as `kdftn`; numbers, not traced.
        s: the numbers of unknowns along the axes; by default as many as samples.
        axes: dimensions; None means all, or the last len(s).
        norm: that of the transform to invert.
        tikhonov: minimise ||V x - X||^2 + (tikhonov sigma_max)^2 ||x||^2 instead, along each axis.
        truncation: leave out singular values below this part of the largest.
        spec: as `kdftn`.
        precision: as `kdftn`.
        multiplications: as `kdftn`.

    Returns:
        A Solution: `value`, `residual`, `conditions` of every axis and their product `condition`, and `methods`.

    Raises:
        ValueError: as `kdftn`; fewer samples than unknowns, or a condition number that leaves no correct digit, unless
            `tikhonov` or `truncation` is given; sizes that the mesh does not divide (`plan(...).solve` takes those).
        TypeError: as `kdftn`.

    Costs on the host some 10 N^3 flops for each axis, once; on the devices four transforms by dense products.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section III-A: the inverse is the solution of
    equation dft1d_matrix.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> there = mf.Points.turns([0.0, 0.2, 0.55, 0.7])
    >>> mf.ikdftn(mf.kdftn(jnp.arange(4.0), there), there).value.real.round(3).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    arrays = received(X)
    dims, sizes = resolve(arrays[0].shape, s, axes)
    check_once(dims)
    where, shape = setting(arrays, Options("kdft", "natural", spec, precision, multiplications)), arrays[0].shape
    chosen = tuple(p or Points.uniform(shape[d]) for p, d in zip(entries(points, dims), dims, strict=True))
    goal = where.start
    for dim, size, taken in zip(dims, sizes, chosen, strict=True):
        check(
            taken.size == shape[dim], f"axis {dim} has {shape[dim]} samples and {taken.size} points: give one for each"
        )
        goal = goal.resize(dim, size)
    text = (
        f"the mesh does not divide the {sizes} unknowns of spec {where.start.spec}: use mf.plan(...).solve, which pads"
    )
    check(goal.even, text)
    forward = sampled(goal.shape, dims, chosen, norm, where.dtype)
    return solution(arrays, goal, forward, chosen, Weights(tikhonov, truncation), "kdft", where)
