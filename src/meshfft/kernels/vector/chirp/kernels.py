"""Kernels of untiled lines whose length has a large prime factor; jobs.py has their formulas and weights."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..lines.along import Line, Load, Store, one_pass
from ..lines.butterflies import Pair, times
from ..lines.calls import BUFFERS, Far, Job
from ..lines.radices import LANES, SUBLANES
from ..lines.sources import Planes as Refs
from ..lines.sources import Ref, loop, start
from .jobs import Chirp, jobs_of, kinds, tiled, weighed


def fft_chirp(arrays: Sequence[Array], dim: int, sign: int, room: int, interpret: bool = False) -> list[Array]:
    """The FFT of a dimension with two or more behind it, of any length."""
    shape = arrays[0].shape
    made = jobs_of(shape, dim, sign, room)
    assert made is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    chirp, jobs = made
    bodies = (_within,) if chirp.first == 1 else (_come, _within, _go)
    whole = tiled(shape) if chirp.first > 1 else shape
    done = [_padded(x, whole) for x in arrays]
    for body, job, kind in zip(bodies, jobs, kinds(chirp), strict=True):
        job = weighed(kind, chirp, job)
        name = f"fft_{kind}_{chirp.length}x{chirp.points}"
        done = [x.reshape(job.source.shape) for x in done]  # tiles stay as they lie
        done = job.run(functools.partial(body, chirp, job), name, done, interpret)
    return [_cropped(x, shape) for x in done]


def _come(chirp: Chirp, job: Job, tables: Sequence[Ref], source: Refs, scratch: list[Refs], target: Refs) -> None:
    """Rows of a block are weighed and transformed while those of the next one come."""
    assert isinstance(job.source, Far)
    (line,), (*memories, held, done), weights = job.lines, scratch, tables[-1]
    step = pl.program_id(len(job.source.steps) - 1)
    far, block = _rows(chirp, job.source, source, held, done, come=True), step - 1

    def transform(row: Any) -> None:
        own, behind = row * chirp.filled, chirp.rows * chirp.filled + row * chirp.first

        def load(p: int, i: Any, tile: int) -> Pair:
            if p:
                return _at(memories[p % 2], (i,), tile)
            return times(_at(held, (block & 1, i, row), tile), _scalar(weights, own + i))

        def store(p: int, i: Any, tile: int, value: Pair) -> None:
            if p == len(line.radices) - 1:
                _put(target, (i,), tile, times(value, _scalar(weights, behind + i)), start(row, SUBLANES))
            else:
                _put(memories[(p + 1) % 2], (i,), tile, value)

        _passes(line, tables[0], load, store, _tiles(job), chirp.filled, chirp.first)

    def work() -> None:
        far.wait(block)
        loop(chirp.rows, transform)

    pl.when(step < chirp.blocks)(lambda: far.begin(step))
    pl.when(step > 0)(work)


def _go(chirp: Chirp, job: Job, tables: Sequence[Ref], source: Refs, scratch: list[Refs], target: Refs) -> None:
    """Rows of a block are transformed and weighed while those of the one before go."""
    assert isinstance(job.target, Far)
    (line,), (*memories, held, done), weights = job.lines, scratch, tables[-1]
    step = pl.program_id(len(job.target.steps) - 1)
    far = _rows(chirp, job.target, target, held, done, come=False)

    def transform(row: Any) -> None:
        def load(p: int, i: Any, tile: int) -> Pair:
            return _at(source, (i,), tile, start(row, SUBLANES)) if p == 0 else _at(memories[p % 2], (i,), tile)

        def store(p: int, i: Any, tile: int, value: Pair) -> None:
            if p == len(line.radices) - 1:
                _put(held, (step & 1, i, row), tile, times(value, _scalar(weights, row * chirp.filled + i)))
            else:
                _put(memories[(p + 1) % 2], (i,), tile, value)

        _passes(line, tables[0], load, store, _tiles(job), chirp.first, chirp.filled)

    def work() -> None:
        loop(chirp.rows, transform)
        far.begin(step)

    pl.when(step >= BUFFERS)(lambda: far.wait(step - BUFFERS))
    pl.when(step < chirp.blocks)(work)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows B a + b of a block, that lie far apart, and the memory that holds them."""

    chirp: Chirp
    far: Refs
    place: Callable[[Any], tuple[Any, ...]]  # of rows in the array
    held: Refs  # (buffers, a, rows, 8, columns)
    done: Refs  # semaphores, of each buffer one
    come: bool

    def begin(self, block: Any) -> None:
        """Begins to copy a block; what is beyond the end comes as zeros."""
        self._each(block, lambda copy: copy.start())
        if self.come:
            clear, left = functools.partial(self._clear, block & 1), self._left(block)
            pl.when(left < self.chirp.rows)(lambda: self._some(lambda row: row >= left, clear))

    def wait(self, block: Any) -> None:
        """Until it is copied."""
        self._each(block, lambda copy: copy.wait())

    def _each(self, block: Any, do: Callable[[Any], None]) -> None:
        """All rows of an a in one copy; of the last a, of which some may be beyond the end, one after the other."""
        rows, last, left = self.chirp.rows, self.chirp.filled - 1, self._left(block)

        def some(a: Any, row: Any, rows: int) -> None:
            for copy in self._copies(block, a, row, rows):
                do(copy)

        loop(last, lambda a: some(a, 0, rows))
        pl.when(left >= rows)(lambda: some(last, 0, rows))
        pl.when((left > 0) & (left < rows))(lambda: self._some(lambda row: row < left, lambda row: some(last, row, 1)))

    def _some(self, which: Callable[[Any], Any], do: Callable[[Any], None]) -> None:
        """Calls do(row) for some rows."""
        loop(self.chirp.rows, lambda row: pl.when(which(row))(lambda: do(row)))

    def _left(self, block: Any) -> Any:
        """Rows of the last a from a block on."""
        return self.chirp.length - (self.chirp.filled - 1) * self.chirp.second - block * self.chirp.rows

    def _copies(self, block: Any, a: Any, row: Any, rows: int) -> list[Any]:
        here, number = block & 1, a * self.chirp.second + block * self.chirp.rows + row
        place, own = self.place(pl.ds(number, rows)), (here, a, pl.ds(row, rows))
        ends = [(far.at[place], held.at[own]) for far, held in zip(self.far, self.held, strict=True)]
        return [
            pltpu.make_async_copy(*(pair if self.come else pair[::-1]), done.at[here])
            for pair, done in zip(ends, self.done, strict=True)
        ]

    def _clear(self, here: Any, row: Any) -> None:
        for tile in range(self.held[0].shape[-1] // LANES):
            _put(self.held, (here, self.chirp.filled - 1, row), tile, (None, None))


def _rows(chirp: Chirp, side: Far, refs: Refs, held: Refs, done: Refs, come: bool) -> _Rows:
    """Those of the lines that a step of the grid has."""
    *at, down, across = (pl.program_id(d) for d in range(len(side.steps) - 1))

    def place(rows: Any) -> tuple[Any, ...]:
        columns = start(across, held[0].shape[-1])
        return (*at[: side.dim], rows, *at[side.dim :], start(down, SUBLANES), columns)

    return _Rows(chirp, refs, place, held, done, come)


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


def _tiles(job: Job) -> range:
    return range(job.scratch[-1] // LANES)


def _at(refs: Refs, place: tuple[Any, ...], tile: int, rows: Any = slice(None)) -> tuple[Array, Array]:
    re, im = (ref[(*place, rows, start(tile, LANES))] for ref in refs)
    return re, im


def _put(refs: Refs, place: tuple[Any, ...], tile: int, value: Pair, rows: Any = slice(None)) -> None:
    for ref, part in zip(refs, value, strict=True):
        ref[(*place, rows, start(tile, LANES))] = jnp.zeros((SUBLANES, LANES)) if part is None else part


def _scalar(table: Ref, number: Any) -> tuple[Any, Any]:
    return table[0, number], table[1, number]


def _padded(x: Array, shape: Sequence[int]) -> Array:
    """With zeros behind."""
    return x if x.shape == tuple(shape) else jnp.pad(x, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)])


def _cropped(x: Array, shape: Sequence[int]) -> Array:
    """Without what is behind."""
    return x if x.shape == tuple(shape) else x[tuple(map(slice, shape))]
