"""FFTs of lines in a TPU's fast memory, over whole registers; all kernels use this routine.

A register holds 8 rows (sublanes) of 128 columns (lanes). For lines along the rows, N = 8 M and row n = 8 v + s is
sublane s of register v. Stockham passes transform the M registers, and the last pass the sublanes: it loads row s of
eight registers with a stride into one register, without shuffles:

    passes    y[b r + c] = w^(b c) sum_a exp(.. a c / r) x[a left + b]       for each radix r, in registers
    last      X[k + M q] = sum_s exp(.. s q / 8) w_N^(s k) y_s[k]            eight k in a register

Untiled lines have two dimensions behind theirs, separate registers for each position, and no last pass. For it,
registers are 9 rows apart: at a distance of eight, a load would hit one memory bank several times.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from . import memory
from .memory import AnyRefs, Arrived, Index, Ref, Refs, loop, register, start
from .radices import LANES, SUBLANES, Pair, Weight, Whole, dft, last_twiddles, radices, times, twiddles

PITCH = 9  # rows between registers for the last pass
MANY_REGISTERS = 2**25  # bytes of fast memory of TPUs with 64 registers
PassOperand = Refs | Arrived
Take = Callable[[int, Index, Index], Pair]  # the operand of pass p: register i, tile t
Store = Callable[[int, Index, Index, Pair], None]
ReadPair = Callable[[Index, Index], Pair]  # row and tile
Put = Callable[[int, Index, Index, Whole], None]
Tiles = Sequence[Index]
Weights = list[tuple[Weight, Weight]]
Weigh = Callable[[Index], tuple[Weight, Weight]]


@dataclasses.dataclass(frozen=True)
class FFTLine:
    """A length along the rows of registers; with `many_registers`, 64 and not 32, a core holds two more tiles."""

    length: int
    sign: int
    untiled: bool = False
    many_registers: bool = False

    @property
    def at_once(self) -> int:
        """Tiles in one loop body, for the compiler to interleave."""
        return 4 if self.many_registers else 2

    @property
    def registers(self) -> int:  # M
        return self.length if self.untiled else self.length // SUBLANES

    @property
    def bins(self) -> int:
        return self.registers

    @property
    def radices(self) -> tuple[int, ...]:
        return radices(self.registers)

    @property
    def rows(self) -> int:
        return max(max(self.registers, SUBLANES) * PITCH, -(-self.length // LANES) * LANES)

    @property
    def kept(self) -> int:
        return self.radices[0]

    def each_transformed(self, done: int, body: Callable[[Index], None]) -> None:
        """Calls body for each register that a later pass transforms."""
        loop(done, body)

    @property
    def table_bytes(self) -> int:
        return 0 if self.untiled else 8 * SUBLANES * max(self.registers, SUBLANES) * LANES

    def row_of(self, q: int, k: Index) -> Index:
        row, aligned = self.registers * q + k, self.registers % SUBLANES == 0 == self.bins % SUBLANES
        return pl.multiple_of(row, SUBLANES) if aligned else row

    def tables(self) -> list[np.ndarray]:
        none = np.zeros((1, 1, SUBLANES, LANES), np.float32)
        last = none if self.untiled else last_twiddles(self.registers, self.sign)
        return [twiddles(self.radices, self.sign)[1], last]


def along_untiled(
    line: FFTLine, table: Ref, source: PassOperand, scratch: Refs, target: Refs, weigh: Weigh | None = None
) -> None:
    """FFTs of the first dimension of (N, 8, columns), with result k times weigh(k)."""
    buffers, last = buffers_of(len(line.radices), source, scratch, target), len(line.radices) - 1

    def load(p: int, i: Index, tile: Index) -> Pair:
        if p == 0 and isinstance(source, Arrived):
            return source.load(i, slice(None), start(tile, LANES))
        re, im = (ref[i, :, start(tile, LANES)] for ref in buffers[p])
        return re, im

    def store(p: int, i: Index, tile: Index, value: Pair) -> None:
        value = times(value, weigh(i)) if weigh is not None and p == last else value
        for ref, part in zip(buffers[p + 1], value, strict=True):
            ref[i, :, start(tile, LANES)] = part

    passes(line, table, load, store, range(scratch[0].shape[2] // LANES), source)


def along_rows(line: FFTLine, tables: AnyRefs, source: PassOperand, scratch: Refs, target: Refs, tiles: int) -> None:
    """FFTs of the rows of (N, columns); `source` may be `scratch` or `target`: see `order`."""
    last = len(line.radices) - 1
    buffers = buffers_of(last + 1, source, target, scratch)

    def load(p: int, i: Index, tile: Index) -> Pair:
        if p == 0 and isinstance(source, Arrived):
            return source.load((*i[:2], start(i[2], SUBLANES)), start(tile, LANES))
        return memory.load(buffers[p], start(i, SUBLANES), tile)

    def store(p: int, i: Index, tile: Index, value: Pair) -> None:
        memory.store(buffers[p + 1], pl.ds(i * PITCH, SUBLANES) if p == last else start(i, SUBLANES), tile, value)

    def read(rows: Index, tile: Index) -> Pair:
        return memory.load(scratch, pl.ds(rows, SUBLANES, stride=PITCH), tile)

    def put(q: int, k: Index, tile: Index, value: Whole) -> None:
        memory.store(target, pl.ds(line.row_of(q, k), value[0].shape[0]), tile, value)

    def run(tiles: Tiles) -> None:
        passes(line, tables[0], load, store, tiles, source)
        last_pass(line, tables[1], read, put, tiles)

    by_tiles(line, tiles, run)


def by_tiles(line: FFTLine, tiles: int, run: Callable[[Sequence[Index]], None]) -> None:
    at_once = line.at_once
    full, rest = divmod(tiles, at_once)
    loop(full, lambda g: run([g * at_once + tile for tile in range(at_once)]))
    if rest:
        run([full * at_once + tile for tile in range(rest)])


def order(line: FFTLine, memories: Sequence[Refs]) -> tuple[Refs, Refs]:
    """Scratch and target of `along_rows` among two memories, if the source is the second."""
    first, second = memories
    return (first, second) if len(line.radices) % 2 else (second, first)


def buffers_of(passes: int, source: PassOperand, between: Refs, last: Refs) -> list[Ref]:
    """Operands of each pass, then the last result, alternating between two memories."""
    return [source, *((last, between)[(passes - p) % 2] for p in range(1, passes + 1))]


def passes(
    line: FFTLine, table: Ref, load: Take, store: Store, tiles: Tiles, source: PassOperand | None = None, begin: int = 0
) -> None:
    """All radices over registers from `begin` on, without the last pass."""
    for p in range(begin, len(line.radices)):
        _one_pass(line, p, table, load, store, tiles, source)


def _one_pass(
    line: FFTLine, p: int, table: Ref, load: Take, store: Store, tiles: Tiles, source: PassOperand | None
) -> None:
    """One radix: twiddled butterflies, for each of `done` registers."""
    radix, done = line.radices[p], math.prod(line.radices[:p])
    left, kept = line.registers // (done * radix), line.kept if p == 0 else radix

    def butterfly(b: Index, d: Index, weights: Weights, where: Callable[[int], Index]) -> None:
        for tile in tiles:
            x = [load(p, where(a), tile) for a in range(radix)]
            for c, y in enumerate(dft(x, line.sign)[:kept]):
                store(p, (b * radix + c) * done + d, tile, times(y, weights[c - 1]) if c and weights else y)

    def twiddled(b: Index) -> None:
        weights = weights_of(line, p, table, b)
        line.each_transformed(done, lambda d: butterfly(b, d, weights, lambda a: (a * left + b) * done + d))

    if p == 0 and isinstance(source, Arrived):
        source.each(radix, left, lambda b, where: butterfly(b, 0, weights_of(line, p, table, b), where))
    else:
        loop(left, twiddled)


def weights_of(line: FFTLine, p: int, table: Ref, b: Index) -> Weights:
    """Twiddles of butterfly b, except the first, which is 1; none in the last pass."""
    if p == len(line.radices) - 1:
        return []
    radix = line.radices[p]
    at = twiddles(line.radices, line.sign)[0][p] + b * (2 * radix)
    return [(table[at + 2 * c], table[at + 2 * c + 1]) for c in range(1, radix)]


def last_pass(line: FFTLine, table: Ref, read: ReadPair, put: Put, tiles: Tiles) -> None:
    """The radix over the sublanes, for eight k at a time.

    read(row, tile) is a register of rows from that one on, PITCH apart. put(q, k, tile, value) stores results from row
    k + M q on.
    """
    rows = min(line.registers, SUBLANES)

    def group(k: Index) -> None:
        weights = sublane_weights(table, k)
        for tile in tiles:
            x = [read(k * PITCH + s, tile) for s in range(SUBLANES)]
            x[1:] = [times(one, weights[s]) for s, one in enumerate(x[1:], 1)]
            for q, (re, im) in enumerate(dft(x, line.sign)):
                assert re is not None and im is not None, "registers are complex"
                put(q, k, tile, (re[:rows], im[:rows]))

    by_eights(line.bins, group)


def by_eights(many: int, body: Callable[[Index], None]) -> None:
    """Calls body(k) for eight k < many at a time; the last may overlap."""
    if many % SUBLANES == 0:
        loop(many // SUBLANES, lambda g: body(g * SUBLANES))
    else:
        loop(-(-many // SUBLANES), lambda g: body(jnp.minimum(g * SUBLANES, max(many - SUBLANES, 0))))


def sublane_weights(table: Ref, k: Index) -> Weights:
    """w_N^(s k) of eight k, for each s."""
    return [(table[0, s, pl.ds(k, SUBLANES), :], table[1, s, pl.ds(k, SUBLANES), :]) for s in range(SUBLANES)]


def transpose(source: Sequence[Ref], target: Sequence[Ref], rows: int, columns: int, planes: int = 1) -> None:
    """target[c, r] = source[r, c] by tiles of 128 x 128, the rest by eights."""
    (full, rest), across = divmod(rows, LANES), -(-columns // LANES)
    down = full + (rest > 0)

    def tiles_of(t: Index, high: int = LANES) -> None:
        for plane, c in itertools.product(range(planes), range(across)):
            wide = min(LANES, -(-(columns - c * LANES) // SUBLANES) * SUBLANES)
            for one, other in zip(source, target, strict=True):
                tile = register(one, pl.ds(start(t, LANES).start, high), plane * across + c, wide)[...].T
                register(other, pl.ds(c * LANES, wide), plane * down + t, high)[...] = tile

    loop(full, tiles_of)
    if rest:
        tiles_of(full, -(-rest // SUBLANES) * SUBLANES)
