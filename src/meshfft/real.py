"""One device's FFT between real lines and half spectra, of dimensions that it holds whole."""

import jax.numpy as jnp
import numpy as np
from jax import Array


def half_spectrum(block: Array, dims: tuple[int, ...], sign: int, engine: str) -> Array:
    y = jnp.fft.rfftn(block, axes=dims)
    return y if sign < 0 else jnp.conj(y)


def from_half_spectrum(block: Array, dims: tuple[int, ...], length: int, sign: int, engine: str) -> Array:
    block = block if sign > 0 else jnp.conj(block)
    k = np.arange(block.shape[dims[-1]])
    w = np.where((k > 0) & (2 * k < length), 0.5, 1.0).astype(block.real.dtype)
    block = block * w.reshape([-1 if d == dims[-1] else 1 for d in range(block.ndim)])
    return jnp.fft.irfftn(block, s=(*[block.shape[d] for d in dims[:-1]], length), axes=dims, norm="forward")
