"""FFTs in place, a few lines at a time: they stay in a core's cache, and memory is read and written once.

Along the last dimension XLA does a few lines. Along another one, radices N = r_1 r_2 ... r_L do a few columns without a
transpose: with n = a M + b and k = c + r k', by stages

    y[b, c] = exp(sign 2 pi i b c / N) sum_a exp(sign 2 pi i a c / r) x[a, b],   then the same over b with N <- M.

A stage leaves its r outputs behind one another, before the k that are done (Stockham), so that the last is in order.

Tables are made in float64 on the host from exact integer phases and rounded once.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.all_to_all import Chunks, Grid, corner, cut, fits, join
from .bluestein import prime_factors

COLUMN_BYTES = 2**17  # columns worked on at a time
ROW_BYTES = 2**17  # lines worked on at a time
PLANE_BYTES = 2**19  # a plane whose two dimensions are done at once: a quarter of a second cache of 2 MiB
SMALL_BYTES = 2**20  # of a block below which a program that is compiled sooner is worth more than the fastest columns
NARROWEST = 16  # elements behind the dimension, below which vector units idle
LARGEST = 7  # radix
# Reads lines: of the pieces, from where each begins, so many positions along each dimension.
Reader = Callable[[Sequence[Array], Sequence[Array], Sequence[int]], Array]


def in_place(block: Array, dims: Sequence[int], sign: int, grid: Grid = (), whole: bool = False) -> Array:
    """Transforms whole dimensions of a complex block, unscaled, the block taken apart along a grid where it fits.

    `whole` says that the block is one array, and not joined from such pieces by the step before: planes are read there.
    """
    grid = grid if fits(block.shape, grid) else ()
    pieces, way = cut(block, grid), Way(sign, block.nbytes < SMALL_BYTES)
    for group in together(block.shape, block.dtype.itemsize, dims):
        pieces, whole = _transformed(pieces, grid, group, way, block if whole else None), False
    return join(pieces, grid)


def by_columns(block: Sequence[int], dim: int, length: int) -> bool:
    """True where columns are worth it: radices of at most LARGEST, and whole vectors behind the dimension."""
    return math.prod(block[dim + 1 :]) >= NARROWEST and max(radices(length), default=1) <= LARGEST


def together(block: Sequence[int], itemsize: int, dims: Sequence[int]) -> list[tuple[int, ...]]:
    """The dimensions done at once, one group after the other: the last two where a plane of them fits in the cache."""
    left, pair = sorted(dims), [len(block) - 2, len(block) - 1]
    if left[-2:] == pair and math.prod(block[-2:]) * itemsize <= PLANE_BYTES:
        return [tuple(pair), *((dim,) for dim in left[:-2])]
    return [(dim,) for dim in reversed(left)]


@functools.lru_cache(maxsize=1024)
def radices(length: int) -> tuple[int, ...]:
    """Fours first, then the prime factors that are left, in rising order."""
    fours, rest = 0, length
    while rest % 4 == 0:
        fours, rest = fours + 1, rest // 4
    return (4,) * fours + prime_factors(rest)


@functools.lru_cache(maxsize=64)
def table(rows: int, columns: int, length: int, sign: int, dtype: np.dtype) -> np.ndarray:
    """exp(sign 2 pi i r c / length), reduced exactly in 64-bit integers, rounded once."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.exp(sign * 2j * np.pi * (turns / length)).astype(dtype)


class Way(NamedTuple):
    """How lines are done: the sign of the exponent, and whether the program is to be small."""

    sign: int
    small: bool


def _transformed(pieces: Chunks, grid: Grid, group: tuple[int, ...], way: Way, block: Array | None) -> Chunks:
    """One group of dimensions, of all pieces that together hold whole lines at a time."""
    inner = [j for j, (dim, _) in enumerate(grid) if dim in group]
    families: dict[tuple[int, ...], Chunks] = {}
    for key, piece in pieces.items():
        other = tuple(i for j, i in enumerate(key) if j not in inner)
        families.setdefault(other, {})[key] = piece
    subgrid, done = tuple(grid[j] for j in inner), dict[tuple[int, ...], Array]()
    for family in families.values():
        read: Reader = functools.partial(_from_pieces, grid=subgrid)
        if block is not None and len(group) > 1:
            key, piece = next(iter(family.items()))
            read = functools.partial(_from_block, block=block, first=corner(key, grid, piece.shape), group=group)
            # To be written only, and with different numbers: of equal ones the compiler would make copies.
            family = {key: jnp.full_like(piece, j) for j, (key, piece) in enumerate(family.items())}
        done |= _swept(family, subgrid, group, way, read)
    return done


def _swept(family: Chunks, grid: Grid, group: tuple[int, ...], way: Way, read: Reader) -> Chunks:
    """Some lines after the other, written to the pieces."""
    keys, pieces = list(family), tuple(family.values())
    for sweep in _sweeps(pieces[0], grid, group):
        turn = functools.partial(_turn, sweep=sweep, grid=grid, group=group, way=way, read=read)
        pieces = lax.fori_loop(0, math.prod(sweep.counts), turn, pieces)
    return dict(zip(keys, pieces, strict=True))


