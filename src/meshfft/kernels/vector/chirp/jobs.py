"""What the kernels of kernels.py work on: a line of any length as a convolution with a chirp (Bluestein's algorithm).

    X[k] = c[k] sum_n conj(c)[k - n] c[n] x[n],  c[n] = exp(sign pi i n^2 / N):   cyclic, of M >= 2 N - 1 = A B points

    one pass    lines in fast memory: c x, FFT of M, times S / M, back, times c: reads N and writes N
    three       come    Z[i, b] = w_M^(b i) sum_a exp(.. a i / A) c x[B a + b]                reads N, writes M
                within  FFT of B, times S[A j + i] / M, back, times w_M^(-b i)                reads M, writes M
                go      x[B a + b] = c sum_i exp(-.. a i / A) Z[i, b]                         reads M, writes N

S is the transform of conj(c). What is zero is not transformed, and what is not wanted is not made. The first and the
last of three take or give a block of rows B a + b, one of A / 2 values of a after another, and each time transform a
share of the block before, or of the next. Blocks go from the last to the first, so that what is written where rows from
N on would be is followed by what belongs there; a turn that has only such rows writes nothing.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ....machine.kernel_price import operations
from ..lines.along import Line
from ..lines.calls import MANY_REGISTERS, WIDE, Job, Placed, Side
from ..lines.radices import LANES, SUBLANES, radices, turned

KINDS = ("chirp", "chirpcome", "chirpwithin", "chirpgo")
FIRST = (1, 4, 8, 16, 32, 64, 128)  # A: one, where lines fit in fast memory
ROWS = 8  # of a block that comes or goes, at least
SCALARS = 3 * 2**10  # bytes of scalars for a step, where fast memory is small: four such lie in 16 KB
FULL = 1.25  # numbers of tiles for each that there is, at most
Sizes = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Chirp:
    """A length N, the sign of the exponent, and M = A B."""

    length: int
    sign: int
    first: int  # A
    second: int  # B

    @property
    def points(self) -> int:
        """M."""
        return self.first * self.second

    @property
    def lengths(self) -> tuple[int, int]:
        """N and M."""
        return self.length, self.points

    @property
    def turns(self) -> int:
        """Of the A, those of which some number is not zero."""
        return self.first // 2

    @property
    def wanted(self) -> int:
        """Of the turns, those that have a row below N."""
        return -(-self.length // self.second)

    @property
    def rows(self) -> int:
        """Of a block that comes or goes; in each turn a share of them is transformed."""
        return max(self.turns, ROWS)

    @property
    def blocks(self) -> int:
        """Of rows b."""
        return self.second // self.rows

    def scalars(self, kind: str) -> int:
        """Weights of a step of a kernel."""
        if kind in ("chirp", "chirpwithin"):
            return self.second + (self.length if self.first == 1 else self.second)
        return self.rows * (self.turns + self.first * (kind == "chirpcome"))

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
        """What the first kernel weighs with, or the last, at each step along b: c of the block that it reads as
        (row, a); and w of the one before as (row, i)."""
        around = np.zeros((self.turns, self.second), complex)
        around.reshape(-1)[: self.length] = self.weights()
        before = self.blocks - np.arange(self.blocks + 1)
        parts = [(around, np.maximum(before - 1, 0))]
        parts += [(self.twist(self.sign), np.minimum(before, self.blocks - 1))] * come
        each = [part.T.reshape(self.blocks, -1)[at] for part, at in parts]
        return _scalars(np.concatenate(each, 1))

    def of_lines(self) -> np.ndarray:
        """What the middle weighs with, or the only one: S, and w or c."""
        behind = self.twist(-self.sign) if self.first > 1 else self.weights()[None]
        return _scalars(np.concatenate([self.spectrum(), behind], 1))


@functools.lru_cache(maxsize=256)
def jobs_of(shape: tuple[int, ...], dim: int, sign: int, room: int) -> tuple[Chirp, list[Job]] | None:
    """One kernel, or three; None where no lengths fit, or tiles of the last two dimensions are not full."""
    padded = math.prod(-(-n // size) * size for n, size in zip(shape[-2:], (SUBLANES, LANES), strict=True))
    if dim >= len(shape) - 2 or padded > FULL * math.prod(shape[-2:]):
        return None
    length = shape[dim]
    fit = []
    for first in FIRST:
        chirp = Chirp(length, sign, first, _second(length, first))
        jobs = [job for kind in kinds(chirp) if (job := _widest(kind, shape, dim, chirp, room)) is not None]
        if len(jobs) == len(kinds(chirp)):
            fit.append((chirp, jobs))
    return min(fit, key=lambda one: _stages(one[0]), default=None)


def kinds(chirp: Chirp) -> tuple[str, ...]:
    """What the kernels are called."""
    return KINDS[:1] if chirp.first == 1 else KINDS[1:]


def _stages(chirp: Chirp) -> tuple[int, int]:
    """Passes over memory, and radices."""
    return len(kinds(chirp)), len(radices(chirp.first)) + len(radices(chirp.second))


@functools.lru_cache(maxsize=1024)
def _second(length: int, first: int) -> int:
    """The cheapest B for an A, not the least: radices 2 cost less than others, and err less."""
    multiple = 1 if first == 1 else max(first // 2, ROWS)
    least = -(-(2 * length - (first == 1)) // (first * multiple)) * multiple
    fit = (n for n in range(least, 2 * least + multiple, multiple) if radices(n))
    return min(fit, key=lambda n: n * operations(n))


def _widest(kind: str, shape: tuple[int, ...], dim: int, chirp: Chirp, room: int) -> Job | None:
    """With the widest blocks that fit in fast memory."""
    if room < MANY_REGISTERS and 8 * chirp.scalars(kind) > SCALARS:
        return None
    made = (_job(kind, shape, dim, chirp, wide) for wide in WIDE if wide == LANES or wide < 2 * shape[-1])
    return next((job for job in made if job.bytes <= room), None)


def _job(kind: str, shape: tuple[int, ...], dim: int, chirp: Chirp, wide: int) -> Job:
    """A kernel with so many columns in a block."""
    lead, rest = shape[:dim], shape[dim + 1 :]
    none: Sizes = (None,) * dim
    behind: Sizes = (*[None] * (len(rest) - 2), SUBLANES, wide)
    between = (*lead, chirp.first, chirp.second, *rest)
    tiles = tuple(-(-n // (size or 1)) for n, size in zip(rest, behind, strict=True))
    sign = -chirp.sign if kind == "chirpgo" else chirp.sign
    if kind in ("chirp", "chirpwithin"):
        lines, own = [Line(chirp.second, sign, untiled=True) for sign in (sign, -sign)], (chirp.second, SUBLANES, wide)
        if kind == "chirp":
            side: Side | Placed = Side(shape, (*none, chirp.length, *behind))
        else:
            sizes = (*none, None, chirp.second, *behind)
            steps = (*lead, *tiles, chirp.first)
            side = Placed(between, sizes, steps, lambda *at: (*at[:dim], at[-1], 0, *at[dim:-1]), arrays=2)
        return Job(tuple(lines), side, side, own, memories=2)
    rows, blocks, last = chirp.rows, chirp.blocks, -(-chirp.length // chirp.rows) - 1
    come = kind == "chirpcome"

    def block(step: Sequence[Any], reads: bool) -> Any:
        at = blocks - step[-2]
        return jnp.maximum(at - 1, 0) if reads else jnp.minimum(at, blocks - 1)

    def row(*step: Any) -> tuple[Any, ...]:
        turn = jnp.minimum(step[-1], chirp.wanted - 1)
        return (*step[:dim], jnp.minimum(turn * blocks + block(step, come), last), *step[dim:-2])

    def some(*step: Any) -> tuple[Any, ...]:
        return (*step[:dim], 0, block(step, not come), *step[dim:-2])

    steps = (*lead, *tiles, blocks + 1, chirp.turns)
    outside = Placed(shape, (*none, rows, *behind), steps, row, arrays=2)
    inside = Placed(between, (*none, chirp.first, rows, *behind), steps, some, arrays=2)
    return Job(
        (Line(chirp.first, sign, untiled=True),),
        *((outside, inside) if come else (inside, outside)),
        (chirp.first, SUBLANES, wide),
        memories=2,
        more=((2 * chirp.turns, rows, SUBLANES, wide),),
        ordered=2,
    )


def weighed(kind: str, chirp: Chirp, job: Job) -> Job:
    """The job with what it weighs with, which is large: only of one that runs."""
    if kind in ("chirp", "chirpwithin"):
        return dataclasses.replace(job, twist=(chirp.of_lines(), lambda *at: at[-1] if kind == "chirpwithin" else 0))
    return dataclasses.replace(job, twist=(chirp.of_rows(kind == "chirpcome"), lambda *at: at[-2]))


def _scalars(w: np.ndarray) -> np.ndarray:
    """Rows of real and imaginary parts by turns, as `Job.twist` has them."""
    return np.stack([w.real, w.imag], -1).reshape(len(w), 1, -1).astype(np.float32)
