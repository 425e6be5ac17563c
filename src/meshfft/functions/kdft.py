"""The paper's KDFT: samples anywhere on the z-plane, by dense products over the one-shuffle ring."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..layout.layout import Layout, Spec
from ..numerics.dtypes import complex_dtype, dots_of
from ..operators.operands import entries, sampled
from ..operators.points import Points
from ..operators.transform import resolve_once
from ..plans.execute import moved
from ..plans.inverse_solve import Solution, System, solution
from ..plans.planning import Options, plan_for
from ..plans.request import read


def kdftn(
    x: Any,
    points: Points | Sequence[Points | None] | None = None,
    *,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
) -> Any:
    """The discrete Fourier transform at any points, uniform or not, by dense Vandermonde products.

        X = (V_1 x V_2 x ...) vec(x),   V_i[k, n] = z_ik^-n   (x: the Kronecker product)

    Any size on any mesh, any number of points; several axes are sampled at all combinations of their points. Every
    device makes its rows of V_i block by block, from exact phases.

    Args:
        x: a sharded, replicated or single-device array of any numeric type, or a tuple of planes (re, im).
        points: one Points for each axis; None, there or instead of all, means as many uniform ones as inputs.
        axes, spec: as `fftn`.
        norm: as `fftn`, of the number of inputs.
        precision: "float32", "float64", or of bfloat16 "bf16x6" (like float32), "bf16x3" (1e-5), "bf16" (3e-3).
        multiplications: 3 or 4 real products for a complex one; by default the cheapest within the precision.

    Returns:
        The spectrum, sharded as the array came where the numbers of points divide.

    Raises:
        ValueError, TypeError: as `fftn`; a point whose powers leave the type; numbers of points that do not divide; a
            grid of points that is raveled into one list for each axis.

    Costs per device and dimension 8 M_i flops a point of its block, and P_i - 1 hops of the block to a neighbour, which
    can run under the products. Differentiable in x and in the points; each gradient costs as much again.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section III-A (dft1d to dft3d), Algorithm 1.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.kdftn(jnp.ones(4), mf.Points.turns([0.0, 0.25])).real.round(3).tolist()
    [4.0, 0.0]
    """
    request, options = read(x, spec), Options("kdft", "natural", precision, out_spec, multiplications)
    dims, _ = resolve_once(request.shape, None, axes)
    chosen = entries(points, dims)
    transform = sampled(request.shape, dims, chosen, norm, complex_dtype(request.setting.dtype, precision))
    return plan_for(request.setting, transform, options).execute(request, chosen)


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
    out_spec: Spec | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
) -> Solution:
    """The inverse of `kdftn`: the array whose samples at the points are X.

        X = (V_1 x V_2 x ...) vec(x)   solved for x; with more samples than unknowns, in the sense of least squares

    Each V_i is inverted on the host in float64, once: uniform samples by the conjugate transform, as many samples as
    unknowns by LU or Leja-ordered Björck-Pereyra, more by QR. The inverses go over the same rings, with one step of
    refinement by the transform.

    Args:
        X: the samples, an array or a tuple of planes, taken at `points` (numbers, not traced).
        s: numbers of unknowns; by default as many as samples.
        axes, norm: of the transform to invert.
        tikhonov: minimise ||V x - X||^2 + (tikhonov sigma_max)^2 ||x||^2 along each axis instead.
        truncation: leave out singular values below this part of the largest.
        spec, out_spec, precision, multiplications: as `kdftn`.

    Returns:
        A Solution: `value`, `residual`, `conditions` of the axes, their product `condition`, and `methods`.

    Raises:
        ValueError: as `kdftn`; fewer samples than unknowns or a condition number that leaves no digit, without weights.

    Costs O(N^3) an axis on the host, once, and four dense transforms. Source: section III-A of the paper.
    """
    arrays, setting, _ = read(X, spec)
    start, dtype = setting.start, complex_dtype(setting.dtype, precision)
    dims, sizes = resolve_once(start.shape, s, axes)
    chosen = tuple(p or Points.uniform(start.shape[d]) for p, d in zip(entries(points, dims), dims, strict=True))
    goal, dots = _goal(start, dims, sizes, chosen), dots_of(setting.dtype, precision, multiplications)
    forward = sampled(goal.shape, dims, chosen, norm, dtype)
    how = ("kdft", setting.mesh, setting.machine, dtype, dots, tikhonov, truncation)
    solved = solution(arrays, System(goal, start, forward, chosen, *how))
    return dataclasses.replace(solved, value=moved(solved.value, out_spec, spec))


def _goal(start: Layout, dims: tuple[int, ...], sizes: tuple[int, ...], points: tuple[Points, ...]) -> Layout:
    """The layout of the unknowns, cut as their samples are."""
    goal = start
    for dim, size, taken in zip(dims, sizes, points, strict=True):
        if taken.size != start.shape[dim]:
            raise ValueError(f"axis {dim} has {start.shape[dim]} samples and {taken.size} points: give one for each")
        goal = goal.resize(dim, size)
    return goal
