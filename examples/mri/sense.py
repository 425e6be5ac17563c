"""The SENSE problem on a mesh, with sharded image, coil maps and samples.

    d_cj = sum_n S_cn x_n exp(-2 pi i k_j.n),    b = A^H W d,    N = A^H W A,    W = 1 or density weights

N is Toeplitz and needs no points: for each coil it is an FFT of twice the size, forward and back. If a mesh axis cuts
the coils, each application of N sums the blocks of the image over that axis once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax import block_until_ready as ended
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from scan import Scan

import meshfft as mf
from meshfft.nufft import solvers


class Problem(NamedTuple):
    """The equation `normal`(x) = `right`, and `start`, the density-compensated adjoint."""

    normal: solvers.Operator
    right: Array
    start: Array


def problem(
    found: Scan, cuts: Sequence[int], coils_cut: bool = False, tol: float = 1e-4, dense: bool = False
) -> Problem:
    """The problem of a scan, on a mesh of shape `cuts`.

    Args:
        cuts: number of parts of each dimension of the image, after that of the coils if `coils_cut`.
        dense: minimize the norm with density weights, the area of k-space around each sample.
    """
    names = ("coil", "z", "y", "x")[-len(cuts) :] if not coils_cut else ("coil", *"zyx"[-len(cuts) + 1 :])
    mesh = jax.make_mesh(tuple(cuts), names, axis_types=(AxisType.Auto,) * len(cuts))
    spec = PartitionSpec(*names) if coils_cut else PartitionSpec(None, *names)
    plan = mf.scattered_plan(found.maps.shape, mf.Scattered.turns(found.turns), mesh=mesh, spec=spec, tol=tol)
    maps = jax.device_put(found.maps.astype(np.complex64), NamedSharding(mesh, spec))
    # Wait for each program: on CPU devices two independent programs can deadlock, each waiting for the other's threads.
    values = ended(plan.place(found.data.astype(np.complex64)))
    weights = ended(plan.density())

    def combined(images: Array) -> Array:
        return jnp.sum(jnp.conj(maps) * images, 0)

    def normal_of(toeplitz: solvers.Operator) -> solvers.Operator:
        return lambda x: combined(toeplitz(maps * x[None]))

    back = jax.jit(lambda values: combined(plan.adjoint(values, placed=True)))
    weighted = ended(back(values * weights[None].astype(values.dtype)))
    compensated, dense_normal = weighted / combined(maps), normal_of(_toeplitz(plan, weights))
    slope = ended(jnp.vdot(compensated, weighted) / jnp.vdot(compensated, jax.jit(dense_normal)(compensated)))
    normal, right = (dense_normal, weighted) if dense else (normal_of(_toeplitz(plan, None)), ended(back(values)))
    scale = ended(jax.jit(lambda x: solvers.largest(normal, x))(compensated).astype(right.dtype))
    return Problem(lambda x: normal(x) / scale, right / scale, slope * compensated)


def _toeplitz(plan: mf.ScatteredPlan, weights: Array | None) -> solvers.Operator:
    made = plan.normal(weights)
    ended(made.kernel)
    return made
