"""XLA's own FFT of dimensions that no mesh axis cuts, fastest along the last ones; others are transposed there and
back. Long lengths with a large prime use a chirp, by platform in one of three ways (bluestein.py)."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import ClassVar

import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import Grid
from ..machine.chip import Chip, padded
from ..machine.work import Work
from .bluestein import chirp_fft, folds, is_awkward
from .engine import Engine, Lines, Offer, Site, flops_of

# Passes over a block on a matrix unit: per dimension for transposes, and per stage for three real products,
# which read and write planes. Fitted to the cycles of TPU v3 and v5p.
UNIT_PASSES = 3
STAGE_PASSES = 5
MOVED_PASSES = 4  # on a GPU, if dimensions are behind the lines: all is transposed there and back


@dataclasses.dataclass(frozen=True)
class Xla(Engine[Array]):
    by_xla: ClassVar[bool] = True
    chirp: bool = False  # a length has a large prime and uses longer lines

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        yield cls(any(is_awkward(length, site.machine.chip.cached) for length in lines.lengths)), lines.dims

    @classmethod
    def least(cls, rows: int, points: float, nbytes: int, site: Site) -> Work:
        """Arithmetic and one pass over memory; in a cache two dimensions share a pass."""
        chip = site.machine.chip
        if chip.side > 1:
            return Work(int(6 * sum(stages(rows, chip.side)) * points), "bf16x6", memory_bytes=2 * nbytes)
        passes = 1 if chip.cached else 2
        return Work(vector_flops=int(5 * points * math.log2(max(rows, 1))), memory_bytes=passes * nbytes)

    @property
    def name(self) -> str:
        return "chirp" if self.chirp else "xla"

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        """Products on a matrix unit, else 5 N log2 N flops a line; dimensions behind are transposed there and back."""
        points, wide = lines.points, 2 if self.chirp and not chip.cached else 1
        alive = (math.prod(lines.block) + 3 * wide * points) * itemsize
        if chip.side > 1:
            radices = [radix for length in lines.lengths for radix in stages(length, chip.side)]
            rows, times = sum(padded(radix, chip.side) for radix in radices), UNIT_PASSES * len(lines.dims)
            return Work(
                matrix_flops=6 * rows * points,
                tier="bf16x6",
                memory_bytes=times * points * itemsize,
                fed_bytes=STAGE_PASSES * len(radices) * points * itemsize,
                peak_bytes=alive,
            )
        behind = sum(d not in lines.dims for d in range(min(lines.dims), len(lines.block)))
        passes = 2 * len(lines.dims) + (MOVED_PASSES * (behind > 0) if chip.switched else 10 * behind)
        flops = round(points * sum(map(flops_of, lines.lengths)))
        return Work(vector_flops=flops, memory_bytes=passes * points * itemsize, peak_bytes=alive)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        return fft(block, dims, sign)


XLA = Xla()


def fft(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """Transforms dimensions of a complex block, unscaled. Costs about 5 N log2 N flops a line."""
    dims = tuple(d for d in dims if block.shape[d] > 1)
    if not any(is_awkward(block.shape[dim]) for dim in dims):
        return _by_xla(block, dims, sign)
    ways = {"cpu": "lines", "tpu": "products", "default": "ffts"}
    branches = {where: functools.partial(_with_chirps, dims=dims, sign=sign, way=way) for where, way in ways.items()}
    return lax.platform_dependent(block, **branches)


def _with_chirps(block: Array, dims: tuple[int, ...], sign: int, way: str) -> Array:
    awkward = tuple(d for d in dims if is_awkward(block.shape[d], cached=way == "lines"))
    for dim in awkward:
        block = chirp_fft(block, dim, sign, way)
    return _by_xla(block, tuple(d for d in dims if d not in awkward), sign)


def _by_xla(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """Three dimensions per call. Backward XLA divides by N, which norm="forward" undoes."""
    while dims:
        last, dims = dims[-3:], dims[:-3]
        block = jnp.fft.fftn(block, axes=last) if sign < 0 else jnp.fft.ifftn(block, axes=last, norm="forward")
    return block


@functools.lru_cache(maxsize=1024)
def balanced(length: int, side: int) -> tuple[int, ...]:
    """Factors of at most `side` for the stages of a transform by products; a large prime is one factor. Up to twice the
    side one product is cheaper than two stages."""
    if length <= 2 * side:
        return (length,)
    low = max((d for d in range(2, side + 1) if length % d == 0), default=1)
    return (length,) if low == 1 else (low, *balanced(length // low, side))


@functools.lru_cache(maxsize=1024)
def stages(length: int, side: int) -> tuple[int, ...]:
    """Factors of the products of a transform on a matrix unit; a chirp takes both directions over twice the points."""
    rows, columns = folds(length)
    return (rows, columns, columns, rows) * 2 if is_awkward(length) else balanced(length, side)
