"""FFTs in place, a few lines at a time: they stay in a core's cache, and memory is read and written once.

Lines of the last dimension use XLA. Columns use radices N = r_1 r_2 ... r_L without a transpose, by stages

    y[b, c] = exp(sign 2 pi i b c / N) sum_a exp(sign 2 pi i a c / r) x[a, b],   then the same over b with N <- M,

with n = a M + b and k = c + r k'. A stage stores its r outputs as a dimension before the k that are done (Stockham), so
the result is in order.
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
from ..machine.machine import Work
from ..numerics.phases import table
from .base import Engine, Lines, Offer, Site
from .bluestein import is_awkward, prime_factors
from .xla import XLA

COLUMN_BYTES = 2**17  # done at a time
ROW_BYTES = 2**17  # done at a time
PLANE_BYTES = 2**19  # of a plane done at once: a quarter of a 2 MiB second-level cache
SMALL_BYTES = 2**20  # below, a short compilation is worth more than speed
CACHE_LINE = 64  # bytes
NARROWEST = 16  # fewest elements behind the dimension, to fill vector units
LARGEST = 7  # radix
# (chunks, offset, extent along each dimension) -> lines.
Reader = Callable[[Sequence[Array], Sequence[Array | int], Sequence[int]], Array]


@dataclasses.dataclass(frozen=True)
class Cached(Engine[Array]):
    """For CPUs whose devices share a memory."""

    chunked: ClassVar[bool] = True
    name = "cached"

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        """A single device uses all cores for many lines instead."""
        if site.large and not site.alone:
            pairs, last = zip(lines.dims, lines.lengths, strict=True), len(lines.block) - 1
            near = (d for d, n in pairs if (not is_awkward(n, True) if d == last else by_columns(lines.block, d, n)))
            if dims := tuple(near):
                yield cls(), dims

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        passes = 2 * len(together(lines.block, itemsize, lines.dims))
        return dataclasses.replace(XLA.work(lines, itemsize, chip), memory_bytes=passes * lines.points * itemsize)

    def scratch(self, lines: Lines, itemsize: int) -> int:
        return max(PLANE_BYTES, NARROWEST * max(lines.lengths) * itemsize)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        with jax.named_scope("fft"):  # profiles find it by this name
            return in_place(block, tuple(d for d in dims if block.shape[d] > 1), sign, grid, first)


def in_place(block: Array, dims: Sequence[int], sign: int, grid: Grid = (), plain: bool = False) -> Array:
    """Transforms dimensions of a complex block, unscaled, divided along a grid if that fits. A `plain` block is one
    array, not joined from chunks."""
    grid, small = grid_of(block.shape, block.dtype.itemsize, grid), block.nbytes < SMALL_BYTES
    chunks = cut(block, grid)
    for near in together(block.shape, block.dtype.itemsize, dims):
        lines = functools.partial(_lines, dims=near, sign=sign, small=small)
        chunks, plain = _transformed(chunks, grid, near, lines, block if plain else None), False
    return join(chunks, grid)


def by_lines(block: Array, dim: int, lines: Callable[[Array], Array]) -> Array:
    """A function of full lines of one dimension, applied to a few at a time, in place."""
    return _swept({(): block}, (), (dim,), lines, functools.partial(_from_chunks, grid=()))[()]


def grid_of(shape: Sequence[int], itemsize: int, grid: Grid) -> Grid:
    """The grid by which `in_place` cuts a block; () for a small one with odd rows, to compile fast."""
    odd = math.prod(shape) * itemsize < SMALL_BYTES and shape[-1] * itemsize % CACHE_LINE
    return grid if fits(shape, grid) and not odd else ()


def by_columns(block: Sequence[int], dim: int, length: int) -> bool:
    return math.prod(block[dim + 1 :]) >= NARROWEST and max(radices(length), default=1) <= LARGEST


def together(block: Sequence[int], itemsize: int, dims: Sequence[int]) -> list[tuple[int, ...]]:
    """Groups of dimensions done at once: the last two if their plane fits in the cache."""
    left, pair = sorted(dims), [len(block) - 2, len(block) - 1]
    if left[-2:] == pair and math.prod(block[-2:]) * itemsize <= PLANE_BYTES:
        return [tuple(pair), *((dim,) for dim in left[:-2])]
    return [(dim,) for dim in reversed(left)]


@functools.lru_cache(maxsize=1024)
def radices(length: int) -> tuple[int, ...]:
    """Fours first, then the other primes in rising order."""
    fours, rest = 0, length
    while rest % 4 == 0:
        fours, rest = fours + 1, rest // 4
    return (4,) * fours + prime_factors(rest)


def _transformed(
    chunks: Chunks, grid: Grid, dims: tuple[int, ...], lines: Callable[[Array], Array], block: Array | None
) -> Chunks:
    """Transforms dimensions of all chunks that together hold full lines, read from the block if given."""
    inner = [j for j, (dim, _) in enumerate(grid) if dim in dims]
    families: dict[tuple[int, ...], Chunks] = {}
    for key, chunk in chunks.items():
        other = tuple(i for j, i in enumerate(key) if j not in inner)
        families.setdefault(other, {})[key] = chunk
    subgrid, done = tuple(grid[j] for j in inner), dict[tuple[int, ...], Array]()

    def from_block(
        _: Sequence[Array], at: Sequence[Array | int], extents: Sequence[int], first: Sequence[int]
    ) -> Array:
        assert block is not None
        sizes = [block.shape[d] if d in dims else extent for d, extent in enumerate(extents)]
        return lax.dynamic_slice(block, [j + more for j, more in zip(first, at, strict=True)], sizes)

    for family in families.values():
        read: Reader = functools.partial(_from_chunks, grid=subgrid)
        if block is not None and len(dims) > 1:
            key, chunk = next(iter(family.items()))
            read = functools.partial(from_block, first=corner(key, grid, chunk.shape))
            # Only written to. Filled alike, they would be one array, which the compiler would copy.
            family = {key: jnp.full_like(chunk, j) for j, (key, chunk) in enumerate(family.items())}
        done |= _swept(family, subgrid, dims, lines, read)
    return done


def _swept(family: Chunks, grid: Grid, dims: tuple[int, ...], lines: Callable[[Array], Array], read: Reader) -> Chunks:
    def few(i: Array, chunks: tuple[Array, ...], sweep: Sweep) -> tuple[Array, ...]:
        at = sweep.start(i)
        done = cut(lines(read(chunks, at, sweep.extents)), grid).values()
        return tuple(lax.dynamic_update_slice(chunk, part, at) for chunk, part in zip(chunks, done, strict=True))

    chunks = tuple(family.values())
    for sweep in _sweeps(chunks[0], grid, dims):
        chunks = lax.fori_loop(0, math.prod(sweep.counts), functools.partial(few, sweep=sweep), chunks)
    return dict(zip(family, chunks, strict=True))


def _from_chunks(chunks: Sequence[Array], at: Sequence[Array | int], extents: Sequence[int], grid: Grid) -> Array:
    keys = itertools.product(*(range(parts) for _, parts in grid))
    parts = (lax.dynamic_slice(chunk, at, extents) for chunk in chunks)
    return join(dict(zip(keys, parts, strict=True)), grid)


class Sweep(NamedTuple):
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    extents: tuple[int, ...]

    def start(self, i: Array) -> list[Array | int]:
        at = list[Array | int]()
        for start, count, extent in zip(*map(reversed, self), strict=True):
            # `%` and `//` compile to ten instructions each, for negative numbers, which do not occur.
            at.append(start + lax.rem(i, count) * extent if count > 1 else start)
            i = lax.div(i, count) if count > 1 else i
        return at[::-1]


def _sweeps(chunk: Array, grid: Grid, dims: tuple[int, ...]) -> Iterator[Sweep]:
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
    """Transforms full lines: the last dimension by XLA, others by columns. A small block transposes them instead of
    compiling stages; barriers keep XLA from fusing the transposes."""
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
    """FFT along dimension 0 of (N, columns), in stages of (left, done, columns). The barrier loads lines into the
    cache, since the first stage would not read them as vectors."""
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
    return lax.complex(-sign * jnp.imag(x), sign * jnp.real(x))
