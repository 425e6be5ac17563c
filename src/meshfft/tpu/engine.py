"""Selection and execution of FFT kernels; host integers except in `fft` and `run`.

The choice needs the fewest passes over memory: the last two dimensions at once if fast memory holds a plane, then the
rest. A dimension without a kernel in its place is transposed to one that has a kernel (`in_orders`).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..numerics.split_complex import Planes
from .lines import long_columns, short
from .lines.blocks import Kernel, on_tpu, rounded
from .lines.radices import LANES, SUBLANES, radices

Tangent = Array | ad.Zero
ROOM = 100 * 2**20  # default bytes of fast memory
RESERVED = 2**19  # bytes of it left to the compiler
LONG, SECOND = ("twisted", "subtwisted"), ("second", "subsecond")  # the first of two kernels also runs the second


class KernelPass(NamedTuple):
    """One pass over memory: its kind as in lines/short.py, or one of the two of lines/long_columns.py."""

    kind: str
    lengths: tuple[int, ...]
    dims: tuple[int, ...]

    def kernel(
        self, shape: tuple[int, ...], sign: int, room: int, alone: bool = False, flat: bool = True
    ) -> Kernel | None:
        if self.kind == "plane":
            return short.plane_kernel(shape, sign, room, alone)
        if self.kind == "lane":
            return short.lane_kernel(shape, sign, room, flat)
        return short.column_kernel(shape, self.dims[0], sign, room)


class Taken(NamedTuple):
    """An order of an array's dimensions for kernels, and the dimensions transformed in that order."""

    order: tuple[int, ...]
    dims: tuple[int, ...]


def supports(shape: Sequence[int], dim: int, room: int = ROOM) -> bool:
    """Whether lines have kernels in fast memory: no prime above 7, multiples of 8 in the last two dimensions."""
    return shape[dim] == 1 or bool(_of_lines(tuple(shape), dim, room))


def passes(shape: Sequence[int], dims: Sequence[int], room: int = ROOM) -> tuple[KernelPass, ...]:
    left, last = sorted(d for d in dims if shape[d] > 1), len(shape) - 1
    done = []
    if left[-2:] == [last - 1, last] and short.plane_kernel(shape, -1, room) is not None:
        done.append(KernelPass("plane", (shape[-2], shape[-1]), (last - 1, last)))
        left = left[:-2]
    for dim in reversed(left):
        own = _of_lines(tuple(shape), dim, room)
        assert own, f"lines of {shape[dim]} along dimension {dim} have no kernel"
        done += own
    return tuple(done)


