"""FFTs of real lines along rows of registers, to half of their spectra, and the transpose.

As in along.py a line of N = 8 M is eight of M, one to a sublane, whose spectra are Hermitian. For M = r L the first
butterflies keep c <= r / 2 of their r results, and later passes transform only these:

    half       t_c[b] = w_M^(b c) sum_a exp(.. a c / r) x[a L + b],   Y[r j + c] = FFT_L(t_c)[j],   Y[M - k] = conj Y[k]
               X[k + M q] = sum_s exp(.. s q / 8) w_N^(s k) Y_s[k],   k <= M / 2,   X[N - k] = conj X[k]
    onto real  the same in reverse: x[n] = Re sum_{k <= N / 2} X[k] exp(.. k n / N)

Mirror images of eight k are eight rows in reverse order, for which older TPUs have no instruction. These compute all
k < M for q < 4 alone, and X[N / 2] = sum_s (-1)^s Y_s[0].

Lines are not mixed: no NaN spreads, and small lines keep their digits.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from . import along, memory
from .along import PITCH, FFTLine, ReadPair, Tiles, last_pass, passes
from .memory import AnyRefs, Index, LineSpan, Ref, Refs, loop, register, start
from .radices import LANES, SUBLANES, Pair, Whole, dft, radices, times

QUARTERS = 4  # of the eight parts of a spectrum, those with k < N / 2


@dataclasses.dataclass(frozen=True)
class RealLine(FFTLine):
    """Real lines. TPUs with many registers can also reverse the rows of one."""

    @property
    def half(self) -> int:
        return self.length // 2 + 1

    @property
    def radices(self) -> tuple[int, ...]:
        """The first is as large as possible: it keeps the fewest results."""
        rest, odd = divmod(self.registers, 16)
        return radices(self.registers) if odd or rest == 1 else (16, *radices(rest))

    @property
    def kept(self) -> int:
        return self.radices[0] // 2 + 1

    @property
    def mirrored(self) -> bool:
        return self.many_registers and self.registers // 2 + 1 >= SUBLANES

    @property
    def bins(self) -> int:
        return self.registers // 2 + 1 if self.mirrored else self.registers

    @property
    def rows(self) -> int:
        """As FFTLine's, with a register for the mirror image of the first."""
        return max((max(self.registers, SUBLANES) + 1) * PITCH, -(-self.length // LANES) * LANES)

    def each_transformed(self, done: int, body: Callable[[Index], None]) -> None:
        first = self.radices[0]
        if done == 1:
            body(0)
        else:
            loop(done // first, lambda j: loop(self.kept, lambda c: body(j * first + c)))

    def places(self, k: Index) -> list[tuple[Index, Index]]:
        """Places of the register of k and of its mirror image, with the signs of imaginary parts."""
        if not self.mirrored:
            return [(k, 1.0), (self.registers - k, -1.0)]
        beyond = 2 * k > self.registers
        if isinstance(beyond, bool):
            return [(self.registers - k, -1.0) if beyond else (k, 1.0)]
        return [(jnp.where(beyond, self.registers - k, k), jnp.where(beyond, np.float32(-1), np.float32(1)))]


def real_plane(line: RealLine, memories: Sequence[Refs]) -> Ref:
    """The plane of real lines, unused by the adjacent pass."""
    return memories[len(line.radices) % 2][0]


def half_along_rows(line: RealLine, tables: AnyRefs, scratch: Refs, target: Refs, tiles: int) -> None:
    source, last = real_plane(line, (scratch, target)), len(line.radices) - 1
    buffers = along.buffers_of(last + 1, (source, source), target, scratch)

    def load(p: int, i: Index, tile: Index) -> Pair:
        re, im = memory.load(buffers[p], start(i, SUBLANES), tile)
        return re, None if p == 0 else im

    def store(p: int, i: Index, tile: Index, value: Pair) -> None:
        if p < last:
            return memory.store(buffers[p + 1], start(i, SUBLANES), tile, value)
        re, im = value
        for at, sign in line.places(i):
            memory.store(scratch, pl.ds(at * PITCH, SUBLANES), tile, (re, None if im is None else im * sign))

    def read(row: Index, tile: Index) -> Pair:
        return memory.load(scratch, pl.ds(row, SUBLANES, stride=PITCH), tile)

    def put(q: int, k: Index, tile: Index, value: Whole) -> None:
        """X[k + M q], and for q >= 4 X[N - k - M q]."""
        re, im = value
        if q < QUARTERS:
            memory.store(target, pl.ds(line.row_of(q, k), len(re)), tile, value)
        elif line.mirrored:
            memory.store(target, _upside_down(line, q, k), tile, (_flipped(re), -_flipped(im)))

    def run(tiles: Tiles) -> None:
        passes(line, tables[0], load, store, tiles)
        last_pass(line, tables[1], read, put, tiles)
        if not line.mirrored:
            _middle(line, scratch, target, tiles)

    along.by_tiles(line, tiles, run)


def real_along_rows(line: RealLine, tables: AnyRefs, scratch: Refs, source: Refs, tiles: int) -> None:
    """Real lines of half spectra (N, columns), written to `real_plane`; `source` is overwritten."""
    last = len(line.radices) - 1
    buffers = [scratch, *((source, scratch)[p % 2] for p in range(last))]
    target = real_plane(line, (scratch, source))

    def load(p: int, i: Index, tile: Index) -> Pair:
        if p > 1:
            return memory.load(buffers[p - 1], start(i, SUBLANES), tile)
        (re, im), *mirrored = [signed(at, sign, tile) for at, sign in line.places(i)]
        for other_re, other_im in mirrored:
            re, im = re + other_re, im + other_im
        return re, im

    def signed(at: Index, sign: Index, tile: Index) -> Whole:
        re, im = (register(ref, pl.ds(at * PITCH, SUBLANES), tile)[...] for ref in scratch)
        return re, im * sign

    def store(p: int, i: Index, tile: Index, value: Pair) -> None:
        memory.store(buffers[p], start(i, SUBLANES), tile, value)

    def run(tiles: Tiles) -> None:
        _from_sublanes(line, tables[1], source, scratch, tiles)
        passes(line, tables[0], load, store, tiles, begin=1)
        _last_onto_real(line, tables[0], lambda i, tile: load(last + 1, i, tile), target, tiles)

    along.by_tiles(line, tiles, run)


def _middle(line: RealLine, source: Refs, target: Refs, tiles: Tiles) -> None:
    """X[N / 2] of Y_s[0]."""
    for tile in tiles:
        for ref, other in zip(source, target, strict=True):
            total = jnp.sum(_alternating() * register(ref, pl.ds(0, SUBLANES), tile)[...], axis=0, keepdims=True)
            register(other, pl.ds(line.length // 2, 1), tile)[...] = total


def _from_sublanes(line: RealLine, table: Ref, source: Refs, target: Refs, tiles: Tiles) -> None:
    """a_s[k] = w_N^(s k) sum_q exp(.. s q / 8) X[k + M q] of half a spectrum, or of both halves."""

    def group(k: Index) -> None:
        weights = along.sublane_weights(table, k)
        for tile in tiles:
            x: list[Pair] = [memory.load(source, pl.ds(line.row_of(q, k), SUBLANES), tile) for q in range(QUARTERS)]
            for q in range(QUARTERS, SUBLANES):
                x.append(mirror_image(q, k, tile) if line.mirrored else (None, None))
            for s, y in enumerate(dft(x, line.sign)):
                at = pl.ds(k * PITCH + s, SUBLANES, stride=PITCH)
                memory.store(target, at, tile, times(y, weights[s]) if s else y)

    def mirror_image(q: int, k: Index, tile: Index) -> Pair:
        re, im = (_flipped(register(ref, _upside_down(line, q, k), tile)[...]) for ref in source)
        return re, -im

    if line.mirrored:
        _double_ends(line, source, tiles)
    along.by_eights(line.bins, group)
    if not line.mirrored:
        _add_middle(line, source, target, tiles)


def _double_ends(line: RealLine, source: Refs, tiles: Tiles) -> None:
    for tile in tiles:
        for ref in source:
            for row in (0, line.length // 2):
                register(ref, pl.ds(row, 1), tile)[...] *= 2


def _add_middle(line: RealLine, source: Refs, target: Refs, tiles: Tiles) -> None:
    """Adds (-1)^s X[N / 2] to a_s[0], and to its copy a_s[M]."""
    for tile in tiles:
        for ref, other in zip(target, source, strict=True):
            first, middle = register(ref, pl.ds(0, SUBLANES), tile), register(other, pl.ds(line.length // 2, 1), tile)
            value = first[...] + _alternating() * middle[...]
            first[...] = value
            register(ref, pl.ds(line.registers * PITCH, SUBLANES), tile)[...] = value


def _last_onto_real(line: RealLine, table: Ref, load: ReadPair, target: Ref, tiles: Tiles) -> None:
    """x[a L + b] = Re sum_c w_M^(b c) exp(.. a c / r) g_c[b], with half of each c that is its own mirror image."""
    radix = line.radices[0]
    left = line.registers // radix

    def butterfly(b: Index) -> None:
        weights = along.weights_of(line, 0, table, b)
        for tile in tiles:
            x: list[Pair] = [(None, None)] * radix
            for c in range(line.kept):
                value = load(b * radix + c, tile)
                value = times(value, weights[c - 1]) if c and weights else value
                x[c] = value if (2 * c) % radix else times(value, (0.5, None))
            for a, (re, _) in enumerate(dft(x, line.sign)):
                register(target, start(a * left + b, SUBLANES), tile)[...] = re

    loop(left, butterfly)


def _upside_down(line: RealLine, q: int, k: Index) -> LineSpan:
    """Rows N - k - M q - 7 ... N - k - M q."""
    return pl.ds((SUBLANES - q) * line.registers - k - (SUBLANES - 1), SUBLANES)


def _flipped(x: Array) -> Array:
    sublane = lax.broadcasted_iota(jnp.int32, x.shape, 0)
    return jnp.take_along_axis(x, SUBLANES - 1 - sublane, axis=0, mode="promise_in_bounds")


def _alternating() -> Array:
    sublane = lax.broadcasted_iota(jnp.int32, (SUBLANES, LANES), 0)
    return jnp.where(sublane % 2 == 0, np.float32(1), np.float32(-1))
