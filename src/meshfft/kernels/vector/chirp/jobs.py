"""What the kernels of kernels.py work on: a line of any length as a convolution with a chirp (Bluestein's algorithm).

    X[k] = c[k] sum_n conj(c)[k - n] c[n] x[n],  c[n] = exp(sign pi i n^2 / N):   cyclic, of M >= 2 N - 1 = A B points

    one pass    lines in fast memory: c x, FFT of M, times S / M, back, times c: reads N and writes N
    three       come    Z[i, b] = w_M^(b i) sum_a exp(.. a i / A) c x[B a + b]                reads N, writes M
                within  FFT of B, times S[A j + i] / M, back, times w_M^(-b i)                reads M, writes M
                go      x[B a + b] = c sum_i exp(-.. a i / A) Z[i, b]                         reads M, writes N

S is the transform of conj(c). What is zero is not transformed, and what is not wanted is not made. Rows B a + b of some
b and all a lie far apart: the first and the last of three bring and send them by copies of their own, those of the next
block, or of the one before, while they transform. Copies are of whole tiles, to which arrays are padded, and of no row
from N on.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ....machine.kernel_price import operations
from ..lines.along import Line
from ..lines.calls import BUFFERS, MANY_REGISTERS, WIDE, Far, Job, Placed, Side, rounded
from ..lines.radices import LANES, SUBLANES, radices, scalars, turned, twiddles

KINDS = ("chirp", "chirpcome", "chirpwithin", "chirpgo")
FIRST = (1, 4, 8, 16, 32, 64, 128)  # A: one, where lines fit in fast memory
ROWS = (8, 4, 2)  # b of a block that comes or goes: as many as fit in fast memory
SCALARS = 13 * 2**10  # bytes of scalars, where there are 16 KB of which the compiler needs some
SMALL = 8 * 128  # rows times columns of a copy
FULL = 1.25  # numbers of tiles for each that there is, at most
Sizes = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Chirp:
    """A length N, the sign of the exponent, and M = A B."""

    length: int
    sign: int
    first: int  # A
    second: int  # B
    rows: int  # of a block that comes or goes

    @property
    def points(self) -> int:
        """M."""
        return self.first * self.second

    @property
    def lengths(self) -> tuple[int, int]:
        """N and M."""
        return self.length, self.points

    @property
    def filled(self) -> int:
        """Of the A, those of which some number is not zero, or is wanted."""
        return -(-self.length // self.second)

    @property
    def blocks(self) -> int:
        """Of rows b."""
        return self.second // self.rows

    @property
    def scalars(self) -> int:
        """Bytes of scalars that a kernel needs, at most: twiddles, and weights for a step and the next one."""
        lines = 2 * twiddles(radices(self.second), 1)[1].nbytes
        if self.first == 1:
            return lines + BUFFERS * 8 * (self.second + self.length)
        rows = twiddles(radices(self.first), 1)[1].nbytes + BUFFERS * 8 * self.rows * (self.filled + self.first)
        return max(lines + BUFFERS * 8 * 2 * self.second, rows)

    def weights(self) -> np.ndarray:
        """c[n], n < N."""
        n = np.arange(self.length)
        return turned(n * n % (2 * self.length), 2 * self.length, self.sign)

    def spectrum(self) -> np.ndarray:
        """S[A j + i] / M as (i, j)."""
        chirp, around = self.weights().conj(), np.zeros(self.points, complex)
        around[: self.length] = chirp
        around[self.points - self.length + 1 :] = chirp[:0:-1]
        transform = np.fft.fft(around) / self.points if self.sign < 0 else np.fft.ifft(around)
        return transform.reshape(self.second, self.first).T

    def twist(self, sign: int) -> np.ndarray:
        """w_M^(b i) as (i, b)."""
        return turned(np.outer(np.arange(self.first), np.arange(self.second)), self.points, sign)

    def of_rows(self, come: bool) -> np.ndarray:
        """What the first kernel weighs a block with, or the last: c as (row, a); and w as (row, i)."""
        around = np.zeros((self.filled, self.second), complex)
        around.reshape(-1)[: self.length] = self.weights()
        parts = (around, self.twist(self.sign))[: 1 + come]
        return scalars(np.concatenate([part.T.reshape(self.blocks, -1) for part in parts], 1))

    def of_lines(self) -> np.ndarray:
        """What the middle weighs with, or the only one: S, and w or c."""
        behind = self.twist(-self.sign) if self.first > 1 else self.weights()[None]
        return scalars(np.concatenate([self.spectrum(), behind], 1))


@functools.lru_cache(maxsize=256)
def jobs_of(shape: tuple[int, ...], dim: int, sign: int, room: int) -> tuple[Chirp, list[Job]] | None:
    """One kernel, or three; None where no lengths fit, or tiles of the last two dimensions are not full."""
    padded = math.prod(-(-n // size) * size for n, size in zip(shape[-2:], (SUBLANES, LANES), strict=True))
    if dim >= len(shape) - 2 or padded > FULL * math.prod(shape[-2:]):
        return None
    length, fit = shape[dim], []
    for first in FIRST:
        second = _second(length, first)
        for wide, rows in sorted(itertools.product(_wide(shape, first, room), ROWS), key=_numbers, reverse=True):
            chirp = Chirp(length, sign, first, second, rows)
            jobs = [_job(kind, shape, dim, chirp, wide) for kind in kinds(chirp)]
            if all(job.bytes <= room for job in jobs) and (room >= MANY_REGISTERS or chirp.scalars <= SCALARS):
                fit.append((chirp, jobs))
                break
    return min(fit, key=lambda one: _cost(*one), default=None)


def _numbers(size: tuple[int, int]) -> tuple[int, int]:
    """Of a copy, and the rows."""
    return math.prod(size), size[1]


def _wide(shape: tuple[int, ...], first: int, room: int) -> list[int]:
    """Columns of a block; copies of a kernel's own are of whole ones, and not of all 128 on TPUs v2 and v3, whose
    compiler (libtpu 0.0.52) takes them for lines of 512 bytes, of which it then copies no odd number."""
    columns = tiled(shape)[-1]
    if first == 1:
        return [n for n in WIDE if n == LANES or n < 2 * shape[-1]]
    return [n for n in WIDE if columns % n == 0 and (columns > LANES or room >= MANY_REGISTERS)]


def kinds(chirp: Chirp) -> tuple[str, ...]:
    """What the kernels are called."""
    return KINDS[:1] if chirp.first == 1 else KINDS[1:]


def _cost(chirp: Chirp, jobs: Sequence[Job]) -> tuple[int, bool, int, int]:
    """Passes over memory, whether copies are so small that it takes longer to begin them, radices, and how far B is
    from 2 A, with which all kernels take about as long."""
    small = chirp.rows * jobs[0].scratch[-1] < SMALL and len(jobs) > 1
    return len(jobs), small, len(radices(chirp.first)) + len(radices(chirp.second)), abs(chirp.second - 2 * chirp.first)


@functools.lru_cache(maxsize=1024)
def _second(length: int, first: int) -> int:
    """The cheapest B for an A, not the least: radices 2 cost less than others, and err less."""
    multiple = 1 if first == 1 else max(ROWS)
    least = -(-(2 * length - (first == 1)) // (first * multiple)) * multiple
    fit = (n for n in range(least, 2 * least + multiple, multiple) if radices(n))
    return min(fit, key=lambda n: n * operations(n))


def _job(kind: str, shape: tuple[int, ...], dim: int, chirp: Chirp, wide: int) -> Job:
    """A kernel with `wide` columns in a block; between two of three all blocks of them lie one after another."""
    lead, rest = shape[:dim], shape[dim + 1 :]
    none: Sizes = (None,) * dim
    behind: Sizes = (*[None] * (len(rest) - 2), SUBLANES, wide)
    tiles = tuple(-(-n // (size or 1)) for n, size in zip(rest, behind, strict=True))
    between, apart = (*lead, *tiles, chirp.first, chirp.second, SUBLANES, wide), (*none, *[None] * len(tiles))
    sign = -chirp.sign if kind == "chirpgo" else chirp.sign
    if kind in ("chirp", "chirpwithin"):
        side: Side | Placed = Side(shape, (*none, chirp.length, *behind))
        if kind == "chirpwithin":
            sizes = (*apart, None, *between[-3:])
            side = Placed(between, sizes, between[:-3], lambda *at: (*at, 0, 0, 0), arrays=2)
        lines = (Line(chirp.second, sign, untiled=True), Line(chirp.second, -sign, untiled=True))
        return Job(lines, side, side, between[-3:], memories=2)
    come = kind == "chirpcome"
    steps = (*lead, *tiles, chirp.blocks + (1 if come else BUFFERS))

    def place(*at: Any) -> tuple[Any, ...]:
        return (*at[:-1], 0, _block(chirp, at[-1], come), 0)

    outside, sizes = Far(tiled(shape), steps, dim), (*apart, chirp.first, chirp.rows * SUBLANES, wide)
    inside = Placed((*between[:-3], chirp.second * SUBLANES, wide), sizes, steps, place, arrays=2)
    return Job(
        (Line(chirp.first, sign, untiled=True),),
        outside if come else inside,
        inside if come else outside,
        (chirp.first, SUBLANES, wide),
        memories=2,
        more=((BUFFERS, chirp.filled, chirp.rows, SUBLANES, wide),),
        ordered=1,
    )


def tiled(shape: tuple[int, ...]) -> tuple[int, ...]:
    """With full tiles."""
    return (*shape[:-2], rounded(shape[-2], SUBLANES), rounded(shape[-1], LANES))


def weighed(kind: str, chirp: Chirp, job: Job) -> Job:
    """The job with what it weighs with, which is large: only of one that runs."""
    if kind in ("chirp", "chirpwithin"):
        return dataclasses.replace(job, twist=(chirp.of_lines(), lambda *at: at[-1] if kind == "chirpwithin" else 0))
    come = kind == "chirpcome"
    return dataclasses.replace(job, twist=(chirp.of_rows(come), lambda *at: _block(chirp, at[-1], come)))


def _block(chirp: Chirp, step: Any, come: bool) -> Any:
    """Which is transformed in a step: those that come are brought in the step before, those that go are awaited in the
    last two."""
    return jnp.maximum(step - 1, 0) if come else jnp.minimum(step, chirp.blocks - 1)
