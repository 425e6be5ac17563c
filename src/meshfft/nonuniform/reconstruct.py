"""Images from scattered samples of their spectra, as several coils see them: the problem that solvers take.

    min |A S x - d|^2,      N = S^H A^H A S,    b = S^H A^H d

A is a plan at scattered points, S multiplies with the map of every coil. N is Toeplitz and takes no points: an FFT of
twice the size there and back for each coil. Where a mesh axis cuts the coils, their images are added up over it. As in
solvers.py no program starts before the last one has ended.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax import block_until_ready as ended

from ..layout.padded_array import AnyArray
from .plan import ScatteredPlan
from .solvers import Problem, dot, of_unit, over

FAINT = 1e-6  # of the largest sum of squares of the maps: pixels that no coil sees stay 0


def sense(
    plan: ScatteredPlan, values: AnyArray, maps: Array | None = None, *, density: int = 12, unit: bool = False
) -> Problem:
    """The least-squares problem of samples that coils have taken of an image.

    Args:
        plan: of images (coils, ...), or without maps of images with any batch dimensions.
        values: the samples, in `plan.out_layout`.
        maps: what each coil sees of a pixel, in `plan.in_layout`; None finds the image of every coil.
        density: rounds of `plan.density` for the start: the adjoint of compensated samples over the sum of squares of
            the maps, in the scale that fits the samples best. 0 starts from zero.
        unit: divides N and b by the largest eigenvalue of N, so that weights mean the same for all samples.

    Raises:
        ValueError: maps of another shape than the plan's images; a mesh that does not divide these.
    """
    shape = plan.in_layout.shape
    if maps is not None and (len(shape) != len(plan.dims) + 1 or maps.shape != shape):
        raise ValueError(f"the maps have shape {maps.shape} and the plan's images {shape}: give (coils, ...) of both")
    if not plan.in_layout.even:
        raise ValueError(f"the mesh does not cut images {shape} evenly: choose sizes, or a mesh, that divide")
    toeplitz = plan.normal()
    ended(toeplitz.kernel)

    def normal(x: Array) -> Array:
        return ended(_combined(maps, toeplitz(_seen(maps, x))))

    placed = ended(plan.place(values))
    right = ended(_combined(maps, plan.adjoint(placed, placed=True)))
    problem = Problem(normal, right, jnp.zeros_like(right), len(plan.dims))
    if density:
        weights = jnp.expand_dims(ended(plan.density(density)).astype(placed.dtype), tuple(range(placed.ndim - 1)))
        image = ended(_bare(maps, _combined(maps, plan.adjoint(placed * weights, placed=True))))
        problem = problem._replace(start=ended(_fitted(image, right, normal(image))))
    return of_unit(problem) if unit else problem


@jax.jit
def _fitted(image: Array, right: Array, product: Array) -> Array:
    """The multiple s of an image for which |A s x - d| is least."""
    return image * over(dot(image, right), dot(image, product)).astype(image.dtype)


@jax.jit
def _seen(maps: Array | None, x: Array) -> Array:
    return x if maps is None else maps * x[None]


@jax.jit
def _combined(maps: Array | None, images: Array) -> Array:
    return images if maps is None else jnp.sum(jnp.conj(maps) * images, 0)


@jax.jit
def _bare(maps: Array | None, image: Array) -> Array:
    """An image over the sum of squares of the maps."""
    if maps is None:
        return image
    power = jnp.sum(jnp.abs(maps) ** 2, 0)
    return over(image, jnp.where(power > FAINT * jnp.max(power), power, 0).astype(image.dtype))
