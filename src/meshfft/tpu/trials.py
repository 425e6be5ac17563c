"""Trials of kernels (kept.py), each on a small block.

Lines keep their length, and blocks of the kernel's grid their width. The reference is NumPy in float64; for words and
points it is XLA.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..collectives.all_to_all import PLANES, Pieces, Ports, Rows
from ..collectives.wires import Tiled
from ..kernels.base import fft_error
from ..nufft.grid import gridding as points
from ..nufft.grid.form import Form, Slots
from ..numerics.dtypes import Error
from ..numerics.split_complex import Shape
from . import gridding
from .fft import in_orders, real_fft
from .lines.radices import LANES, SUBLANES
from .passes import KernelPass, chunk_of, is_direct, one_piece, passes, passes_between, run, supports
from .strips import task_of
from .wires import decode, encode

SIGNS = (-1, 1)  # inverses and gradients take the other sign
WIDE = 4 * LANES  # most columns of a block
PLANES_AT_ONCE = 4  # most small planes that a kernel takes at once
MANY = 2**22  # numbers of a block that is wider than LANES
COMPLEX = 8
TRIED = 16  # most chunks of points


@dataclasses.dataclass(frozen=True)
class LineTrial:
    one: KernelPass
    shape: Shape
    room: int
    ports: Ports = PLANES

    @property
    def name(self) -> str:
        came = " from pieces" * (self.ports.came is not None)
        sent = " to parts" * (self.ports.sent is not None)
        return f"fft_{self.one.kind}_{_by(self.one.lengths)}{came}{sent} of {_by(self.shape)} in {self.room} bytes"

    @property
    def bound(self) -> float:
        return _noise(self.shape[d] for d in self.one.dims)

    def given(self) -> list[np.ndarray]:
        rows, came, sizes = self.ports.rows, self.ports.came, list(self.shape)
        if rows is not None:
            sizes[rows.dim] = rows.start + rows.size
        if came is None:
            return _random([tuple(sizes)] * 2)
        sizes[came.source] //= came.parts
        sizes[came.dim] //= came.pieces
        return _random([(came.parts, 2, *sizes)] * came.pieces)

    def found(self, *arrays: Array, interpret: bool) -> list[Array]:
        given = arrays, self.shape, self.one.dims
        return [x for sign in SIGNS for x in run(*given, sign, self.room, self.ports, interpret)]

    def exact(self, *arrays: Array) -> list[np.ndarray]:
        rows, came, done = self.ports.rows, self.ports.came, list[np.ndarray]()
        joined = jax.jit(lambda *own: Pieces(own, came.source, came.dim).joined())(*arrays) if came else arrays
        re, im = map(_in_float64, joined)
        if rows is not None:
            re, im = (x.take(range(rows.start, rows.start + rows.size), rows.dim) for x in (re, im))
        for sign in SIGNS:
            y = _transformed(re + 1j * im, self.one.dims, sign)
            done += [y.real, y.imag] if self.ports.sent is None else [_in_parts(y, *self.ports.sent)]
        return done


@dataclasses.dataclass(frozen=True)
class RealTrial:
    shape: Shape
    many: int
    room: int

    @property
    def name(self) -> str:
        kind, lengths = ("plane" if self.many == 2 else "lane"), _by(self.shape[-self.many :])
        return f"fft_half{kind}_{lengths} and fft_real{kind}_{lengths} of {_by(self.shape)} in {self.room} bytes"

    @property
    def bound(self) -> float:
        return _noise(self.shape[-self.many :])

    def given(self) -> list[np.ndarray]:
        return _random([self.shape, *[(*self.shape[:-1], self.shape[-1] // 2 + 1)] * 2])

    def found(self, *arrays: Array, interpret: bool) -> list[Array]:
        done = list[Array]()
        for sign in SIGNS:
            for planes, onto_real in ((arrays[:1], False), (arrays[1:], True)):
                done += real_fft(planes, self.many, self.shape[-1], sign, self.room, onto_real, interpret)
        return done

    def exact(self, *arrays: Array) -> list[np.ndarray]:
        x, re, im = map(_in_float64, arrays)
        axes, bins, done = tuple(range(x.ndim - self.many, x.ndim)), re.shape[-1], list[np.ndarray]()
        padded = np.concatenate([re + 1j * im, np.zeros((*x.shape[:-1], x.shape[-1] - bins))], -1)
        for sign in SIGNS:
            y = _transformed(x, axes, sign)[..., :bins]
            done += [y.real, y.imag, _transformed(padded, axes, sign).real]
        return done


@dataclasses.dataclass(frozen=True)
class WireTrial:
    form: Tiled
    shares: int
    bound = 0.0

    @property
    def name(self) -> str:
        form = self.form
        return f"wire_encode and wire_decode of {self.shares} x {form.shape} in {form.coded.name}"

    def given(self) -> list[np.ndarray]:
        return _random([(self.shares, *self.form.shape)] * self.form.form.planes)

    def found(self, *arrays: Array, interpret: bool) -> list[Array]:
        message = encode(self.form, 1, *arrays, interpret=interpret)
        return [message, *decode(self.form, 1, message, interpret)]

    def exact(self, *arrays: Array) -> list[Array]:
        message = jax.jit(lambda *planes: self.form.encode(planes, 1))(*arrays)
        return [message, *jax.jit(lambda words: self.form.decode(words, jnp.float32, 1))(message)]


@dataclasses.dataclass(frozen=True)
class PointTrial:
    """Both kernels in a block (C, B_1, .., B_d)."""

    form: Form
    shape: Shape
    bound = 1e-6  # the kernels and XLA err by up to 3e-7

    @property
    def name(self) -> str:
        tile = _by(self.form.tile)
        return f"points_interpolate and points_spread of {self.form.reach} cells in tiles of {tile}, of {self.shape}"

    def given(self) -> list[np.ndarray]:
        rng, (coils, *block), tile = np.random.default_rng(0), self.shape, np.array(self.form.tile)
        last = np.array(block) - (self.form.reach - 1) - tile  # last start of a tile
        start = np.unique(np.minimum(rng.integers(0, last + 1, (TRIED, len(tile))) // tile * tile, last), axis=0)
        slots = (len(start) * LANES, len(tile))
        cell = np.repeat(start, LANES, 0) + rng.integers(0, tile, slots)
        cell[(rng.uniform(size=len(cell)) < 0.1) | (np.arange(len(cell)) >= len(cell) - LANES)] = -1
        offset = rng.uniform(-0.5, 0.5, slots).astype(np.float32)
        pairs = (rng.standard_normal((2, *n)) for n in (self.shape, (coils, slots[0])))
        ends = [(re + 1j * im).astype(np.complex64) for re, im in pairs]
        return [*ends, cell.astype(np.int32), offset, start.astype(np.int32), np.array(len(start) - 1, np.int32)]

    def found(self, *arrays: Array, interpret: bool) -> list[Array]:
        block, values, *given = arrays
        there = gridding.interpolated(block, Slots(*given), self.form, interpret)
        return _reals(there, gridding.spread_out(values, Slots(*given), self.form, self.shape[1:], interpret))

    def exact(self, *arrays: Array) -> list[Array]:
        def both(block: Array, values: Array, *given: Array) -> list[Array]:
            there = points.interpolate(block, Slots(*given), self.form)
            return _reals(there, points.spread(values, Slots(*given), self.form, self.shape[1:]))

        return jax.jit(both)(*arrays)


Trials = tuple[LineTrial | RealTrial, ...]


def of_lines(block: Shape, dims: tuple[int, ...], room: int, ports: Ports = PLANES) -> Trials:
    ports = one_piece(block, ports)
    shape = chunk_of(block, ports.rows)
    if ports != PLANES and is_direct(shape, dims, room, ports):
        return tuple(_small(one, shape, room, own) for one, own in passes_between(shape, dims, room, ports))
    done = list[LineTrial]()
    for taken in in_orders(shape, dims, room):
        there, places = taken.moved(shape)
        done += [_small(one, there, room, PLANES) for one in passes(there, places, room)]
    return tuple(done)


def of_reals(shape: Sequence[int], many: int, room: int) -> Trials:
    lead = tuple(min(n, 2) for n in shape[:-2]) if many == 2 else (_least(math.prod(shape[:-1]), WIDE),)
    return (RealTrial((*lead, *shape[-many:]), many, room),)


def of_points(coils: int, block: Shape, form: Form) -> tuple[PointTrial, ...]:
    least = (2 * tile + form.reach - 1 for tile in form.tile[:-1])
    return (PointTrial(form, (task_of(coils, block, form).coils, *map(min, block[:-1], least), block[-1])),)


def _small(one: KernelPass, shape: Shape, room: int, ports: Ports) -> LineTrial:
    """Other dimensions are as short as possible with the same kernel."""
    came, sent = ports.came, ports.sent
    fixed = {*one.dims, *(() if came is None else (came.source, came.dim))}
    for dim in (d for d in range(len(shape)) if d not in fixed):
        for size in _sizes(one, shape, dim, sent[1] if sent and sent[0] == dim else 1):
            other, own = (*shape[:dim], size, *shape[dim + 1 :]), ports
            if ports.rows is not None and ports.rows.dim == dim:
                own = ports._replace(rows=Rows(dim, size * (ports.rows.start > 0), size))
            if _is_same(one, other, room, own):
                shape, ports = other, own
                break
    return LineTrial(one, shape, room, ports)


def _sizes(one: KernelPass, shape: Shape, dim: int, multiple: int) -> Iterator[int]:
    behind, size = len(shape) - 1 - dim, shape[dim]
    wide = WIDE if math.prod(shape[d] for d in one.dims) * SUBLANES * WIDE <= MANY else LANES
    across = behind == 0 or (behind == 1 and one.kind == "lane")
    least = _least(size, wide if across else SUBLANES if behind == 1 else PLANES_AT_ONCE)
    least = -(-least // multiple) * multiple
    while least < size:
        yield least
        least *= 2


def _least(size: int, unit: int) -> int:
    """The smallest size with every kind of block: whole, and the rest."""
    return size if size < 2 * unit else unit + size % unit


def _is_same(one: KernelPass, shape: Shape, room: int, ports: Ports) -> bool:
    if ports != PLANES and not is_direct(shape, one.dims, room, ports):
        return False
    if not all(supports(shape, dim, room) for dim in one.dims):
        return False
    return [own for own, _ in passes_between(shape, one.dims, room, ports)] == [one]


def _noise(lengths: Iterable[int]) -> float:
    return Error.of_all(fft_error(n, COMPLEX) for n in lengths).noise


def _random(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def _in_float64(x: Array) -> np.ndarray:
    return np.asarray(jax.device_get(x), float)


def _transformed(x: np.ndarray, axes: tuple[int, ...], sign: int) -> np.ndarray:
    return np.fft.fftn(x, axes=axes) if sign < 0 else np.fft.ifftn(x, axes=axes, norm="forward")


def _in_parts(y: np.ndarray, dim: int, many: int) -> np.ndarray:
    shape = (2, *y.shape[:dim], many, y.shape[dim] // many, *y.shape[dim + 1 :])
    return np.moveaxis(np.stack([y.real, y.imag]).reshape(shape), dim + 1, 0)


def _by(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


def _reals(*arrays: Array) -> list[Array]:
    return [part for x in arrays for part in (x.real, x.imag)]


points.KERNELS["strips"] = points.Gridding(gridding.interpolate, gridding.spread, of_points)
