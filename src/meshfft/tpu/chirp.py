"""Lengths that kernels do not have: a convolution with a chirp, by FFTs of a length that they do have.

The even and the odd bins of the convolution are two transforms of L points each (kernels/bluestein.py), side by side in
a new leading dimension. Elementwise products around the kernels are XLA's.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from ..collectives.all_to_all import Grid
from ..collectives.dimensions import resize
from ..collectives.pieces import Came
from ..kept_verdicts import Trial
from ..kernels.bluestein import fft_tables, padded_length
from ..kernels.engine import Engine, Lines, Offer, Site, fft_error
from ..kernels.engines import register
from ..layout.layout import line_shape
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.dtypes import Error
from ..numerics.split_complex import Planes, times
from . import engine
from .fft import VectorFFT, room_of


@register
@dataclasses.dataclass(frozen=True)
class VectorChirp(Engine[Planes]):
    """One dimension, by two passes of kernels over twice its points or a little more."""

    room: int
    planar: ClassVar[bool] = True

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        room = room_of(site)
        for dim in lines.dims if room else ():
            shape, inner = lines.shape, _inner(lines.only((dim,)))
            if not engine.in_orders(shape, (dim,), room) and engine.in_orders(inner.shape, inner.dims, room):
                yield cls(room), (dim,)

    @property
    def name(self) -> str:
        return "vector chirp"

    def error(self, length: int, itemsize: int) -> Error:
        """Two transforms, of the even and odd bins of a convolution."""
        return Error(2 * fft_error(2 * padded_length(length), itemsize).noise)

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        """The kernels there and back; the products read and write the lines once, and their halves twice."""
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
            shape = (2, *line_shape(dim, ndim)[:dim], table.shape[1], *line_shape(dim, ndim)[dim + 1 :])
            return tuple(jnp.asarray(part.reshape(shape)) for part in (table.real, table.imag))

        into, spectrum, out = map(planes, fft_tables(length, sign, np.dtype("complex64")))
        halves = times(tuple(plane[None] for plane in block), into)
        halves = tuple(resize(plane, dim + 1, size) for plane in halves)
        halves = times(engine.fft(halves, (dim + 1,), -1, self.room), spectrum)
        halves = tuple(resize(plane, dim + 1, length) for plane in engine.fft(halves, (dim + 1,), 1, self.room))
        return tuple(plane.sum(0) / size for plane in times(halves, out))

    def trials(self, lines: Lines, came: Came | None) -> tuple[Trial, ...]:
        return VectorFFT(self.room).trials(_inner(lines), None)


def _inner(lines: Lines) -> Lines:
    """The lines of both halves that kernels transform, for one dimension."""
    ((dim,), (length,)), block = (lines.dims, lines.lengths), lines.shape
    size = padded_length(length)
    return Lines((2, *block[:dim], size, *block[dim + 1 :]), (dim + 1,), (size,))
