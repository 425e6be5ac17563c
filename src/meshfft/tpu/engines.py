"""The FFT engines of a TPU, in float32: vector kernels for complex lines, real lines, and chirps.

A length without kernels is a convolution with a chirp, by FFTs of a length with kernels. Its even and odd bins are two
transforms of L points (kernels/bluestein.py), stacked in a new leading dimension.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ..collectives.all_to_all import PLANES, Grid, Pieces, Ports
from ..collectives.wires import SUBLANES, Tiled
from ..kept import Trial
from ..kernels.base import Engine, Lines, Offer, RealEngine, Sender, Site, fft_error, flops_of
from ..kernels.bluestein import fft_tables, padded_length
from ..kernels.engines import register
from ..kernels.real import XLA_REAL
from ..kernels.xla import XLA
from ..layout.layout import line_shape
from ..machine.chip import Chip
from ..machine.machine import Work
from ..numerics.dtypes import Error
from ..numerics.split_complex import Block, Planes, Shape, like, resize, split, times
from . import fft, price, trials
from .lines.short import real_kernel
from .passes import chunk_of, is_direct, passes, supports

RESERVED = 2**19  # bytes of fast memory left to the compiler
COPIES = 3  # reads and writes of a block copied to another order


def room_of(site: Site) -> int:
    """Bytes of fast memory for kernels; 0 if a kernel has failed."""
    scratch = site.machine.chip.scratch
    if scratch is None or site.xla or site.itemsize != 8 or site.machine.has_failed("fft", "wire"):
        return 0
    return int(scratch.value) - RESERVED


@register
@dataclasses.dataclass(frozen=True)
class VectorFFT(Sender):
    room: int
    planar: ClassVar[bool] = True
    name = "vector"

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        if room := room_of(site):
            kept = tuple(d for d in lines.dims if supports(lines.shape, d, room))
            moved = tuple(d for d in lines.dims if fft.in_orders(lines.shape, (d,), room))
            for dims in dict.fromkeys(filter(None, (kept, moved))):
                yield cls(room), dims

    @classmethod
    def least(cls, rows: int, points: float, nbytes: int, site: Site) -> Work | None:
        return Work(memory_bytes=int(points * site.itemsize) * (rows > 1)) if room_of(site) else None

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        plain = XLA.work(lines, itemsize, chip)
        if chip.scratch is None:
            return plain
        points, cycles, filled = lines.points, 0, 1.0
        orders = fft.in_orders(lines.shape, lines.dims, self.room)
        for at, one in enumerate(orders):
            filled = max(filled, fft.waste(lines.shape, one.order) if at else 1)
            for kernels in passes(*one.moved(lines.shape), self.room):
                for kind in kernels.kinds:
                    cycles += price.cycles(chip, kind, kernels.lengths, round(points * filled))
        copied = (len(orders) if len(orders) > 1 else 0) * COPIES * round(points * filled)
        return Work(
            kernel_flops=round(points * sum(map(flops_of, lines.lengths))),
            kernel_cycles=cycles,
            memory_bytes=copied * itemsize,
            peak_bytes=plain.peak_bytes,
        )

    def apply(self, block: Planes, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Planes:
        return fft.fft(block, dims, sign, self.room)

    def trials(self, lines: Lines, ports: Ports = PLANES) -> tuple[Trial, ...]:
        return trials.of_lines(lines.shape, lines.dims, self.room, ports)

    def direct(self, block: Shape, dims: tuple[int, ...], ports: Ports) -> bool:
        return is_direct(chunk_of(block, ports.rows), dims, self.room, ports)

    def keeps_order(self, block: Shape) -> bool:
        return fft.kept_order(block) == tuple(range(len(block)))

    def between(self, given: Planes | Pieces, dims: tuple[int, ...], sign: int, ports: Ports = PLANES) -> Planes:
        return fft.fft_between(given, dims, sign, self.room, ports)

    def form_trials(self, form: Tiled) -> tuple[Trial, ...]:
        return (trials.WireTrial(form, shares=2),)

    def form_cycles(self, form: Tiled, reals: int, chip: Chip) -> int:
        bits, rows = form.coded.bits + 1, min(form.shape[-2], SUBLANES)
        return sum(price.wire_cycles(chip, way, bits, rows, reals) for way in ("encode", "decode"))


@register
@dataclasses.dataclass(frozen=True)
class VectorChirp(Engine[Planes]):
    """Lines without kernels, by two passes over at least twice the points."""

    room: int
    planar: ClassVar[bool] = True
    name = "vector chirp"

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        room = room_of(site)
        for dim in lines.dims if room else ():
            inner = _inner(lines.only((dim,)))
            if not fft.in_orders(lines.shape, (dim,), room) and fft.in_orders(inner.shape, inner.dims, room):
                yield cls(room), (dim,)

    def error(self, length: int, itemsize: int) -> Error:
        return Error(2 * fft_error(2 * padded_length(length), itemsize).noise)

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        """Products read and write the lines once, and their halves twice."""
        inner = _inner(lines)
        one = VectorFFT(self.room).work(inner, itemsize, chip)
        beside = (2 * lines.points + 4 * inner.points) * itemsize
        return dataclasses.replace(
            one,
            kernel_flops=2 * one.kernel_flops,
            kernel_cycles=2 * one.kernel_cycles,
            memory_bytes=2 * one.memory_bytes + beside,
            peak_bytes=one.peak_bytes + lines.points * itemsize,
        )

    def apply(self, block: Planes, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Planes:
        (dim,) = dims
        length, ndim = block[0].shape[dim], block[0].ndim
        size = padded_length(length)

        def planes(table: np.ndarray) -> Planes:
            return tuple(jnp.asarray(part.reshape(2, *line_shape(dim, ndim))) for part in (table.real, table.imag))

        into, spectrum, out = map(planes, fft_tables(length, sign, np.dtype("complex64")))
        halves = times(tuple(plane[None] for plane in block), into)
        halves = tuple(resize(plane, dim + 1, size) for plane in halves)
        halves = times(fft.fft(halves, (dim + 1,), -1, self.room), spectrum)
        halves = tuple(resize(plane, dim + 1, length) for plane in fft.fft(halves, (dim + 1,), 1, self.room))
        return tuple(plane.sum(0) / size for plane in times(halves, out))

    def trials(self, lines: Lines, ports: Ports = PLANES) -> tuple[Trial, ...]:
        return VectorFFT(self.room).trials(_inner(lines))


def _inner(lines: Lines) -> Lines:
    ((dim,), (length,)), block = (lines.dims, lines.lengths), lines.shape
    size = padded_length(length)
    return Lines((2, *block[:dim], size, *block[dim + 1 :]), (dim + 1,), (size,))


@register
@dataclasses.dataclass(frozen=True)
class VectorReal(RealEngine):
    room: int
    name = "vector"

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        last, room = len(lines.block) - 1, room_of(site)
        for dims in ((last - 1, last), (last,)) if room and lines.dims[-1] == last else ():
            if set(lines.dims) >= set(dims):
                kernel = real_kernel(lines.only(dims).shape, len(dims), -1, room, lines.onto_real)
                if kernel is not None:
                    yield cls(room), dims

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        if chip.scratch is None:
            return XLA_REAL.work(lines, itemsize, chip)
        kind = ("real" if lines.onto_real else "half") + ("plane" if len(lines.dims) == 2 else "lane")
        return Work(
            kernel_flops=round(lines.points * sum(map(flops_of, lines.lengths)) / 2),
            kernel_cycles=price.cycles(chip, kind, lines.lengths, lines.points),
            peak_bytes=6 * lines.points * itemsize,
        )

    def half(self, block: Block, dims: tuple[int, ...], sign: int) -> Block:
        planes = split(block)
        return like(block, fft.real_fft(planes, len(dims), planes[0].shape[-1], sign, self.room, onto_real=False))

    def real(self, block: Block, dims: tuple[int, ...], length: int, sign: int) -> Block:
        return like(block, fft.real_fft(split(block), len(dims), length, sign, self.room, onto_real=True))

    def trials(self, lines: Lines, ports: Ports = PLANES) -> tuple[Trial, ...]:
        return trials.of_reals(lines.shape, len(lines.dims), self.room)
