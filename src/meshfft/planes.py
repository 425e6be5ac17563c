"""Planes: a complex block as separate real and imaginary parts, the form in which matrix units and TPUs keep it.

A block is a real or complex array, a pair of planes (re, im), or, between steps that multiply, a Stack. What a step
does in one form it offers in every form: the block comes back in the form it came in.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

Planes = tuple[Array, ...]


class Stack(NamedTuple):
    """All planes of a block in one array (planes, *block): two, or one where everything is real."""

    planes: Array


Block = Array | Planes | Stack


def split(block: Array) -> Planes:
    """The planes of an array."""
    return (jnp.real(block), jnp.imag(block)) if jnp.iscomplexobj(block) else (block,)


def join(planes: Planes) -> Array:
    """The array that has these planes."""
    return lax.complex(*planes) if len(planes) == 2 else planes[0]


def conjugate(planes: Planes) -> Planes:
    """The planes of the complex conjugate."""
    return (planes[0], *(-plane for plane in planes[1:]))


def stacked(block: Block) -> Stack:
    """A block of any form as a stack."""
    if isinstance(block, Stack):
        return block
    return Stack(jnp.stack(block if isinstance(block, tuple) else split(block)))


def like(block: Block, stack: Stack) -> Any:
    """A stack in the form of another block."""
    if isinstance(block, Stack):
        return stack
    planes = tuple(stack.planes)
    return planes if isinstance(block, tuple) else join(planes)


def in_stack(step: Callable[[Array], Array], block: Block) -> Block:
    """A step that works on stacked planes, on a block of any form."""
    return like(block, Stack(step(stacked(block).planes)))


def in_complex(step: Callable[[Array], Array], block: Block) -> Block:
    """A step that works on complex arrays, on a block of any form."""
    if not isinstance(block, tuple):
        return step(block)
    return like(block, stacked(step(join(tuple(stacked(block).planes)))))
