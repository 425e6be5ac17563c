"""The paper's KDFT: samples anywhere on the z-plane, by dense products over the one-shuffle ring."""

from collections.abc import Sequence
from typing import Any

from .arguments import check_once, resolve
from .dispatch import Options, received, transformed
from .dtypes import complex_dtype
from .layout import Spec
from .points import Points, entries, sampled


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
