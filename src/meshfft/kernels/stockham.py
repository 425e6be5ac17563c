"""FFTs in place, a few lines at a time: they stay in a core's cache, and memory is read and written once.

Along the last dimension XLA does a few lines. Along another, radices N = r_1 r_2 ... r_L do a few columns without a
transpose: with n = a M + b and k = c + r k', by stages

    y[b, c] = exp(sign 2 pi i b c / N) sum_a exp(sign 2 pi i a c / r) x[a, b],   then the same over b with N <- M.

A stage leaves its r outputs behind one another, before the k that are done (Stockham), so that the last is in order.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import Chunks, Grid, corner, cut, fits, join
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.phases import table
from .bluestein import is_awkward, prime_factors
from .engine import Engine, Lines, Offer, Site
from .xla import XLA

COLUMN_BYTES = 2**17  # columns worked on at a time
ROW_BYTES = 2**17  # lines worked on at a time
PLANE_BYTES = 2**19  # a plane whose two dimensions are done at once: a quarter of a second cache of 2 MiB
SMALL_BYTES = 2**20  # of a block below which a program that is compiled sooner is worth more than the fastest columns
NARROWEST = 16  # elements behind the dimension, below which vector units idle
LARGEST = 7  # radix
# Reads lines: of the chunks, from where each begins, with an extent along each dimension.
Reader = Callable[[Sequence[Array], Sequence[Array], Sequence[int]], Array]


@dataclasses.dataclass(frozen=True)
class Cached(Engine[Array]):
    """A few lines at a time, on CPUs whose devices share a memory."""

    chunked: ClassVar[bool] = True

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        """The dimensions that can be done so; one device by itself has all cores for many lines."""
        if site.large and not site.alone and not site.xla:
            pairs, last = zip(lines.dims, lines.lengths, strict=True), len(lines.block) - 1
            near = (d for d, n in pairs if (not is_awkward(n, True) if d == last else by_columns(lines.block, d, n)))
            if dims := tuple(near):
                yield cls(), dims

    @property
    def name(self) -> str:
        return "cached"

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        passes = 2 * len(together(lines.block, itemsize, lines.dims))
        return dataclasses.replace(XLA.work(lines, itemsize, chip), memory_bytes=passes * lines.points * itemsize)

    def scratch(self, lines: Lines, itemsize: int) -> int:
        return max(PLANE_BYTES, NARROWEST * max(lines.lengths) * itemsize)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        with jax.named_scope("fft"):  # profiles know it by its name, as they know XLA's
            return in_place(block, tuple(d for d in dims if block.shape[d] > 1), sign, grid, first)


def in_place(block: Array, dims: Sequence[int], sign: int, grid: Grid = (), plain: bool = False) -> Array:
    """Transforms dimensions of a complex block, unscaled, the block divided along a grid if that fits.

    `plain`: the block is one array, not joined from chunks by the step before, and lines are read there.
    """
    grid = grid if fits(block.shape, grid) else ()
    chunks, small = cut(block, grid), block.nbytes < SMALL_BYTES
    for near in together(block.shape, block.dtype.itemsize, dims):
        lines = functools.partial(_lines, dims=near, sign=sign, small=small)
        chunks, plain = _transformed(chunks, grid, near, lines, block if plain else None), False
    return join(chunks, grid)


def by_columns(block: Sequence[int], dim: int, length: int) -> bool:
    """True if columns are worth it: radices of at most LARGEST, and full vectors behind the dimension."""
    return math.prod(block[dim + 1 :]) >= NARROWEST and max(radices(length), default=1) <= LARGEST


def together(block: Sequence[int], itemsize: int, dims: Sequence[int]) -> list[tuple[int, ...]]:
    """The dimensions done at once: the last two if a plane of them fits in the cache, others one by one."""
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


def _transformed(
    chunks: Chunks, grid: Grid, dims: tuple[int, ...], lines: Callable[[Array], Array], block: Array | None
) -> Chunks:
    """Some dimensions, of all chunks that together hold full lines at a time; read from the block, if given."""
    inner = [j for j, (dim, _) in enumerate(grid) if dim in dims]
    families: dict[tuple[int, ...], Chunks] = {}
    for key, chunk in chunks.items():
        other = tuple(i for j, i in enumerate(key) if j not in inner)
        families.setdefault(other, {})[key] = chunk
    subgrid, done = tuple(grid[j] for j in inner), dict[tuple[int, ...], Array]()

    def from_block(_: Sequence[Array], at: Sequence[Array], extents: Sequence[int], first: Sequence[int]) -> Array:
        assert block is not None
        sizes = [block.shape[d] if d in dims else extent for d, extent in enumerate(extents)]
        return lax.dynamic_slice(block, [j + more for j, more in zip(first, at, strict=True)], sizes)

    for family in families.values():
        read: Reader = functools.partial(_from_chunks, grid=subgrid)
        if block is not None and len(dims) > 1:
            key, chunk = next(iter(family.items()))
            read = functools.partial(from_block, first=corner(key, grid, chunk.shape))
            # To be written only, and with different numbers: of equal ones the compiler would make copies.
            family = {key: jnp.full_like(chunk, j) for j, (key, chunk) in enumerate(family.items())}
        done |= _swept(family, subgrid, dims, lines, read)
    return done


def _swept(family: Chunks, grid: Grid, dims: tuple[int, ...], lines: Callable[[Array], Array], read: Reader) -> Chunks:
    """A few lines after the other: read, transformed, and divided among the chunks."""

    def few(i: Array, chunks: tuple[Array, ...], sweep: Sweep) -> tuple[Array, ...]:
        at = sweep.start(i)
        done = cut(lines(read(chunks, at, sweep.extents)), grid).values()
        return tuple(lax.dynamic_update_slice(chunk, part, at) for chunk, part in zip(chunks, done, strict=True))

    chunks = tuple(family.values())
    for sweep in _sweeps(chunks[0], grid, dims):
        chunks = lax.fori_loop(0, math.prod(sweep.counts), functools.partial(few, sweep=sweep), chunks)
    return dict(zip(family, chunks, strict=True))


def _from_chunks(chunks: Sequence[Array], at: Sequence[Array], extents: Sequence[int], grid: Grid) -> Array:
    keys = itertools.product(*(range(parts) for _, parts in grid))
    parts = (lax.dynamic_slice(chunk, at, extents) for chunk in chunks)
    return join(dict(zip(keys, parts, strict=True)), grid)


class Sweep(NamedTuple):
    """A loop over a chunk: by dimension where it starts, how many steps it takes, and the extent of each."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    extents: tuple[int, ...]

    def start(self, i: Array) -> list[Array]:
        at = []
        for start, count, extent in zip(*map(reversed, self), strict=True):
            at.append(start + i % count * extent)
            i = i // count
        return at[::-1]


