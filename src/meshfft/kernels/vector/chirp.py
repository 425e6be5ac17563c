"""Kernels of lines whose length has a large prime factor: a convolution with a chirp (Bluestein's algorithm), untiled.

    X[k] = c[k] sum_n conj(c)[k - n] c[n] x[n],  c[n] = exp(sign pi i n^2 / N):   cyclic, of M >= 2 N - 1 = A B points

    one pass    lines in fast memory: c x, FFT of M, times S / M, back, times c: reads N and writes N
    three       come    Z[i, b] = w_M^(b i) sum_a exp(.. a i / A) c x[B a + b]                reads N, writes M
                within  FFT of B, times S[A j + i] / M, back, times w_M^(-b i)                reads M, writes M
                go      x[B a + b] = c sum_i exp(-.. a i / A) Z[i, b]                         reads M, writes N

S is the transform of conj(c). What is zero is not transformed, and what is not wanted is not made. The first and the
last of three take or give a block of rows B a + b, one of A / 2 values of a after another, and each time transform a
share of the block before, or of the next. Blocks go from the last to the first, so that what is written where rows from
N on would be is followed by what belongs there.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from ...machine.kernel_price import operations
from .along import Line, Load, Store, one_pass
from .butterflies import Pair, times
from .calls import MANY_REGISTERS, WIDE, Job, Placed, Side
from .radices import LANES, SUBLANES, radices, turned
from .sources import Planes as Refs
from .sources import Ref, loop, start

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
    def rows(self) -> int:
        """Of a block that comes or goes; in each turn a share of them is transformed."""
        return max(self.turns, ROWS)

    @property
    def blocks(self) -> int:
        """Of rows b."""
        return self.second // self.rows

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


def fft_chirp(arrays: Sequence[Array], dim: int, sign: int, room: int, interpret: bool = False) -> list[Array]:
    """The FFT of a dimension with two or more behind it, of any length."""
    shape = arrays[0].shape
    made = jobs_of(shape, dim, sign, room)
    assert made is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    chirp, jobs = made
    bodies = (_within,) if chirp.first == 1 else (_come, _within, _go)
    done = list(arrays)
    for body, job, kind in zip(bodies, jobs, kinds(chirp), strict=True):
        done = job.run(
            functools.partial(body, chirp, job), f"fft_{kind}_{chirp.length}x{chirp.points}", done, interpret
        )
    return done


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
    made = (_job(kind, shape, dim, chirp, wide) for wide in WIDE if wide == LANES or wide < 2 * shape[-1])
    return next((job for job in made if job.bytes <= room and _scalars_fit(job, room)), None)


def _scalars_fit(job: Job, room: int) -> bool:
    assert job.twist is not None
    return room >= MANY_REGISTERS or job.twist[0][0].nbytes <= SCALARS


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
        weights = (chirp.of_lines(), lambda *at: at[-1] if kind == "chirpwithin" else 0)
        return Job(tuple(lines), side, side, own, memories=2, twist=weights)
    rows, blocks, last = chirp.rows, chirp.blocks, -(-chirp.length // chirp.rows) - 1
    come = kind == "chirpcome"

    def block(step: Sequence[Any], reads: bool) -> Any:
        at = blocks - step[-2]
        return jnp.maximum(at - 1, 0) if reads else jnp.minimum(at, blocks - 1)

    def row(*step: Any) -> tuple[Any, ...]:
        return (*step[:dim], jnp.minimum(step[-1] * blocks + block(step, come), last), *step[dim:-2])

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
        twist=(chirp.of_rows(come), lambda *step: step[-2]),
        ordered=2,
    )


def _come(chirp: Chirp, job: Job, tables: Sequence[Ref], source: Refs, scratch: list[Refs], target: Refs) -> None:
    """A block of rows is weighed and kept; a share of those kept before is transformed."""
    (line,), held, weights = job.lines, scratch[-1], tables[-1]
    step, turn = (pl.program_id(len(job.source.steps) - back) for back in (2, 1))
    here, before = _halves(step, chirp.turns)
    begin = turn * chirp.second + jnp.maximum(chirp.blocks - 1 - step, 0) * chirp.rows

    def weigh(row: Any) -> None:
        for tile in _tiles(job):
            re, im = (jnp.where(begin + row < chirp.length, part, 0.0) for part in _at(source, (row,), tile))
            _put(held, (here + turn, row), tile, times((re, im), _scalar(weights, row * chirp.turns + turn)))

    def transform(row: Any) -> None:
        own = chirp.rows * chirp.turns + row * chirp.first

        def load(p: int, i: Any, tile: int) -> Pair:
            return _at(held, (before + i, row), tile) if p == 0 else _at(scratch[p % 2], (i,), tile)

        def store(p: int, i: Any, tile: int, value: Pair) -> None:
            if p == len(line.radices) - 1:
                _put(target, (i, row), tile, times(value, _scalar(weights, own + i)))
            else:
                _put(scratch[(p + 1) % 2], (i,), tile, value)

        _passes(line, tables[0], load, store, _tiles(job), chirp.turns, chirp.first)

    loop(chirp.rows, weigh)
    _share(chirp, turn, transform)


def _go(chirp: Chirp, job: Job, tables: Sequence[Ref], source: Refs, scratch: list[Refs], target: Refs) -> None:
    """A share of a block is transformed, weighed and kept; rows of the one before are written."""
    (line,), held, weights = job.lines, scratch[-1], tables[-1]
    step, turn = (pl.program_id(len(job.source.steps) - back) for back in (2, 1))
    here, before = _halves(step, chirp.turns)

    def transform(row: Any) -> None:
        def load(p: int, i: Any, tile: int) -> Pair:
            return _at(source, (i, row), tile) if p == 0 else _at(scratch[p % 2], (i,), tile)

        def store(p: int, i: Any, tile: int, value: Pair) -> None:
            if p == len(line.radices) - 1:
                _put(held, (here + i, row), tile, times(value, _scalar(weights, row * chirp.turns + i)))
            else:
                _put(scratch[(p + 1) % 2], (i,), tile, value)

        _passes(line, tables[0], load, store, _tiles(job), chirp.first, chirp.turns)

    def write(row: Any) -> None:
        for tile in _tiles(job):
            _put(target, (row,), tile, _at(held, (before + turn, row), tile))

    _share(chirp, turn, transform)
    loop(chirp.rows, write)


def _halves(step: Any, turns: int) -> tuple[Any, Any]:
    """Where the block of a step is kept, and that of the step before."""
    here = (step & 1) * turns
    return here, turns - here


def _share(chirp: Chirp, turn: Any, transform: Callable[[Any], None]) -> None:
    """The rows of a block that are transformed in a turn."""
    many = chirp.rows // chirp.turns
    loop(many, lambda row: transform(turn * many + row))


def _within(chirp: Chirp, job: Job, tables: Sequence[Ref], source: Refs, scratch: list[Refs], target: Refs) -> None:
    """There, times the spectrum, and back; alone it weighs what comes and goes by c, otherwise what goes by w."""
    there, back = job.lines
    weights, many = tables[-1], len(there.radices)
    alone = chirp.first == 1
    size = chirp.length if alone else chirp.second

    def load(p: int, i: Any, tile: int) -> Pair:
        if p:
            return _at(scratch[p % 2], (i,), tile)
        value = _at(source, (i,), tile)
        return times(value, _scalar(weights, chirp.second + i)) if alone else value

    def store(p: int, i: Any, tile: int, value: Pair) -> None:
        value = times(value, _scalar(weights, i)) if p == many - 1 else value
        _put(scratch[(p + 1) % 2], (i,), tile, value)

    def load_back(p: int, i: Any, tile: int) -> Pair:
        return _at(scratch[(many + p) % 2], (i,), tile)

    def store_back(p: int, i: Any, tile: int, value: Pair) -> None:
        if p == many - 1:
            _put(target, (i,), tile, times(value, _scalar(weights, chirp.second + i)))
        else:
            _put(scratch[(many + p + 1) % 2], (i,), tile, value)

    _passes(there, tables[0], load, store, _tiles(job), size, chirp.second)
    _passes(back, tables[2], load_back, store_back, _tiles(job), chirp.second, size)


def _passes(line: Line, table: Ref, load: Load, store: Store, tiles: Sequence[int], inside: int, outside: int) -> None:
    """All radices, where registers from `inside` on are zero, and results from `outside` on are not wanted."""
    left, done, last = line.registers, 1, len(line.radices) - 1

    def first(left: int, body: Callable[[Any, Callable[[int], Any]], None]) -> None:
        full, rest = divmod(inside, left)
        for begin, end, many in ((0, rest, full + 1), (rest, left, full)):

            def one(b: Any, many: int = many) -> None:
                body(b, lambda a: a * left + b if a < many else None)

            _between(begin, end, one)

    def read(p: int, i: Any, tile: int) -> Pair:
        return (None, None) if i is None else load(p, i, tile)

    for p, radix in enumerate(line.radices):
        left //= radix
        each = functools.partial(first, left) if p == 0 and inside < line.registers else None
        ends = [(0, done, radix)]
        if p == last and outside < line.registers:
            full, rest = divmod(outside, done)
            ends = [(0, rest, full + 1), (rest, done, full)]
        for begin, end, kept in ends:
            if begin < end and kept:
                some = functools.partial(_some, begin, end)
                one_pass(line, p, (left, done), table, read, store, tiles, each=each, kept=kept, some=some)
        done *= radix


def _some(begin: int, end: int, many: int, body: Callable[[Any], None]) -> None:
    _between(begin, end, body)


def _between(begin: int, end: int, body: Callable[[Any], None]) -> None:
    """Calls body(i) for begin <= i < end."""
    if begin < end:
        loop(end - begin, lambda i: body(begin + i))


def _block(job: Job, chirp: Chirp) -> Any:
    """Which block of rows a step of the grid has."""
    return chirp.second // chirp.rows - 1 - pl.program_id(len(job.source.steps) - 2)


def _tiles(job: Job) -> range:
    return range(job.scratch[-1] // LANES)


def _at(refs: Refs, place: tuple[Any, ...], tile: int) -> tuple[Array, Array]:
    re, im = (ref[(*place, slice(None), start(tile, LANES))] for ref in refs)
    return re, im


def _put(refs: Refs, place: tuple[Any, ...], tile: int, value: Pair) -> None:
    for ref, part in zip(refs, value, strict=True):
        ref[(*place, slice(None), start(tile, LANES))] = jnp.zeros((SUBLANES, LANES)) if part is None else part


def _scalar(table: Ref, number: Any) -> tuple[Any, Any]:
    return table[0, 2 * number], table[0, 2 * number + 1]


def _scalars(w: np.ndarray) -> np.ndarray:
    """Rows of real and imaginary parts by turns, as `Job.twist` has them."""
    return np.stack([w.real, w.imag], -1).reshape(len(w), 1, -1).astype(np.float32)
