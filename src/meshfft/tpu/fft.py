"""FFTs by kernels, as linear functions of JAX: on a TPU, or where Pallas interprets them; elsewhere by XLA.

A dimension without a kernel in place is transposed to one that has a kernel (`in_orders`).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..collectives.all_to_all import PLANES, Pieces, Ports, in_parts
from ..kernels.real import XLA_REAL
from ..machine.chip import rounded_up
from ..numerics.split_complex import Planes, Shape, join, split
from .lines.blocks import linear_on_tpu
from .lines.radices import LANES, SUBLANES
from .lines.short import real_kernel
from .passes import ROOM, chunk_of, is_direct, one_piece, run, supports


class Taken(NamedTuple):
    order: tuple[int, ...]
    dims: tuple[int, ...]

    def moved(self, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(shape[d] for d in self.order), tuple(map(self.order.index, self.dims))


@functools.lru_cache(maxsize=1024)
def in_orders(shape: Shape, dims: tuple[int, ...], room: int = ROOM) -> tuple[Taken, ...]:
    """Orders that give every dimension a kernel, or (); all but the first need a copy, and the last one a copy back."""
    supported = [d for d in dims if supports(shape, d, room)]
    home = _taken(shape, dims, kept_order(shape), room)
    if shape[home.order[-1]] < LANES or not set(supported) <= set(home.dims):
        home = Taken(tuple(range(len(shape))), tuple(supported))
    done = [home]
    while left := tuple(d for d in dims if not any(d in one.dims for one in done)):
        others = (_taken(shape, left, _ending(len(shape), ends), room) for ends in _ends(len(shape)))
        best = max(others, key=lambda one: (len(one.dims), -waste(shape, one.order)), default=None)
        if best is None or not best.dims:
            return ()
        done.append(best)
    return tuple(done)


def waste(shape: Sequence[int], order: Sequence[int]) -> float:
    rows, lanes = (shape[d] for d in order[-2:])
    return _padding(rows, SUBLANES) * _padding(lanes, LANES)


def _padding(size: int, tile: int) -> float:
    return rounded_up(size, tile) / max(size, 1)


def _taken(shape: Shape, dims: Sequence[int], order: tuple[int, ...], room: int) -> Taken:
    there = tuple(shape[d] for d in order)
    return Taken(order, tuple(d for d in dims if supports(there, order.index(d), room)))


def _ends(ndim: int) -> list[tuple[int, int]]:
    return [(b, a) for a in reversed(range(ndim)) for b in reversed(range(ndim)) if a != b]


def _ending(ndim: int, ends: Sequence[int]) -> tuple[int, ...]:
    return (*(d for d in range(ndim) if d not in ends), *ends)


@functools.lru_cache(maxsize=1024)
def kept_order(shape: Shape) -> tuple[int, ...]:
    """The order that a TPU chooses for an array (libtpu 0.0.52).

    A register holds 8 positions of one dimension and 128 of another: the two with the least padding, by default the
    last two. (2048, 64, 64) is stored as (64, 64, 2048).
    """

    def padded(ends: Sequence[int]) -> float:
        rows, lanes = shape[ends[0]], shape[ends[1]]
        tile = SUBLANES if rows > SUBLANES // 2 else 1 << max(rows - 1, 0).bit_length()
        return _padding(rows, tile) * _padding(lanes, LANES)

    return _ending(len(shape), min(_ends(len(shape)), key=padded, default=()))


def run_in_orders(planes: Planes, dims: Sequence[int], sign: int, room: int, interpret: bool = False) -> Planes:
    shape = planes[0].shape
    for one in in_orders(shape, tuple(dims), room):
        back = sorted(range(len(shape)), key=one.order.__getitem__)
        moved = run([x.transpose(one.order) for x in planes], *one.moved(shape), sign, room, interpret=interpret)
        planes = tuple(x.transpose(back) for x in moved)
    return planes


def fft(planes: Planes, dims: Sequence[int], sign: int, room: int = ROOM, interpret: bool = False) -> Planes:
    """Transforms dimensions of float32 planes.

    X[k] = sum_n x[n] exp(sign 2 pi i k n / N), unscaled, in one pass over memory for each of `passes`. JAX's transpose,
    on real planes, is the adjoint: it has the other sign.
    """

    def by_kernels(planes: Planes) -> Planes:
        return run_in_orders(planes, dims, sign, room, interpret)

    def by_xla(planes: Planes) -> Planes:
        block, axes = join(planes), tuple(dims)
        return split(jnp.fft.fftn(block, axes=axes) if sign < 0 else jnp.fft.ifftn(block, axes=axes, norm="forward"))

    def transpose(cts: Planes) -> Planes:
        return fft(cts, dims, -sign, room, interpret=interpret)

    kernels = by_kernels if in_orders(planes[0].shape, tuple(dims), room) else by_xla  # a chunk may have none
    return linear_on_tpu(kernels, by_xla, transpose, planes, interpret)


def fft_between(
    given: Planes | Pieces, dims: Sequence[int], sign: int, room: int, ports: Ports = PLANES, interpret: bool = False
) -> Planes:
    """Transforms a block, or some rows, to planes, or to one array (parts, planes, *sizes)."""
    pieces = given if isinstance(given, Pieces) else None
    arrays, block = (given.arrays, given.shape) if isinstance(given, Pieces) else (given, given[0].shape)
    ports = ports._replace(came=pieces.came if pieces else None)
    if pieces and ports.rows and (whole := one_piece(block, ports)) != ports:
        arrays, ports = arrays[ports.rows.start // ports.rows.size :][:1], whole
        pieces = Pieces(arrays, pieces.source, pieces.source)
    rows, sent = ports.rows, ports.sent

    def plain(arrays: Planes) -> Planes:
        planes = dataclasses.replace(pieces, arrays=arrays).joined() if pieces else arrays
        if rows:
            planes = tuple(lax.slice_in_dim(x, rows.start, rows.start + rows.size, axis=rows.dim) for x in planes)
        done = fft(planes, dims, sign, room, interpret=interpret)
        return (in_parts(done, *sent),) if sent else done

    shape = chunk_of(block, rows)
    if not is_direct(shape, dims, room, ports):
        return plain(arrays)
    likes = [jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type) for x in arrays]

    def kernels(arrays: Planes) -> Planes:
        return run(arrays, shape, dims, sign, room, ports, interpret)

    def transpose(cts: Planes) -> Planes:
        (pulled,) = jax.linear_transpose(plain, tuple(likes))(cts)
        return pulled

    return linear_on_tpu(kernels, plain, transpose, tuple(arrays), interpret)


def real_fft(
    planes: Planes, many: int, length: int, sign: int, room: int, onto_real: bool, interpret: bool = False
) -> Planes:
    """Transforms the last dimensions between real lines, one plane, and half spectra, two.

    JAX's transpose, on real planes, is the opposite transform with the other sign.
    """
    shape, last = (*planes[0].shape[:-1], length), length if onto_real else length // 2 + 1
    dims = tuple(range(len(shape) - many, len(shape)))

    def by_kernel(planes: Planes) -> Planes:
        kernel = real_kernel(shape, many, sign, room, onto_real)
        assert kernel is not None, f"real lines of {shape[-many:]} have no kernel in {room} bytes"
        flat = [x.reshape(*kernel.source.shape[:-1], x.shape[-1]) for x in planes]
        return tuple(x.reshape(*shape[:-1], last) for x in kernel.run(flat, interpret))

    def by_xla(planes: Planes) -> Planes:
        return split(XLA_REAL.real(planes, dims, length, sign) if onto_real else XLA_REAL.half(planes, dims, sign))

    def transpose(cts: Planes) -> Planes:
        return real_fft(cts, many, length, -sign, room, not onto_real, interpret=interpret)

    return linear_on_tpu(by_kernel, by_xla, transpose, planes, interpret)
