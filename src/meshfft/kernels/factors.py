"""How a matrix unit factors a length: the rows of its products.

On TPUs XLA divides a length by 128, 64 or 32 while it can, and makes one dense product of the rest, however long: 5000
rows for N = 5000, and for N = 238,810 a matrix of 425 GiB. It computes the matrix within every product. Here such a
length is two near its square root (Cooley and Tukey 1965), with N = R M, n = M a + b and k = c + R d:

    X[c + R d] = sum_b w_M^(b d) w_N^(b c) sum_a w_R^(a c) x[M a + b],   w_N = exp(sign 2 pi i / N)
"""

import functools
import math
from typing import NamedTuple

from ..machine.chip import Chip, rounded_up
from ..numerics.phases import MAX_LENGTH
from .bluestein import SIDE, folds, is_awkward

DENSE = 256  # most rows of one product that take a TPU no longer than two stages, by compiled cycles
LONG = 1024  # most rows of one where the platform is not known
NARROW = 4  # fewest points of a stage: with fewer, transposes cost what products save
LEAST_POWER = 32  # least power of two that XLA splits off


@functools.lru_cache(maxsize=1024)
def balanced(length: int, side: int) -> tuple[int, ...]:
    """Factors for transforms by products: at most `side`, or twice that for the last, where one product is cheaper than
    two stages. Two are as near each other as possible, as a TPU pads short rows; a large prime is one factor.
    """
    if length <= 2 * side:
        return (length,)
    near = largest(length, min(math.isqrt(length), side))
    low = near if length <= near * 2 * side else largest(length, side)
    return (length,) if low == 1 else (low, *balanced(length // low, side))


def largest(length: int, most: int) -> int:
    """The largest factor of a length up to `most`, 1 if it has none."""
    return max((d for d in range(2, most + 1) if length % d == 0), default=1)


class Way(NamedTuple):
    """Rows of a transform's products on a TPU: by XLA, by a chirp, or in two stages, the first of `radix` points, each
    of which may take a chirp."""

    rows: tuple[int, ...]
    radix: int = 0
    twos: int = 0  # lengths in two
    chirp: bool = False

    @property
    def by_xla(self) -> bool:
        return not (self.radix or self.chirp)


@functools.lru_cache(maxsize=1024)
def way_of(length: int) -> Way:
    """The way of fewest rows."""
    ways = [Way(_by_xla(length))]
    if is_awkward(length):
        rows, columns = folds(length)
        ways.append(Way((rows, columns, columns, rows) * 2, chirp=True))  # both directions over twice the points
    if max(ways[0].rows) > DENSE and length <= MAX_LENGTH and (low := largest(length, math.isqrt(length))) >= NARROW:
        first, second = way_of(low), way_of(length // low)
        chirp = first.chirp or second.chirp
        ways.append(Way(first.rows + second.rows, low, 1 + first.twos + second.twos, chirp))
    return min(ways, key=lambda way: sum(rounded_up(rows, SIDE) for rows in way.rows))


def takes_chirp(length: int, chip: Chip) -> bool:
    return way_of(length).chirp if chip.side > 1 else is_awkward(length, chip.cached)


def _by_xla(length: int) -> tuple[int, ...]:
    power = min(length & -length, SIDE)
    return (length,) if length <= SIDE or power < LEAST_POWER else (power, *_by_xla(length // power))