def _sweeps(chunk: Array, grid: Grid, dims: tuple[int, ...]) -> Iterator[Sweep]:
    """The loops: one dimension a few positions at a time, and what remains of it."""
    parts = {dim: math.prod(p for d, p in grid if d == dim) for dim in dims}
    nbytes = math.prod(chunk.shape[d] * parts[d] for d in dims) * chunk.dtype.itemsize
    rows = chunk.ndim - 1 in dims
    room = (ROW_BYTES if rows else max(COLUMN_BYTES, NARROWEST * nbytes)) // max(nbytes, 1)
    extents = [chunk.shape[d] if d in dims else 1 for d in range(chunk.ndim)]
    for dim in reversed(range(dims[0]) if rows else range(dims[0] + 1, chunk.ndim)):
        extents[dim] = max(1, min(room, chunk.shape[dim])) if len(dims) == 1 else 1
        room //= extents[dim]
        if extents[dim] < chunk.shape[dim]:
            break
    counts = [n // extent if extent else 0 for n, extent in zip(chunk.shape, extents, strict=True)]
    yield Sweep((0,) * chunk.ndim, tuple(counts), tuple(extents))
    for dim, (n, count, extent) in enumerate(zip(chunk.shape, counts, extents, strict=True)):
        if rest := n - count * extent:
            at = tuple(count * extent if d == dim else 0 for d in range(chunk.ndim))
            yield Sweep(at, (*counts[:dim], 1, *counts[dim + 1 :]), (*extents[:dim], rest, *extents[dim + 1 :]))


def _lines(part: Array, dims: tuple[int, ...], sign: int, small: bool) -> Array:
    """Full lines of a part of the block: the last dimension by XLA, another by columns.

    Columns of a small block are transposed, so that no stages of them are compiled; the barriers keep their
    surroundings from being made one kernel with a transpose.
    """
    if dims[-1] == part.ndim - 1:
        part, dims = _rows(part, sign), dims[:-1]
    for dim in dims:
        lines = part.reshape(part.shape[dim], -1)
        if small:
            lines = lax.optimization_barrier(_rows(lax.optimization_barrier(lines.T), sign)).T
        else:
            lines = _columns(lines, sign)
        part = lines.reshape(part.shape)
    return part


def _rows(part: Array, sign: int) -> Array:
    return jnp.fft.fft(part) if sign < 0 else jnp.fft.ifft(part, norm="forward")


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
    """The DFT of a list of arrays, whose number is the radix."""
    if (radix := len(x)) == 4:
        even, odd, rotated = x[0] + x[2], x[1] + x[3], _quarter(x[1] - x[3], sign)
        return [even + odd, x[0] - x[2] + rotated, even - odd, x[0] - x[2] - rotated]
    if radix == 2:
        return [x[0] + x[1], x[0] - x[1]]
    if radix == 3:
        pair, rotated = x[1] + x[2], _quarter((x[1] - x[2]) * math.sqrt(0.75), sign)
        return [x[0] + pair, x[0] - pair * 0.5 + rotated, x[0] - pair * 0.5 - rotated]
    roots = table(radix, radix, radix, sign, x[0].dtype)
    return [sum(x[a] * roots[a, c] for a in range(1, radix)) + x[0] for c in range(radix)]


def _quarter(x: Array, sign: int) -> Array:
    """A quarter turn, without a product."""
    return lax.complex(-sign * jnp.imag(x), sign * jnp.real(x))
