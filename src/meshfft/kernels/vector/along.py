"""The one routine of all kernels: FFTs of lines that lie in a TPU's fast memory, over whole registers.

A register holds 8 rows (sublanes) of 128 columns (lanes). Where lines lie along the rows, N = 8 M and row n = 8 v + s
is sublane s of register v: Stockham passes transform the M registers, eight rows at once, and the last pass transforms
the sublanes. It brings rows s of eight registers into one by a strided load, so that nothing is shuffled:

    passes    y[b r + c] = w^(b c) sum_a exp(.. a c / r) x[a left + b]       for each radix r, in registers
    last      X[k + M q] = sum_s exp(.. s q / 8) w_N^(s k) y_s[k]            eight k in a register

Where lines are untiled, dimensions of 8 rows and 128 columns lie behind them, every position has registers of its own,
and there is no last pass.

Registers stand 9 rows apart for the last pass: eight apart the banks of the memory would have to serve one load several
times.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from .butterflies import Pair, dft, times
from .radices import LANES, SUBLANES, last_twiddles, radices, twiddles

PITCH = 9  # rows between registers that the last pass reads
Ref = Any  # memory that a kernel reads and writes; Pallas names no type for it
Planes = tuple[Ref, Ref]  # of split complex numbers
Where = Callable[[int], tuple[Any, int, Any]]  # part, piece and row that a butterfly reads for each a < radix
Load = Callable[[int, Any, int], Pair]  # what pass p reads of register i, tile t
Store = Callable[[int, Any, int, Pair], None]


@dataclasses.dataclass(frozen=True)
class Line:
    """A length, the sign of the exponent, and whether lines are untiled."""

    length: int
    sign: int
    untiled: bool = False

    @property
    def registers(self) -> int:
        """Of one line, or of eight rows of it."""
        return self.length if self.untiled else self.length // SUBLANES

    @property
    def radices(self) -> tuple[int, ...]:
        return radices(self.registers)

    @property
    def rows(self) -> int:
        """Rows of scratch memory: of what the last pass reads, and of whole tiles."""
        return max(max(self.registers, SUBLANES) * PITCH, -(-self.length // LANES) * LANES)

    @property
    def table_bytes(self) -> int:
        """Of the last pass's twiddles."""
        return 0 if self.untiled else 8 * SUBLANES * max(self.registers, SUBLANES) * LANES

    def tables(self) -> list[np.ndarray]:
        """The twiddles of the passes, and of the last."""
        none = np.zeros((1, 1, SUBLANES, LANES), np.float32)
        last = none if self.untiled else last_twiddles(self.registers, self.sign)
        return [twiddles(self.radices, self.sign)[1], last]


