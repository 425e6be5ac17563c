"""The normal operator of scattered samples, by its Toeplitz structure: two transforms and a product, and no points.

    A^H W A x = crop F^-1 lambda F pad x,    lambda = F q,    q[m] = sum_j w_j exp(2 pi i k_j . m)

The product of adjoint and transform depends on differences of positions alone: it is a convolution, and those of fewer
than N positions either way fit on a circle of 2 N - 1 or more. q is one adjoint transform, and lambda is real.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..layout.layout import Layout
from ..layout.padded_array import AnyArray, mapped
from ..numerics.split_complex import scaled
from ..operators.transform import Transform, transform_of
from ..plans.execute import sound_walk
from ..plans.plan import Plan
from ..steps.problem import Problem
from ..walks.walk import Walk
from .post_transform import even_walk
from .steps import PhaseShift
from .steps.point_step import sub_layout


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NormalPlan:
    """A^H W A of a plan at scattered points; made by its `normal`.

    Attributes:
        forward: the transform to the circle, padded on its way.
        kernel: lambda, in the last layout of `forward` without its batch dimensions; real.
    """

    forward: Plan
    kernel: Array

    def __call__(self, x: AnyArray) -> Any:
        """A^H W A x, of an image in the layout that the plan takes; Hermitian, and differentiable in x."""
        batch = tuple(d for d in range(self.forward.in_layout.ndim) if d not in self.forward.transform.dims)
        with jax.ensure_compile_time_eval():
            kernel = jnp.expand_dims(self.kernel, batch)
        return self.forward.adjoint(mapped(scaled, self.forward(x), kernel))

    def __repr__(self) -> str:
        sizes = " x ".join(map(str, self.kernel.shape))
        return f"<NormalPlan: images {self.forward.shape} by periodic ones of {sizes}>"


def circle(plan: Plan, dims: tuple[int, ...]) -> Plan:
    """The transform of a plan's images to circles that hold all their differences."""
    start, how = plan.in_layout, (plan.machine, plan.dtype.itemsize, plan.dots, "auto")
    walk, sizes = even_walk(start, dims, [2 * start.shape[d] for d in dims], how, lambda _: _nothing, "any", sound_walk)
    transform = transform_of(dims, sizes, None, False, "fft")
    return dataclasses.replace(plan, walk=walk, transform=transform, method="auto", order="any", points=())


def _nothing(layout: Layout) -> tuple[()]:
    """No steps follow on a circle: any layout will do, and the search need not look for the image's own."""
    return ()


def transformed(forward: Plan, q: Array, scale: float) -> Array:
    """lambda of a kernel whose differences are counted from the middle, in its own layout."""
    layout = sub_layout(forward.out_layout, forward.transform.dims)
    dims = tuple(range(layout.ndim))
    transform = transform_of(dims, layout.shape, None, False, "fft")
    walk = sound_walk(Problem(layout, transform, forward.machine, forward.dtype.itemsize, forward.dots, goal=layout))
    steps = (*walk.steps, PhaseShift(dims, tuple(n // 2 for n in layout.shape), 1))
    factor = scale / math.prod(layout.shape)
    walk = Walk(layout, steps, factor, walk.planes)
    return mapped(jnp.real, dataclasses.replace(forward, walk=walk, transform=Transform((), (), factor))(q))
