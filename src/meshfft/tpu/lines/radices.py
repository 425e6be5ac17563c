"""Radices of a length, their butterflies in split complex, and the tables of their twiddles.

    X[k] = sum_n x[n] exp(sign 2 pi i k n / radix)

Additions and products of real vectors, for each vector of a butterfly: 2 for radix 2, 4 for 4, 6.5 for 8, 9 for 16. A
part that is None is zero and costs nothing.
"""

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jax import Array

from ...machine.chip import LANES as LANES
from ...machine.chip import SUBLANES as SUBLANES
from ...numerics.phases import host_roots, table

HALF = math.sqrt(0.5)
MaybeArray = Array | None
Pair = tuple[MaybeArray, MaybeArray]
Whole = tuple[Array, Array]
Weight = Array | float | None


@functools.lru_cache(maxsize=1024)
def radices(length: int) -> tuple[int, ...]:
    """The radices of a length, powers of 2 first; (1,) for 1, and () if a prime factor is above 7."""
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
        even = [16] + [8] * (eights - 1)
    else:
        even = [8] * eights + [2**left] * (left > 0)
    return (*even, *odd) or (1,)


@functools.lru_cache(maxsize=256)
def twiddles(factors: tuple[int, ...], sign: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Starts of Stockham passes in a table of exp(sign 2 pi i b c / (left radix)), re and im interleaved; the table."""
    left, begins, parts, size = math.prod(factors), list[int](), list[np.ndarray](), 0
    for radix in factors:
        left //= radix
        begins.append(size)
        if left > 1:
            w = roots(left, radix, left * radix, sign)
            parts.append(np.stack([w.real, w.imag], -1).ravel())
            size += parts[-1].size
    return tuple(begins), np.concatenate([*parts, np.zeros(2 * (not parts))]).astype(np.float32)


@functools.lru_cache(maxsize=32)
def last_twiddles(registers: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i s k / (8 registers)), s < 8, on all lanes: (2, 8, registers, 128)."""
    k = np.minimum(np.arange(max(registers, SUBLANES)), registers - 1)
    return on_all_lanes(host_roots(np.outer(np.arange(SUBLANES), k), SUBLANES * registers, sign))


def roots(rows: int, columns: int, length: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i r c / length), rounded to float32."""
    return table(rows, columns, length, sign, np.dtype("complex64"))


def on_all_lanes(w: np.ndarray) -> np.ndarray:
    return np.repeat(in_planes(w)[..., None], LANES, -1)


def in_planes(w: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.stack([w.real, w.imag], axis).astype(np.float32)


def dft(x: Sequence[Pair], sign: int) -> list[Pair]:
    radix = len(x)
    if radix == 1:
        return list(x)
    if radix == 2:
        return [_add(*x), _sub(*x)]
    if radix == 4:
        return _dft4(x, sign)
    return _dft_even(x, sign) if radix in (8, 16) else _dft_odd(x, sign)


def times(a: Pair, w: tuple[Weight, Weight]) -> Pair:
    (re, im), (cos, sin) = a, w
    return _minus(_by(re, cos), _by(im, sin)), _plus(_by(re, sin), _by(im, cos))


def _plus(a: MaybeArray, b: MaybeArray) -> MaybeArray:
    return b if a is None else a if b is None else a + b


def _minus(a: MaybeArray, b: MaybeArray) -> MaybeArray:
    return a if b is None else -b if a is None else a - b


def _by(a: MaybeArray, w: Weight) -> MaybeArray:
    return None if a is None or w is None else a * w


def _add(a: Pair, b: Pair) -> Pair:
    return _plus(a[0], b[0]), _plus(a[1], b[1])


def _sub(a: Pair, b: Pair) -> Pair:
    return _minus(a[0], b[0]), _minus(a[1], b[1])


def _times_i(a: Pair, sign: int) -> Pair:
    return (a[1], _minus(None, a[0])) if sign < 0 else (_minus(None, a[1]), a[0])


def _rotated(a: Pair, eighths: int, sign: int) -> Pair:
    """exp(sign 2 pi i eighths / 8) a."""
    if eighths == 0:
        return a
    if eighths == 2:
        return _times_i(a, sign)
    plus, minus = _plus(*a), _minus(*a)
    first, second = (plus, minus) if (sign < 0) == (eighths == 1) else (minus, plus)
    return _by(first, HALF if eighths == 1 else -HALF), _by(second, sign * HALF)


def _dft4(x: Sequence[Pair], sign: int) -> list[Pair]:
    a, b, c, d = _add(x[0], x[2]), _sub(x[0], x[2]), _add(x[1], x[3]), _times_i(_sub(x[1], x[3]), sign)
    return [_add(a, c), _add(b, d), _sub(a, c), _sub(b, d)]


def _dft_even(x: Sequence[Pair], sign: int) -> list[Pair]:
    """8 as 4 x 2, 16 as 4 x 4: DFTs of 4 over the high digit, twiddles, DFTs over the low one."""
    radix = len(x)
    low = radix // 4
    columns = [_dft4(x[i::low], sign) for i in range(low)]
    real = all(im is None for _, im in x)  # then X[3 + 4 k] = conj X[1 + 4 (low - 1 - k)]
    rows = [[_twiddled(columns[i][c], i * c, radix, sign) for i in range(low)] for c in range(3 if real else 4)]
    done = [dft(row, sign) for row in rows]
    done += [[(re, _minus(None, im)) for re, im in reversed(done[1])]] if real else []
    return [done[c][k] for k in range(low) for c in range(4)]


def _twiddled(a: Pair, power: int, radix: int, sign: int) -> Pair:
    """exp(sign 2 pi i power / radix) a."""
    eighths, rest = divmod(8 * power, radix)
    if rest:
        angle = 2 * math.pi * power / radix
        return times(a, (math.cos(angle), sign * math.sin(angle)))
    return _rotated(a, eighths, sign) if eighths < 4 else _sub((None, None), _rotated(a, eighths - 4, sign))


def _dft_odd(x: Sequence[Pair], sign: int) -> list[Pair]:
    """Uses sums and differences of x[j] and x[radix - j], which halves the products."""
    radix, half = len(x), (len(x) - 1) // 2
    sums = [_add(x[j], x[radix - j]) for j in range(1, half + 1)]
    differences = [_times_i(_sub(x[j], x[radix - j]), sign) for j in range(1, half + 1)]
    out: list[Pair] = [functools.reduce(_add, sums, x[0])] * radix
    for k in range(1, half + 1):
        angles = [2 * math.pi * (j * k % radix) / radix for j in range(1, half + 1)]
        even, odd = _weighted(sums, map(math.cos, angles)), _weighted(differences, map(math.sin, angles))
        out[k], out[radix - k] = _add(_add(x[0], even), odd), _sub(_add(x[0], even), odd)
    return out


def _weighted(vectors: Sequence[Pair], weights: Iterable[float]) -> Pair:
    return functools.reduce(_add, [(_by(re, w), _by(im, w)) for (re, im), w in zip(vectors, weights, strict=True)])
