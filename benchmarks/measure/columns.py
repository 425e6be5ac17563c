"""FFTs along the first dimension, as cuFFT's calls and as XLA's fusions could do them, to be counted (see passes).

    X[k] = sum_n x[n] w_N^(n k),  N = r m:  of every m-th point a DFT of r, times w_N^(k n), then DFTs of m, and so on

Each stage reads and writes the array once where a kernel does all of it.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import SingleDeviceSharding

from meshfft.inspect.hlo import program_of

from .passes import h100s, passed

RADICES = {256: (16, 16), 512: (16, 32), 1024: (32, 32)}


def by_cufft(x: Array) -> Array:
    """As JAX has it: transposed, transformed, transposed back."""
    return jnp.fft.fft(x, axis=0)


def by_fusions(x: Array) -> Array:
    """In two stages of RADICES (Stockham), each of additions and multiplications by constants."""
    length, columns = x.shape
    y = x.reshape(1, length, columns)
    for radix in RADICES[length]:
        done, left, _ = y.shape
        rest = left // radix
        lines = y.reshape(done, radix, rest, columns)
        sums = _dft([lines[:, j] for j in range(radix)])
        phases = np.exp(-2j * np.pi * np.outer(range(radix), range(rest)) / left).astype(x.dtype)
        turned = [part * phase[None, :, None] for part, phase in zip(sums, phases, strict=True)]
        y = jnp.stack(turned).reshape(radix * done, rest, columns)
    return y.reshape(length, columns)


def _dft(parts: list[Array]) -> list[Array]:
    """The DFT of a power of two of arrays."""
    if len(parts) == 1:
        return parts
    even, odd = _dft(parts[::2]), _dft(parts[1::2])
    turned = [part * np.exp(-2j * np.pi * k / len(parts)).astype(part.dtype) for k, part in enumerate(odd)]
    return [*map(lax.add, even, turned), *map(lax.sub, even, turned)]


def column_passes() -> dict[tuple[str, int], float]:
    """Passes over memory of either in programs for an H100, for a slab of N^3 on 8 of them."""
    found, where = {}, SingleDeviceSharding(h100s(1)[0])
    for length in RADICES:
        shape = (length, length * length // 8)
        x = jax.ShapeDtypeStruct(shape, np.complex64, sharding=where)
        for call in (by_cufft, by_fusions):
            program = program_of(jax.jit(call).lower(x).compile())
            found[call.__name__, length] = sum(passed(program).values()) / (2 * 8 * math.prod(shape))
    return found
