"""Split complex, the form of matrix units and TPUs: real and imaginary parts as separate arrays.

A block is an array, or its planes: (re, im), or (re,) if real. A step returns the form of its input.
"""

import functools
import math
from collections.abc import Callable
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

LANES = 128  # columns of a TPU's tile
Shape = tuple[int, ...]
Planes = tuple[Array, ...]
Block = Array | Planes
B = TypeVar("B", bound=Block)


def split(block: Block) -> Planes:
    if isinstance(block, tuple):
        return block
    return (jnp.real(block), jnp.imag(block)) if jnp.iscomplexobj(block) else (block,)


def join(planes: Planes) -> Array:
    return lax.complex(*planes) if len(planes) == 2 else planes[0]


def like(block: Block, planes: Planes) -> Block:
    return planes if isinstance(block, tuple) else join(planes)


def conjugate(planes: Planes) -> Planes:
    return (planes[0], *(-plane for plane in planes[1:]))


def scaled(block: Array, factor: Array | np.ndarray | float) -> Array:
    """A real factor takes two real products, not four."""
    if jnp.iscomplexobj(block) and not jnp.iscomplexobj(factor):
        return lax.complex(block.real * factor, block.imag * factor)
    return block * factor


def times(block: B, factor: Planes) -> B:
    if not isinstance(block, tuple):
        return cast(B, block * join(factor))
    (x, y), (re, im) = block, factor
    return cast(B, (x * re - y * im, x * im + y * re))


def in_planes(step: Callable[[Planes], Planes], block: Block) -> Block:
    return like(block, step(split(block)))


def in_complex(step: Callable[[Array], Array], block: Block) -> Block:
    if not isinstance(block, tuple):
        return step(block)
    return split(step(join(block)))


def unfolded(block: Array, dim: int, parts: int) -> Array:
    """Splits a dimension into two, first of size `parts`."""
    return block.reshape(*block.shape[:dim], parts, block.shape[dim] // parts, *block.shape[dim + 1 :])


def folded(block: Array, dim: int) -> Array:
    return block.reshape(*block.shape[:dim], block.shape[dim] * block.shape[dim + 1], *block.shape[dim + 2 :])


def resize(block: Array, dim: int, size: int) -> Array:
    """Crops a dimension, or pads it with zeros at the tail."""
    more = size - block.shape[dim]
    if more <= 0:  # a slice less to compile
        return lax.slice_in_dim(block, 0, size, axis=dim) if more else block
    return lax.pad(block, jnp.zeros((), block.dtype), [(0, more if d == dim else 0, 0) for d in range(block.ndim)])


def resize_lowest(block: Array, dim: int, size: int) -> Array:
    """Crops frequencies in FFT order to the lowest, or pads zeros above these."""
    many = block.shape[dim]
    first, last = (min(size, many) + 1) // 2, min(size, many) // 2
    head, tail = lax.slice_in_dim(block, 0, first, axis=dim), lax.slice_in_dim(block, many - last, many, axis=dim)
    return lax.concatenate([resize(head, dim, size - last), tail], dim)


def resize_each(block: B, dims: Shape, sizes: Shape, one: Callable[[Array, int, int], Array] = resize) -> B:
    pairs = [*zip(dims, sizes, strict=True)]
    return jax.tree.map(lambda part: functools.reduce(lambda x, pair: one(x, *pair), pairs, part), block)


def interleaved(even: Array, odd: Array, dim: int) -> Array:
    """The array with these numbers at even and at odd positions of a dimension."""
    stacked = functools.partial(alternating, dim=dim)
    if dim < even.ndim - 1:
        return stacked(even, odd)
    return lax.platform_dependent(even, odd, tpu=alternating_by_rows, default=stacked)


def alternating(even: Array, odd: Array, dim: int) -> Array:
    return jnp.stack([even, odd], dim + 1).reshape(*even.shape[:dim], 2 * even.shape[dim], *even.shape[dim + 1 :])


def alternating_by_rows(even: Array, odd: Array) -> Array:
    """`alternating` along the last dimension, by rows: as its own last dimension, pairs would take 64 times the memory
    on a TPU. They still do if the size is odd.
    """
    *lines, last = even.shape
    rows = math.gcd(last, LANES)
    folded = (*lines, last // max(rows, 1), rows)
    above, below = (part.reshape(folded).swapaxes(-1, -2) for part in (even, odd))
    return alternating(above, below, len(lines)).swapaxes(-1, -2).reshape(*lines, 2 * last)
