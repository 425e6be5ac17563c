"""The kernel of a last dimension too long for blocks of 128 rows: N = 128 M, a few rows at a time, in one pass.

A register holds 128 consecutive n of eight lines, so M registers are a dimension that needs no transposition:

    n = 128 v + l,  l = L m + j,  L = 128 / q;     k = i + M (u + q w),  i < M,  u < q,  w < L

    over registers   Z[i, l] = w_N^(l i) sum_v exp(.. v i / M) x[n]             untiled passes
    over lanes       Y[i + M u, j] = w_128^(j u) sum_m exp(.. m u / q) Z[i, l]  rows of q lines and lanes are swapped
    transposed       X[k] = sum_j exp(.. j w / L) Y[i + M u, j]                 128 of i + M u are the lanes

q is the least with q M a multiple of 128. Registers are one row further apart than blocks have rows: strided accesses
hit no bank twice.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...machine.chip import rounded_up
from . import memory
from .along import MANY_REGISTERS, PITCH, FFTLine, last_pass, passes
from .blocks import Blocked, Kernel
from .memory import AnyRefs, Index, LineSpan, Ref, Refs, loop, start
from .radices import LANES, SUBLANES, Pair, Whole, dft, in_planes, radices, roots, times

AT_ONCE = 2  # tiles that are transposed and transformed together


@dataclasses.dataclass(frozen=True)
class LongLine:
    length: int
    sign: int
    block: int

    @property
    def registers(self) -> int:  # M
        return self.length // LANES

    @property
    def groups(self) -> int:
        """q: groups of lanes that are swapped with as many lines."""
        return LANES // math.gcd(self.registers, LANES)

    @property
    def lines(self) -> tuple[FFTLine, FFTLine]:
        return FFTLine(self.registers, self.sign, untiled=True), FFTLine(LANES // self.groups, self.sign)

    @property
    def apart(self) -> int:
        return self.block + 1

    @property
    def rows(self) -> int:
        return rounded_up(max(self.registers * self.apart, AT_ONCE * 2 * LANES), SUBLANES)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """w_N^(l i): (2, M, 128), and w_128^(j u) in each of q groups of lanes: (2, q, 128)."""
        first = roots(self.registers, LANES, self.length, self.sign)
        second = roots(self.groups, LANES // self.groups, LANES, self.sign)
        return in_planes(first), in_planes(np.tile(second, self.groups))


def kernel_of(name: str, shape: Sequence[int], sign: int, room: int) -> Kernel | None:
    """A kernel of 16 or 32 rows, if they fit in fast memory."""
    length = shape[-1]
    block = 4 * SUBLANES if room >= MANY_REGISTERS else 2 * SUBLANES
    line = LongLine(length, sign, block)
    if length % (LANES * SUBLANES) or not radices(line.registers):
        return None
    blocks = Blocked(tuple(shape), (*[None] * (len(shape) - 2), block, length))
    kernel = Kernel(name, transform, line.lines, blocks, blocks, ((line.rows, LANES),) * 3, fixed=line.tables())
    return kernel if kernel.bytes <= room else None


def transform(kernel: Kernel, tables: AnyRefs, source: Refs, memories: list[Refs], target: Refs) -> None:
    line = LongLine(target[0].shape[-1], kernel.lines[0].sign, target[0].shape[-2])
    near, far, tiles = memories
    _over_registers(line, tables[0], tables[4], source, far, near)
    _over_lanes(line, tables[5], near, far)
    _over_rows(line, tables[2:4], far, tiles, near)
    _copy_out(line, near, target)


def _over_registers(line: LongLine, table: Ref, weights: Ref, source: Refs, between: Refs, target: Refs) -> None:
    over = line.lines[0]
    last = len(over.radices) - 1

    def at(p: int, i: Index, eight: int) -> tuple[Refs, LineSpan, Index]:
        if p == 0:
            return source, pl.ds(SUBLANES * eight, SUBLANES), i
        refs, rows = (target, between)[(last + 1 - p) % 2], i * (line.block if p <= last else line.apart)
        return refs, pl.ds(rows + SUBLANES * eight, SUBLANES), 0

    def load(p: int, i: Index, eight: int) -> Pair:
        return memory.load(*at(p, i, eight))

    def store(p: int, i: Index, eight: int, value: Pair) -> None:
        memory.store(*at(p + 1, i, eight), times(value, _row(weights, i)) if p == last else value)

    passes(over, table, load, store, range(line.block // SUBLANES))


def _over_lanes(line: LongLine, table: Ref, source: Refs, target: Refs) -> None:
    """The radix q across groups of lanes, eight registers and q lines at a time; result rows are i + M u."""
    groups, many = line.groups, line.registers

    def eight(g: Index) -> None:
        for begin in range(0, line.block, groups):
            firsts = (g * SUBLANES * line.apart + r for r in range(begin, begin + groups))
            x = [memory.load(source, pl.ds(first, SUBLANES, stride=line.apart), 0) for first in firsts]
            for u, y in enumerate(dft(_swapped(x, LANES // groups), line.sign)):
                y = times(y, _row(table, u)) if u else y
                first = pl.multiple_of(begin * many + u * many + g * SUBLANES, SUBLANES)
                memory.store(target, pl.ds(first, SUBLANES), 0, y)

    loop(many // SUBLANES, lambda g: eight(jnp.int32(g)))


def _over_rows(line: LongLine, tables: AnyRefs, source: Refs, tiles: Refs, target: Refs) -> None:
    """Transposes tiles and transforms their rows, q lines of L a tile; result w is row r of register w T + t."""
    over, per_set = line.lines[1], line.registers * line.groups // LANES  # T tiles have the same q lines
    every = line.block * line.registers // LANES
    many = math.gcd(every, AT_ONCE)
    apart, pitched = max(over.registers, SUBLANES) * PITCH, many * LANES

    def some(first: Index) -> None:
        for j in range(many):
            for ref, tile in zip(source, tiles, strict=True):
                rows = pl.ds(pl.multiple_of((first * many + j) * LANES, LANES), LANES)
                tile[j * LANES : (j + 1) * LANES, :] = ref[rows, :].T
        for r in range(line.groups):
            line_of(first, r)

    def line_of(first: Index, r: int) -> None:
        def load(p: int, i: Index, j: int) -> Pair:
            rows = pl.ds(pl.multiple_of(j * LANES + r * over.length + i * SUBLANES, SUBLANES), SUBLANES)
            return memory.load(tiles, rows, 0)

        def store(p: int, i: Index, j: int, value: Pair) -> None:
            memory.store(tiles, pl.ds(pitched + j * apart + i * PITCH, SUBLANES), 0, value)

        def read(rows: Index, j: int) -> Pair:
            return memory.load(tiles, pl.ds(rows + pitched + j * apart, SUBLANES, stride=PITCH), 0)

        def put(q: int, k: Index, j: int, value: Whole) -> None:
            index = first * many + j
            own, tile = lax.div(index, np.int32(per_set)), lax.rem(index, np.int32(per_set))
            begin = (over.row_of(q, k) * per_set + tile) * line.apart + own * line.groups + r
            memory.store(target, pl.ds(begin, value[0].shape[0], stride=per_set * line.apart), 0, value)

        passes(over, tables[0], load, store, range(many))
        last_pass(over, tables[1], read, put, range(many))

    loop(every // many, lambda first: some(jnp.int32(first)))


def _copy_out(line: LongLine, source: Refs, target: Refs) -> None:
    def eight(g: Index) -> None:
        for at in range(SUBLANES):
            for row in range(0, line.block, SUBLANES):
                for ref, out in zip(source, target, strict=True):
                    rows = pl.ds((g * SUBLANES + at) * line.apart + row, SUBLANES)
                    out[pl.ds(row, SUBLANES), start(g * SUBLANES + at, LANES)] = ref[rows, :]

    loop(line.registers // SUBLANES, eight)


def _swapped(x: Sequence[Pair], width: int) -> list[Pair]:
    """Swaps groups of lanes: y[m] in group r is x[r] in group m, bit after bit of m and r."""
    planes = [list(part) for part in zip(*x, strict=True)]
    lanes = lax.broadcasted_iota(jnp.int32, (SUBLANES, LANES), 1)
    for plane in planes:
        bit = 1
        while bit < len(plane):
            high = (lanes & (bit * width)) != 0
            for m in (m for m in range(len(plane)) if not m & bit):
                one, other = plane[m], plane[m | bit]
                plane[m] = jnp.where(high, pltpu.roll(other, bit * width, 1), one)
                plane[m | bit] = jnp.where(high, other, pltpu.roll(one, LANES - bit * width, 1))
            bit *= 2
    return list(zip(*planes, strict=True))


def _row(table: Ref, k: Index) -> Whole:
    return table[0, pl.ds(k, 1), :], table[1, pl.ds(k, 1), :]
