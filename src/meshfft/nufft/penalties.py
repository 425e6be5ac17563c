"""Penalties f(K x) of an image for ADMM: total variation, and the details of Haar wavelets.

    total variation    K x = grad x, differences to the next pixel    f(y) = sum of |y|, a vector in every pixel
    wavelet            K x = x                                        f(y) = sum |details of W y|
    proximal step      the z with the least t f(z) + |z - y|^2 / 2

`jnp.roll` fetches a pixel s ahead: one permute of s rows, or two if a block has fewer.

W is orthogonal, for any size. At level l, with s = 2^l, averages are at the multiples of s in all dimensions, and each
pair along a dimension, of m and n pixels, becomes an average and a detail, in place:

    [a b; b -a] (x_i, x_{i+s}),   a = sqrt(m / (m + n)),   b = sqrt(n / (m + n))

It is its own inverse. m and n differ only at the end of a dimension. Averages of the last level are not penalised.

Source: Girardi and Sweldens, "A new class of unbalanced Haar wavelets", J. Fourier Anal. Appl. 1997.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..layout.layout import line_shape

LEVELS = 4


class Penalty(NamedTuple):
    onto: Callable[[Array], Array]  # K
    back: Callable[[Array], Array]  # K^H
    nearest: Callable[[Array, float], Array]  # the proximal step, of y and t


@functools.lru_cache(maxsize=32)
def total_variation(dims: int) -> Penalty:
    return Penalty(functools.partial(gradient, dims=dims), divergence, _shorter)


@functools.lru_cache(maxsize=32)
def wavelet(dims: int) -> Penalty:
    return Penalty(_same, _same, functools.partial(_fewer, dims=dims))


PENALTIES = {"tv": total_variation, "wavelet": wavelet}


@functools.partial(jax.jit, static_argnames="dims")
def gradient(x: Array, dims: int | None = None) -> Array:
    """Periodic differences to the next pixel: (dims, *x.shape)."""
    first = 0 if dims is None else x.ndim - dims
    return jnp.stack([jnp.roll(x, -1, dim) - x for dim in range(first, x.ndim)])


@jax.jit
def divergence(slopes: Array) -> Array:
    first = slopes[0].ndim - len(slopes)
    return jnp.sum(jnp.stack([jnp.roll(one, 1, first + j) - one for j, one in enumerate(slopes)]), 0)


def _same(x: Array) -> Array:
    return x


@jax.jit
def _shorter(slopes: Array, least: float) -> Array:
    return slopes * _factor(jnp.sqrt(jnp.sum(jnp.abs(slopes) ** 2, 0, keepdims=True)), least).astype(slopes.dtype)


@functools.partial(jax.jit, static_argnames="dims")
def _fewer(x: Array, least: float, dims: int) -> Array:
    y = haar(x, dims)
    smaller = y * _factor(jnp.abs(y), least).astype(y.dtype)
    return haar(jnp.where(_multiples(y.shape, dims, 2**LEVELS), y, smaller), dims, back=True)


def _factor(size: Array, least: float) -> Array:
    return jnp.where(size > least, 1 - least / jnp.where(size > least, size, 1), 0)


def haar(x: Array, dims: int, back: bool = False) -> Array:
    """Wavelet coefficients of the last dimensions, in place, or with `back` the inverse."""
    turns = list(_turns(x.shape, dims))
    for dim, step in reversed(turns) if back else turns:
        factors = (jnp.asarray(one.reshape(line_shape(dim, x.ndim)), x.dtype) for one in _pairs(x.shape[dim], step))
        own, ahead, behind = factors
        y = own * x + ahead * jnp.roll(x, -step, dim) + behind * jnp.roll(x, step, dim)
        x = jnp.where(_multiples(x.shape, dims, step), y, x)
    return x


def _turns(shape: tuple[int, ...], dims: int) -> Iterator[tuple[int, int]]:
    for level in range(LEVELS):
        yield from ((dim, 2**level) for dim in range(len(shape) - dims, len(shape)) if 2**level < shape[dim])


def _pairs(size: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factors (size,) of a pixel, and of those `step` ahead and behind."""
    own, ahead, behind = np.ones(size), np.zeros(size), np.zeros(size)
    first = np.arange(0, size - step, 2 * step)
    pixels = np.minimum(step, size - step - first)  # of the second average
    own[first], ahead[first] = np.sqrt(step / (step + pixels)), np.sqrt(pixels / (step + pixels))
    own[first + step], behind[first + step] = -own[first], ahead[first]
    return own, ahead, behind


def _multiples(shape: tuple[int, ...], dims: int, step: int) -> Array:
    along = [
        (np.arange(n) % step == 0).reshape(line_shape(dim, len(shape)))
        for dim, n in enumerate(shape)
        if dim >= len(shape) - dims
    ]
    return functools.reduce(jnp.logical_and, map(jnp.asarray, along))
