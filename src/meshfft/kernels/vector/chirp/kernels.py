"""Kernels of untiled lines whose length has a large prime factor; jobs.py has their formulas and weights."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from ..lines.along import Line, Load, Store, one_pass
from ..lines.butterflies import Pair, times
from ..lines.calls import Job
from ..lines.radices import LANES, SUBLANES
from ..lines.sources import Planes as Refs
from ..lines.sources import Ref, loop, start
from .jobs import Chirp, jobs_of, kinds, weighed


def fft_chirp(arrays: Sequence[Array], dim: int, sign: int, room: int, interpret: bool = False) -> list[Array]:
    """The FFT of a dimension with two or more behind it, of any length."""
    shape = arrays[0].shape
    made = jobs_of(shape, dim, sign, room)
    assert made is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    chirp, jobs = made
    bodies = (_within,) if chirp.first == 1 else (_come, _within, _go)
    done = list(arrays)
    for body, job, kind in zip(bodies, jobs, kinds(chirp), strict=True):
        job = weighed(kind, chirp, job)
        name = f"fft_{kind}_{chirp.length}x{chirp.points}"
        done = job.run(functools.partial(body, chirp, job), name, done, interpret)
    return done


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
    if chirp.wanted == chirp.turns:
        loop(chirp.rows, write)
    else:
        pl.when(turn < chirp.wanted)(lambda: loop(chirp.rows, write))


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