@dataclasses.dataclass(frozen=True)
class Arrived:
    """A block in pieces as exchanges left it, each (parts, planes, rows, ..); of tiled lines rows count in registers.

    Row n = (part P + piece) m + j, of P pieces of m rows from each part. Each piece is an array of its own, so which
    one a row is in has to be known when the kernel is traced; the part and j need not. The first radix r of N = r L
    reads rows a L + b, a < r: see `legible`.
    """

    refs: tuple[Ref, ...]
    rows: int  # of a piece

    @property
    def _many(self) -> int:
        return len(self.refs) * self.rows

    def each(self, radix: int, left: int, body: Callable[[Any, Where], None]) -> None:
        """Calls body(b, where) for every b < left, piece by piece."""
        parts = int(self.refs[0].shape[0])
        span, inside = (parts // radix, self._many) if parts % radix == 0 else (1, left)
        size = min(self.rows, inside)
        for begin in range(0, inside, size):

            def of_part(low: Any, begin: int = begin) -> None:
                def one(j: Any) -> None:
                    body(low * self._many + begin + j, lambda a: self._where(a * left + begin, low, j))

                loop(size, one)

            loop(span, of_part)

    def _where(self, row: int, low: Any, j: Any) -> tuple[Any, int, Any]:
        part, rest = divmod(row, self._many)
        return part + low, rest // self.rows, rest % self.rows + j

    def load(self, where: tuple[Any, int, Any], *behind: Any) -> Pair:
        """The register of a row; `behind` says where in it, or for tiled lines which columns."""
        part, piece, row = where
        re, im = (self.refs[piece][part, plane, row, *behind] for plane in (0, 1))
        return re, im


Source = Planes | Arrived


def legible(radix: int, parts: int, pieces: int) -> bool:
    """True where a first radix leaves known from which piece each row comes."""
    inside, rest = divmod(radix, parts)
    return parts % radix == 0 or (rest == 0 and (pieces % inside == 0 or inside % pieces == 0))


def register(ref: Ref, rows: Any, tile: Any) -> Ref:
    """Some rows of 128 columns; of scratch memory (tiles, rows, 128), of a block (rows, columns)."""
    if len(ref.shape) == 3:
        return ref.at[tile].at[rows, :]
    return ref.at[rows, _start(tile, LANES)]


def _start(number: Any, size: int) -> Any:
    """A slice of `size` that begins at a multiple of it."""
    return pl.ds(number * size if isinstance(number, int) else pl.multiple_of(number * size, size), size)


def along_untiled(
    line: Line,
    table: Ref,
    source: Source,
    scratch: Planes,
    target: Planes,
    weigh: Callable[[Any], tuple[Any, Any]] | None = None,
) -> None:
    """FFTs of the first dimension of (N, 8, columns), result k times weigh(k)."""
    buffers, last = _buffers(len(line.radices), source, scratch, target), len(line.radices) - 1

    def load(p: int, i: Any, tile: int) -> Pair:
        if p == 0 and isinstance(source, Arrived):
            return source.load(i, slice(None), _start(tile, LANES))
        re, im = (ref[i, :, _start(tile, LANES)] for ref in buffers[p])
        return re, im

    def store(p: int, i: Any, tile: int, value: Pair) -> None:
        value = times(value, weigh(i)) if weigh is not None and p == last else value
        for ref, part in zip(buffers[p + 1], value, strict=True):
            ref[i, :, _start(tile, LANES)] = part

    _passes(line, table, load, store, range(scratch[0].shape[2] // LANES), source)


def along_rows(
    line: Line, tables: Sequence[Ref], source: Source, scratch: Planes, target: Planes, tiles: int, at_once: int
) -> None:
    """FFTs of the rows of (N, columns), `at_once` of the tiles of 128 columns in one body of a loop.

    Where `source` is one of the two others, `order` says which.
    """
    last = len(line.radices) - 1
    buffers = _buffers(last + 1, source, target, scratch)

    def run(first: Any, number: int) -> None:
        def load(p: int, i: Any, tile: int) -> Pair:
            if p == 0 and isinstance(source, Arrived):
                return source.load((*i[:2], _start(i[2], SUBLANES)), _start(first + tile, LANES))
            re, im = (register(ref, _start(i, SUBLANES), first + tile)[...] for ref in buffers[p])
            return re, im

        def store(p: int, i: Any, tile: int, value: Pair) -> None:
            rows = pl.ds(i * PITCH, SUBLANES) if p == last else _start(i, SUBLANES)
            for ref, part in zip(buffers[p + 1], value, strict=True):
                register(ref, rows, first + tile)[...] = part

        _passes(line, tables[0], load, store, range(number), source)
        _sublanes(line, tables[1], scratch, target, [first + tile for tile in range(number)])

    groups, rest = divmod(tiles, at_once)
    loop(groups, lambda g: run(g * at_once, at_once))
    if rest:
        run(groups * at_once, rest)


def order(line: Line, memories: Sequence[Planes]) -> tuple[Planes, Planes]:
    """Which of two memories is scratch and which the target of `along_rows`, where the source is the second."""
    first, second = memories
    return (first, second) if len(line.radices) % 2 else (second, first)


def _buffers(passes: int, source: Source, between: Planes, last: Planes) -> list[Any]:
    """What each pass reads, and what the last one writes; before it the two by turns."""
    return [source, *((last, between)[(passes - p) % 2] for p in range(1, passes + 1))]


def _passes(line: Line, table: Ref, load: Load, store: Store, tiles: Sequence[int], source: Source) -> None:
    left, done = line.registers, 1
    for p, radix in enumerate(line.radices):
        left //= radix
        arrived = source if p == 0 and isinstance(source, Arrived) else None
        _pass(line, p, (left, done), table, load, store, tiles, arrived)
        done *= radix


def _pass(
    line: Line,
    p: int,
    sizes: tuple[int, int],
    table: Ref,
    load: Load,
    store: Store,
    tiles: Sequence[int],
    arrived: Arrived | None,
) -> None:
    """One radix: `left` twiddled butterflies, each of `done` registers that earlier passes have transformed."""
    (left, done), radix, begin = sizes, line.radices[p], twiddles(line.radices, line.sign)[0][p]

    def butterfly(b: Any, d: Any, weights: list[tuple[Any, Any]], where: Callable[[int], Any]) -> None:
        for tile in tiles:
            x = [load(p, where(a), tile) for a in range(radix)]
            for c, y in enumerate(dft(x, line.sign)):
                store(p, (b * radix + c) * done + d, tile, times(y, weights[c - 1]) if c and weights else y)

    def weights_of(b: Any) -> list[tuple[Any, Any]]:
        at = begin + b * (2 * radix)
        return [(table[at + 2 * c], table[at + 2 * c + 1]) for c in range(1, radix)] if left > 1 else []

    def twiddled(b: Any) -> None:
        weights = weights_of(b)
        loop(done, lambda d: butterfly(b, d, weights, lambda a: (a * left + b) * done + d))

    if arrived is None:
        loop(left, twiddled)
    else:
        arrived.each(radix, left, lambda b, where: butterfly(b, 0, weights_of(b), where))


def _sublanes(line: Line, table: Ref, source: Planes, target: Planes, tiles: Sequence[Any]) -> None:
    """The last pass, of eight k at a time; the last eight may overlap those before."""
    many = line.registers
    rows = min(many, SUBLANES)

    def group(g: Any) -> None:
        k = g * SUBLANES if many % SUBLANES == 0 else jnp.maximum(jnp.minimum(g * SUBLANES, many - SUBLANES), 0)
        weights = [tuple(table[part, s, pl.ds(k, SUBLANES), :] for part in (0, 1)) for s in range(SUBLANES)]
        for tile in tiles:
            x = []
            for s in range(SUBLANES):
                at = pl.ds(k * PITCH + s, SUBLANES, stride=PITCH)
                re, im = (register(ref, at, tile)[...] for ref in source)
                x.append(times((re, im), weights[s]) if s else (re, im))
            for q, y in enumerate(dft(x, line.sign)):
                first = many * q + k if many % SUBLANES else pl.multiple_of(many * q + k, SUBLANES)
                for ref, part in zip(target, y, strict=True):
                    register(ref, pl.ds(first, rows), tile)[...] = part[:rows]

    loop(-(-many // SUBLANES), group)


def loop(many: int, body: Callable[[Any], None]) -> None:
    """Calls body(i) for every i < many."""
    if many == 1:
        body(0)
    else:
        lax.fori_loop(np.int32(0), np.int32(many), lambda i, _: body(i), None)


def transpose(source: Planes, target: Planes, rows: int, columns: int) -> None:
    """target[c, r] = source[r, c], by tiles of 128 x 128; what lies beyond `rows` or `columns` goes along or is cut."""

    def turn(t: Any) -> None:
        for c in range(-(-columns // LANES)):
            for one, other in zip(source, target, strict=True):
                tile = register(one, _start(t, LANES), c)[...].T
                held = min(LANES, other.shape[-2] - c * LANES)
                register(other, pl.ds(c * LANES, held), t)[...] = tile[:held]

    loop(-(-rows // LANES), turn)
