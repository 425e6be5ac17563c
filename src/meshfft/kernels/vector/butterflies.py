"""DFTs of 2, 3, 4, 5, 7, 8 and 16 vectors in split complex: X[k] = sum_n x[n] exp(sign 2 pi i k n / radix).

Operations for each vector (additions and products of real vectors): 2 for radix 2, 4 for 4, 6.5 for 8, 9 for 16.
"""

import math
from collections.abc import Sequence

from jax import Array

Pair = tuple[Array, Array]  # real and imaginary parts
HALF = math.sqrt(0.5)


def dft(x: Sequence[Pair], sign: int) -> list[Pair]:
    """The DFT of as many vectors as there are."""
    radix = len(x)
    if radix == 1:
        return list(x)
    if radix == 2:
        return [_add(*x), _sub(*x)]
    if radix == 4:
        return _dft4(x, sign)
    if radix in (8, 16):
        return _dft_even(x, sign)
    return _dft_odd(x, sign)


def times(a: Pair, w: tuple[Array | float, Array | float]) -> Pair:
    """The product of a vector and a number, or of two vectors."""
    return a[0] * w[0] - a[1] * w[1], a[0] * w[1] + a[1] * w[0]


def _add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _sub(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def _turned(a: Pair, sign: int) -> Pair:
    """sign i a."""
    return (a[1], -a[0]) if sign < 0 else (-a[1], a[0])


def _rotated(a: Pair, eighths: int, sign: int) -> Pair:
    """exp(sign 2 pi i eighths / 8) a, for 1 and 3 by two additions and two products."""
    if eighths == 0:
        return a
    if eighths == 2:
        return _turned(a, sign)
    re, im = a
    if sign < 0:
        return ((re + im) * HALF, (im - re) * HALF) if eighths == 1 else ((im - re) * HALF, (re + im) * -HALF)
    return ((re - im) * HALF, (im + re) * HALF) if eighths == 1 else ((re + im) * -HALF, (re - im) * HALF)


def _dft4(x: Sequence[Pair], sign: int) -> list[Pair]:
    a, b, c, d = _add(x[0], x[2]), _sub(x[0], x[2]), _add(x[1], x[3]), _turned(_sub(x[1], x[3]), sign)
    return [_add(a, c), _add(b, d), _sub(a, c), _sub(b, d)]


def _dft_even(x: Sequence[Pair], sign: int) -> list[Pair]:
    """8 as 4 x 2, 16 as 4 x 4: DFTs of 4 over the high digit, twiddles, and DFTs over the low one."""
    radix = len(x)
    low = radix // 4
    columns = [_dft4(x[i::low], sign) for i in range(low)]
    rows = [[_twiddled(columns[i][c], i * c, radix, sign) for i in range(low)] for c in range(4)]
    done = [dft(row, sign) for row in rows]
    return [done[c][k] for k in range(low) for c in range(4)]


def _twiddled(a: Pair, power: int, radix: int, sign: int) -> Pair:
    """exp(sign 2 pi i power / radix) a."""
    eighths, rest = divmod(8 * power, radix)
    if rest:
        angle = 2 * math.pi * power / radix
        return times(a, (math.cos(angle), sign * math.sin(angle)))
    return _rotated(a, eighths, sign) if eighths < 4 else (lambda b: (-b[0], -b[1]))(_rotated(a, eighths - 4, sign))


def _dft_odd(x: Sequence[Pair], sign: int) -> list[Pair]:
    """By sums and differences of x[j] and x[radix - j]: half the products."""
    radix, half = len(x), (len(x) - 1) // 2
    sums = [_add(x[j], x[radix - j]) for j in range(1, half + 1)]
    turned = [_turned(_sub(x[j], x[radix - j]), sign) for j in range(1, half + 1)]
    out: list[Pair] = [x[0]] * radix
    for one in sums:
        out[0] = _add(out[0], one)
    for k in range(1, half + 1):
        angles = [2 * math.pi * (j * k % radix) / radix for j in range(1, half + 1)]
        even, odd = _weighted(sums, [math.cos(a) for a in angles]), _weighted(turned, [math.sin(a) for a in angles])
        out[k], out[radix - k] = _add(_add(x[0], even), odd), _sub(_add(x[0], even), odd)
    return out


def _weighted(vectors: Sequence[Pair], weights: Sequence[float]) -> Pair:
    """The sum of some vectors times weights."""
    re, im = (vectors[0][part] * weights[0] for part in (0, 1))
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        re, im = re + vector[0] * weight, im + vector[1] * weight
    return re, im