class Sweep(NamedTuple):
    """A loop over a piece: by dimension where it starts, how many turns it takes, and the extent of each."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    extents: tuple[int, ...]

    def place(self, i: Array) -> list[Array]:
        """Where the i-th turn begins."""
        at = []
        for start, count, extent in zip(*map(reversed, self), strict=True):
            at.append(start + i % count * extent)
            i = i // count
        return at[::-1]


def _turn(
    i: Array, pieces: tuple[Array, ...], sweep: Sweep, grid: Grid, group: tuple[int, ...], way: Way, read: Reader
) -> tuple[Array, ...]:
    """Some lines: read, transformed, and parted among the pieces."""
    at = sweep.place(i)
    done = cut(_lines(read(pieces, at, sweep.extents), group, way), grid).values()
    return tuple(lax.dynamic_update_slice(piece, part, at) for piece, part in zip(pieces, done, strict=True))


def _from_pieces(pieces: Sequence[Array], at: Sequence[Array], extents: Sequence[int], grid: Grid) -> Array:
    keys = itertools.product(*(range(parts) for _, parts in grid))
    parts = (lax.dynamic_slice(piece, at, extents) for piece in pieces)
    return join(dict(zip(keys, parts, strict=True)), grid)


def _from_block(
    _: Sequence[Array],
    at: Sequence[Array],
    extents: Sequence[int],
    block: Array,
    first: Sequence[int],
    group: Sequence[int],
) -> Array:
    whole = [size if d in group else extent for d, (size, extent) in enumerate(zip(block.shape, extents, strict=True))]
    return lax.dynamic_slice(block, [j + more for j, more in zip(first, at, strict=True)], whole)


def _sweeps(piece: Array, grid: Grid, group: tuple[int, ...]) -> Iterator[Sweep]:
    """The loops: one dimension a few positions at a time, and what remains of it."""
    parts = {dim: math.prod(p for d, p in grid if d == dim) for dim in group}
    nbytes = math.prod(piece.shape[d] * parts[d] for d in group) * piece.dtype.itemsize
    rows = piece.ndim - 1 in group
    room = (ROW_BYTES if rows else max(COLUMN_BYTES, NARROWEST * nbytes)) // max(nbytes, 1)
    extents = [piece.shape[d] if d in group else 1 for d in range(piece.ndim)]
    for dim in reversed(range(group[0]) if rows else range(group[0] + 1, piece.ndim)):
        extents[dim] = max(1, min(room, piece.shape[dim])) if len(group) == 1 else 1
        room //= extents[dim]
        if extents[dim] < piece.shape[dim]:
            break
    counts = [n // extent if extent else 0 for n, extent in zip(piece.shape, extents, strict=True)]
    yield Sweep((0,) * piece.ndim, tuple(counts), tuple(extents))
    for dim, (n, count, extent) in enumerate(zip(piece.shape, counts, extents, strict=True)):
        if rest := n - count * extent:
            at = tuple(count * extent if d == dim else 0 for d in range(piece.ndim))
            yield Sweep(at, _with(counts, dim, 1), _with(extents, dim, rest))


def _with(sizes: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    return tuple(size if d == dim else n for d, n in enumerate(sizes))


def _lines(part: Array, group: tuple[int, ...], way: Way) -> Array:
    """Whole lines of a part of the block: the last dimension by XLA, another by columns."""
    if group[-1] == part.ndim - 1:
        part = _rows(part, way.sign)
        group = group[:-1]
    columns = _transposed if way.small else _columns
    for dim in group:
        part = columns(part.reshape(part.shape[dim], -1), way.sign).reshape(part.shape)
    return part


def _rows(part: Array, sign: int) -> Array:
    """XLA's FFT along the last dimension, unscaled."""
    return jnp.fft.fft(part) if sign < 0 else jnp.fft.ifft(part, norm="forward")


def _transposed(lines: Array, sign: int) -> Array:
    """The FFT along dimension 0 of (N, columns) as rows, in two transposes and XLA's FFT, none of which is compiled.

    The barriers keep what is around from being made one kernel with a transpose.
    """
    rows = lax.optimization_barrier(lines.T)
    return lax.optimization_barrier(_rows(rows, sign)).T


def _columns(lines: Array, sign: int) -> Array:
    """The FFT along dimension 0 of (N, columns): stages of (left, done, columns).

    The barrier has the lines brought into the cache first: gathered by the first stage, they are not read as vectors.
    """
    shape, left = lines.shape, lines.shape[0]
    lines = lax.optimization_barrier(lines)[:, None]
    for radix in radices(left):
        left //= radix
        outputs = _butterfly([lines[a * left : (a + 1) * left] for a in range(radix)], sign)
        if left > 1:
            phases = table(left, radix, radix * left, sign, lines.dtype)[:, :, None, None]
            outputs = [y * phases[:, c] if c else y for c, y in enumerate(outputs)]
        lines = jnp.stack(outputs, 1).reshape(left, -1, shape[1])
    return lines.reshape(shape)


def _butterfly(x: Sequence[Array], sign: int) -> list[Array]:
    """The DFT of as many arrays as the radix."""
    if (radix := len(x)) == 4:
        even, odd, turned = x[0] + x[2], x[1] + x[3], _quarter(x[1] - x[3], sign)
        return [even + odd, x[0] - x[2] + turned, even - odd, x[0] - x[2] - turned]
    if radix == 2:
        return [x[0] + x[1], x[0] - x[1]]
    if radix == 3:
        pair, turned = x[1] + x[2], _quarter((x[1] - x[2]) * math.sqrt(0.75), sign)
        return [x[0] + pair, x[0] - pair * 0.5 + turned, x[0] - pair * 0.5 - turned]
    roots = table(radix, radix, radix, sign, x[0].dtype)
    return [sum(x[a] * roots[a, c] for a in range(1, radix)) + x[0] for c in range(radix)]


def _quarter(x: Array, sign: int) -> Array:
    """A quarter turn, without a product."""
    return lax.complex(-sign * jnp.imag(x), sign * jnp.real(x))
