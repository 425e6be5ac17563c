"""Split complex: a block as separate real and imaginary parts, the form in which matrix units and TPUs keep it.

A block is a real or complex array, or its planes: (re, im), or (re,) where everything is real. A step takes either form
and returns the one it was given.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Planes = tuple[Array, ...]
Block = Array | Planes
B = TypeVar("B", bound=Block)


def split(block: Block) -> Planes:
    """The planes of a block."""
    if isinstance(block, tuple):
        return block
    return (jnp.real(block), jnp.imag(block)) if jnp.iscomplexobj(block) else (block,)


def join(planes: Planes) -> Array:
    """The array that has these planes."""
    return lax.complex(*planes) if len(planes) == 2 else planes[0]


def like(block: Block, planes: Planes) -> Block:
    """Planes in the form of another block."""
    return planes if isinstance(block, tuple) else join(planes)


def conjugate(planes: Planes) -> Planes:
    """The planes of the complex conjugate."""
    return (planes[0], *(-plane for plane in planes[1:]))


def scaled(block: Array, factor: Array | np.ndarray | float) -> Array:
    """A complex or real array times a factor, which a real one meets plane by plane: two products, not four."""
    if jnp.iscomplexobj(block) and not jnp.iscomplexobj(factor):
        return lax.complex(block.real * factor, block.imag * factor)
    return block * factor


def times(block: B, factor: Planes) -> B:
    """A complex block, in either form, times the planes of a factor."""
    product: Any
    if isinstance(block, tuple):
        (x, y), (re, im) = block, factor
        product = (x * re - y * im, x * im + y * re)
    else:
        product = block * join(factor)
    return product


def in_planes(step: Callable[[Planes], Planes], block: Block) -> Block:
    """A step that works on planes, on a block of any form."""
    return like(block, step(split(block)))


def in_complex(step: Callable[[Array], Array], block: Block) -> Block:
    """A step that works on complex arrays, on a block of any form."""
    if not isinstance(block, tuple):
        return step(block)
    return split(step(join(block)))
