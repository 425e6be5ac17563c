"""Host numbers of the kernels: radices of a length, and tables of twiddles.

A length is the product of radices 16, 8, 7, 5, 4, 3 and 2. Tables are made in float64, of angles that integers reduce
to a turn, and rounded once.
"""

import functools
import math

import numpy as np

from ...numerics.phases import host_roots

SUBLANES, LANES = 8, 128


@functools.lru_cache(maxsize=1024)
def radices(length: int) -> tuple[int, ...]:
    """The radices of a length, largest of 2 first; (1,) for 1, and () where a factor above 7 is left."""
    twos = (length & -length).bit_length() - 1 if length else 0
    rest, odd = length >> twos, list[int]()
    for prime in (7, 5, 3):
        while rest and rest % prime == 0:
            rest //= prime
            odd.append(prime)
    if rest != 1:
        return ()
    eights, left = divmod(twos, 3)
    if left == 1 and eights:  # 16 is cheaper than 8 and 2
        twos_of = (16, *(8,) * (eights - 1))
    else:
        twos_of = (*(8,) * eights, *((2**left,) if left else ()))
    return (*twos_of, *odd) or (1,)


@functools.lru_cache(maxsize=256)
def twiddles(factors: tuple[int, ...], sign: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Of each Stockham pass exp(sign 2 pi i b c / (left radix)), b < left, c < radix: where they begin, and all of
    them, real and imaginary parts by turns.
    """
    left, begins, parts, size = math.prod(factors), list[int](), list[np.ndarray](), 0
    for radix in factors:
        left //= radix
        begins.append(size)
        if left > 1:
            w = host_roots(np.outer(np.arange(left), np.arange(radix)), left * radix, sign)
            parts.append(np.stack([w.real, w.imag], -1).ravel())
            size += parts[-1].size
    return tuple(begins), np.concatenate([*parts, np.zeros(2 * (not parts))]).astype(np.float32)


@functools.lru_cache(maxsize=32)
def last_twiddles(registers: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i s k / (8 registers)), s < 8: (2, 8, registers, 128), as they meet what a strided load brings."""
    k = np.minimum(np.arange(max(registers, SUBLANES)), registers - 1)
    w = host_roots(np.outer(np.arange(SUBLANES), k), SUBLANES * registers, sign)
    return np.repeat(np.stack([w.real, w.imag])[..., None], LANES, -1).astype(np.float32)


@functools.lru_cache(maxsize=32)
def twist(length: int, columns: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i n k / length), k < columns: (length / columns, 2, columns)."""
    w = host_roots(np.outer(np.arange(length // columns), np.arange(columns)), length, sign)
    return scalars(w)


def scalars(w: np.ndarray) -> np.ndarray:
    """Rows of weights as `Job.twist` has them: of each the real parts, and the imaginary ones."""
    return np.stack([w.real, w.imag], 1).astype(np.float32)