@functools.lru_cache(maxsize=1024)
def _of_lines(shape: tuple[int, ...], dim: int, room: int) -> tuple[KernelPass, ...]:
    length, behind = shape[dim], len(shape) - 1 - dim
    tiled = behind < 2
    kinds: tuple[str, ...] = ()
    if (tiled and length % SUBLANES) or not radices(length // SUBLANES if tiled else length):
        return ()
    if not behind:
        kinds = ("lane",) if short.lane_kernel(shape, -1, room) is not None else ()
    elif short.column_kernel(shape, dim, -1, room) is not None:
        kinds = ("sublane",) if tiled else ("first",)
    elif long_columns.kernels_of(shape, dim, -1, room) is not None:
        kinds = long_columns.kinds(tiled)
    return tuple(KernelPass(kind, (length,), (dim,)) for kind in kinds)


@functools.lru_cache(maxsize=1024)
def in_orders(shape: tuple[int, ...], dims: tuple[int, ...], room: int = ROOM) -> tuple[Taken, ...]:
    """Orders of an array that give every dimension a kernel, or (); several need a copy each, and one back."""
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


def copies(shape: tuple[int, ...], dims: tuple[int, ...], room: int) -> int:
    orders = in_orders(shape, dims, room)
    return len(orders) if len(orders) > 1 else 0


def waste(shape: Sequence[int], order: Sequence[int]) -> float:
    """Register elements per array element, for dimensions in that order."""
    rows, lanes = (shape[d] for d in order[-2:])
    return _padding(rows, SUBLANES) * _padding(lanes, LANES)


def _padding(size: int, tile: int) -> float:
    return rounded(size, tile) / max(size, 1)


def _taken(shape: tuple[int, ...], dims: Sequence[int], order: tuple[int, ...], room: int) -> Taken:
    there = tuple(shape[d] for d in order)
    return Taken(order, tuple(d for d in dims if supports(there, order.index(d), room)))


def _ends(ndim: int) -> list[tuple[int, int]]:
    return [(b, a) for a in reversed(range(ndim)) for b in reversed(range(ndim)) if a != b]


def _ending(ndim: int, ends: Sequence[int]) -> tuple[int, ...]:
    return (*(d for d in range(ndim) if d not in ends), *ends)


@functools.lru_cache(maxsize=1024)
def kept_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The order of dimensions that a TPU chooses for an array (libtpu 0.0.52).

    A register holds 8 positions of one dimension and 128 of another: the two with the least padding, by default the
    last
    two. (2048, 64, 64) is stored as (64, 64, 2048).
    """

    def padded(ends: Sequence[int]) -> float:
        rows, lanes = shape[ends[0]], shape[ends[1]]
        tile = SUBLANES if rows > SUBLANES // 2 else 1 << max(rows - 1, 0).bit_length()
        return _padding(rows, tile) * _padding(lanes, LANES)

    return _ending(len(shape), min(_ends(len(shape)), key=padded, default=()))


def fft(planes: Planes, dims: Sequence[int], sign: int, room: int = ROOM, interpret: bool = False) -> Planes:
    """Transforms dimensions of float32 planes by kernels on a TPU or with `interpret`, elsewhere by XLA.

    X[k] = sum_n x[n] exp(sign 2 pi i k n / N), unscaled. Costs one pass over memory for each of `passes`. Linear: the
    transpose, for which a kernel has no rule, is the transform with the other sign.
    """
    re, im = fft_p.bind(*planes, axes=tuple(dims), sign=sign, room=room, interpret=interpret)
    return re, im


def run(re: Array, im: Array, dims: Sequence[int], sign: int, room: int, interpret: bool = False) -> Planes:
    planes: Planes = (re, im)
    for one in passes(re.shape, dims, room):
        planes = run_one(one, planes, sign, room, interpret)
    return planes


def run_in_orders(re: Array, im: Array, dims: Sequence[int], sign: int, room: int, interpret: bool = False) -> Planes:
    for order, own in in_orders(re.shape, tuple(dims), room):
        back = sorted(range(re.ndim), key=order.__getitem__)
        places = [order.index(d) for d in own]
        re, im = run(re.transpose(order), im.transpose(order), places, sign, room, interpret)
        re, im = re.transpose(back), im.transpose(back)
    return re, im


def run_one(one: KernelPass, planes: Planes, sign: int, room: int, interpret: bool) -> Planes:
    shape = planes[0].shape
    if one.kind in SECOND:
        return planes
    if one.kind in LONG:
        return tuple(long_columns.fft_long_columns(planes, shape, one.dims[0], sign, room, interpret))
    kernel = one.kernel(shape, sign, room)
    assert kernel is not None, f"lines of {one.lengths} do not fit in {room} bytes"
    return tuple(x.reshape(shape) for x in kernel.run([x.reshape(kernel.source.shape) for x in planes], interpret))


def _by_xla(re: Array, im: Array, dims: Sequence[int], sign: int) -> Planes:
    block, axes = lax.complex(re, im), tuple(dims)
    block = jnp.fft.fftn(block, axes=axes) if sign < 0 else jnp.fft.ifftn(block, axes=axes, norm="forward")
    return block.real, block.imag


def _by_platform(re: Array, im: Array, *, axes: tuple[int, ...], sign: int, room: int, interpret: bool) -> Planes:
    by_xla = functools.partial(_by_xla, dims=axes, sign=sign)
    by_kernels = functools.partial(run_in_orders, dims=axes, sign=sign, room=room, interpret=interpret)
    by_kernels = by_kernels if in_orders(re.shape, axes, room) else by_xla  # a chunk may have none
    return on_tpu(by_kernels, by_xla, re, im, interpret=interpret)


def _transpose(cts: Sequence[Tangent], *planes: object, sign: int, **how: Any) -> list[Array]:
    made: list[Array] = fft_p.bind(*map(ad.instantiate_zeros, cts), sign=-sign, **how)
    return made


def _batch(planes: Sequence[Array], at: Sequence[int | None], *, axes: tuple[int, ...], **how: Any) -> Any:
    (size,) = {x.shape[d] for x, d in zip(planes, at, strict=True) if d is not None}
    first = [batching.bdim_at_front(x, d, size) for x, d in zip(planes, at, strict=True)]
    return fft_p.bind(*first, axes=tuple(d + 1 for d in axes), **how), [0, 0]


fft_p = Primitive("meshfft_vector_fft")  # because a kernel has no transpose rule
fft_p.multiple_results = True
fft_p.def_impl(jax.jit(_by_platform, static_argnames=("axes", "sign", "room", "interpret")))
fft_p.def_abstract_eval(lambda re, im, **_: [re, im])
ad.deflinear2(fft_p, _transpose)
batching.primitive_batchers[fft_p] = _batch
mlir.register_lowering(fft_p, mlir.lower_fun(_by_platform, multiple_results=True))
