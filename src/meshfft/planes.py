"""Planes: a complex block as separate real and imaginary parts, the form in which matrix units and TPUs keep it.

A block is a real or complex array, or a tuple of planes: (re, im), or (re,) where everything is real. What a step does
in one form it offers in every form: the block comes back in the form it came in.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

Planes = tuple[Array, ...]
Block = Array | Planes


def split(block: Array) -> Planes:
    """The planes of an array."""
    return (jnp.real(block), jnp.imag(block)) if jnp.iscomplexobj(block) else (block,)


def join(planes: Planes) -> Array:
    """The array that has these planes."""
    return lax.complex(*planes) if len(planes) == 2 else planes[0]


def in_planes(step: Callable[[Planes], Planes], block: Block) -> Block:
    """A step that works on planes, on a block of any form."""
    return step(block) if isinstance(block, tuple) else join(step(split(block)))


def in_complex(step: Callable[[Array], Array], block: Block) -> Block:
    """A step that works on complex arrays, on a block of any form."""
    return split(step(join(block))) if isinstance(block, tuple) else step(block)
