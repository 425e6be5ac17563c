"""The SENSE problem on a mesh: image, coil maps and the points' values all cut, in a plan that exchanges halos only.

    d_cj = sum_n S_cn x_n exp(-2 pi i k_j.n),    b = A^H W d,    N = A^H W A,    W = 1 or density weights

N needs no points: it is Toeplitz, an FFT of twice the size forward and back for each coil. If a mesh axis cuts the
coils, each application of N sums the image's blocks over that axis once, and sums nothing else.
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
    """Find x with `normal`(x) = `right`; `start` is the density-compensated adjoint, an image already."""

    normal: solvers.Operator
    right: Array
    start: Array


def problem(
    found: Scan, cuts: Sequence[int], coils_cut: bool = False, tol: float = 1e-4, dense: bool = False
) -> Problem:
    """Lays out a scan on as many devices as `cuts` has.

    Args:
        cuts: into how many parts each dimension of the image is cut; with `coils_cut` the coils before them.
        dense: weigh every sample by the space that it has to itself, in the norm that is made small.
    """
    names = ("coil", "z", "y", "x")[-len(cuts) :] if not coils_cut else ("coil", *"zyx"[-len(cuts) + 1 :])
    mesh = jax.make_mesh(tuple(cuts), names, axis_types=(AxisType.Auto,) * len(cuts))
    spec = PartitionSpec(*names) if coils_cut else PartitionSpec(None, *names)
    plan = mf.scattered_plan(found.maps.shape, mf.Scattered.turns(found.turns), mesh=mesh, spec=spec, tol=tol)
    maps = jax.device_put(found.maps.astype(np.complex64), NamedSharding(mesh, spec))
    # Programs are waited for, one by one: on CPU devices, two that do not depend on each other can wait for ever, each
    # on threads that the other holds.
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
