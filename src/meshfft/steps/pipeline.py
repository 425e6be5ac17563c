"""Pipeline: a local FFT and an exchange in chunks; one chunk is computed while the previous is sent."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax
from jax import lax

from ..collectives.all_to_all import Came, Pieces, Ports, Rows, assembled, exchange_shares, taken
from ..kept import Trial
from ..kernels.base import Lines, Sender
from ..layout.layout import Layout, shift
from ..layout.moves import AxisMove
from ..machine.chip import LANES, SUBLANES, Chip
from ..machine.machine import Move, Work, total
from ..numerics.split_complex import Block, Planes, in_planes, resize, unfolded
from ..operators.matrices import Matrix
from .base import Kernels, Step, names, reached
from .exchange import Exchange, axis_moves
from .local_fft import LocalFFT
from .problem import Numbers, Problem
from .sends import InChunks

COPIES = 2  # passes to pack or join a block
STRIDED = 6  # more if parts cut the last dimension
MISALIGNED = 29  # more if a chunk ends within a tile: 500^3 on v5e, by compiled cycles
CHUNKS = 8  # at most: the first overlaps no message, and each adds one
CHUNK_CYCLES = 4500  # of the short instructions that XLA's FFT adds with each, fitted to TPU v5e


@dataclasses.dataclass(frozen=True)
class Pipeline(InChunks, Kernels):
    """A LocalFFT, and a packed exchange of one move before or after it.

    If the exchange moves axes out of `dim`, a chunk has some rows of every shard, which arrive spread over the
    dimension; into `dim` it is the reverse. Barriers keep the compiler from batching the chunks' local steps. Senders
    write both planes as one message; with `hands` nothing is copied.
    """

    hands: tuple[int, ...] = ()  # dimensions that the next step transforms, if it takes pieces

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Pipeline"]:
        chip = problem.machine.chip
        for local in LocalFFT.offers(problem, layout, todo) if chip.overlaps else ():
            left = {dim: matrix for dim, matrix in todo.items() if dim not in local.dims}
            for move, _ in axis_moves(problem, local.after(layout), left):
                dim, chunks = _chunked(layout, local, move, chip)
                if chunks > 1:
                    yield cls((local, Exchange((move,), packed=True)), dim, chunks)

    @property
    def move(self) -> AxisMove:
        (move,) = self._exchange.moves
        return move

    @property
    def numbers(self) -> Numbers:
        return Numbers(dots=self._local.numbers.dots)

    def after(self, layout: Layout) -> Layout:
        return reached(layout, self.steps)[-1]

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        works = [step.work(before, itemsize, chip) for step, before in self.pairs(layout)]
        block, exchange, shares = math.prod(layout.block) * itemsize, self._exchange, self._shares(layout)
        ends, many, parts = block + math.prod(self.after(layout).block) * itemsize, len(shares), self.move.parts
        if by_kernels := self._by_kernels(layout):  # received data stays in pieces or is joined beside them
            (flops, nbytes), cycles = self._coded(layout, itemsize, chip)
            nbytes += self._copies(layout) * block
            works[1] = dataclasses.replace(works[1], vector_flops=flops, memory_bytes=nbytes, kernel_cycles=cycles)
            peak = ends + ((1 if self.hands else 2) * many + 2) * block // many
            sent = sum(exchange.message_bytes((2, *one), itemsize // 2) for one in shares)
        else:
            peak = ends + 2 * max(work.peak_bytes for work in works) // many
            if chip.waste(layout.block) > 1:  # XLA keeps the block in another order, too, and what arrives
                peak += 2 * block
            if self.numbers.dots:  # a chunk's slices do not shrink with the block; pairs of float32 for the ends
                one = layout.resize(self.dim, max(layout.shape[self.dim] // many, 1))
                alive = (step.work(at, itemsize, chip).peak_bytes for step, at in self.pairs(one))
                peak = ends + 3 * block + 2 * max(alive)
                works = [total([step.work(at, itemsize, chip)] * many) for step, at in self.pairs(one)]
            else:  # chunks are row-major
                waste = chip.waste(self._chunk(layout), row_major=True)
                works = [_wasted(work, waste) for work in works]
            sent = sum(exchange.message_bytes(one, itemsize) for one in shares)
        summed = total(works)
        return dataclasses.replace(
            summed,
            kernel_cycles=summed.kernel_cycles + CHUNK_CYCLES * many * (not by_kernels),
            sent_bytes=sent * (parts - 1),
            all_to_alls=summed.all_to_alls * many,
            moves=(Move("all-to-all", self.move.axes, sent * parts // many, many),),
            parts=many,
            peak_bytes=peak,
        )

    def _shares(self, layout: Layout) -> list[tuple[int, ...]]:
        """Shape sent to a device, per chunk; equal chunks may be fewer than asked for."""
        (share,) = (step.share(at) for step, at in self.pairs(layout) if isinstance(step, Exchange))
        sizes = [chunk.size for chunk in self._cut(layout)] or [0]
        return [tuple(size if d == self.dim else n for d, n in enumerate(share)) for size in sizes]

    def _cut(self, layout: Layout) -> list[Rows]:
        """The chunks of `dim`, within one shard if the exchange moves axes there."""
        rows = self._rows(layout)
        size = max(-(-rows // self.chunks), 1)
        return [Rows(self.dim, start, min(size, rows - start)) for start in range(0, rows, size)]

    def _chunk(self, layout: Layout) -> tuple[int, ...]:
        rows = self._cut(layout)[0].size if self._rows(layout) else 0
        return tuple(rows if dim == self.dim else n for dim, n in enumerate(layout.block))

    def _ports(self, chunk: Rows) -> Ports:
        return Ports(chunk, sent=(self.move.target, self.move.parts))

    def _coded(self, layout: Layout, itemsize: int, chip: Chip) -> tuple[tuple[int, int], int]:
        """Operations and bytes of XLA to encode and decode the block, or the cycles of kernels that do."""
        nbytes = math.prod(layout.block) * itemsize
        if chip.clock and (form := self._exchange.tiles(self._shares(layout)[0])):
            return (0, 0), self._sender.form_cycles(form, nbytes // form.coded.real, chip)
        return self._exchange.coding(layout.block, itemsize, 2, chip), 0

    @functools.cached_property
    def _local(self) -> LocalFFT:
        (local,) = (step for step in self.steps if isinstance(step, LocalFFT))
        return local

    @functools.cached_property
    def _exchange(self) -> Exchange:
        """Kernels encode its messages, if they have memory for that."""
        (exchange,), sender = (step for step in self.steps if isinstance(step, Exchange)), self._local.sender
        wire = dataclasses.replace(exchange.wire, room=sender.room if sender else 0)
        return dataclasses.replace(exchange, wire=wire)

    @property
    def _sender(self) -> Sender:
        sender = self._local.sender
        assert sender is not None, "only of engines that write what is sent"
        return sender

    def joint(self, layout: Layout) -> bool:
        return self._exchange.lossy or self._by_kernels(layout)

    def _by_kernels(self, layout: Layout) -> bool:
        """Whether kernels run first, nothing is padded and all chunks are equal."""
        after, rows, parts = self.after(layout).block, self._rows(layout), self.move.parts
        source, target = self.move.source, self.move.target
        even = after[source] == layout.block[source] * parts and layout.block[target] == after[target] * parts
        plain = self._local.after(layout).block == layout.block and self.dim != target and rows > 0
        return bool(self.takes_pieces) and even and plain and len({chunk.size for chunk in self._cut(layout)}) == 1

    def _copies(self, layout: Layout) -> int:
        """Passes for transposing, packing and joining that its kernels do not do."""
        ends, last = (self.move.target, self.move.source), layout.ndim - 1
        packs, joins = (COPIES + STRIDED * (dim == last) for dim in ends)
        joins += MISALIGNED * (self.dim == last - 1 and self._cut(layout)[0].size % SUBLANES > 0)
        ordered = 0 if self._sender.keeps_order(layout.block) else COPIES
        writes = self._sender.direct(layout.block, self._local.dims, self._ports(self._cut(layout)[0]))
        return ordered + (0 if writes else 2 * packs) + (0 if self._read(layout) else joins)

    def _read(self, layout: Layout) -> bool:
        """Whether the next step's kernels read pieces in place, one by one if no line spans several."""
        source = self.move.source
        chunks = self.chunks if self.dim == source else 1
        ports = Ports(came=Came(source, source, self.move.parts, chunks))
        return bool(self.hands) and self._sender.direct(self.after(layout).block, self.hands, ports)

    @property
    def takes_pieces(self) -> tuple[int, ...]:
        first = self.steps[0].kernels
        return first.takes_pieces if first else ()

    def fuse(self, before: Step | None, after: Step | None) -> "Pipeline":
        return dataclasses.replace(self, hands=after.kernels.takes_pieces if after and after.kernels else ())

    def apply_pieces(self, pieces: Pieces, layout: Layout) -> Block | Pieces:
        if not self._by_kernels(layout):
            return self._by_steps(pieces.joined(), layout)
        left = self._in_pieces(pieces, layout)
        return left if self.hands else left.joined()

    def _in_pieces(self, given: Planes | Pieces, layout: Layout) -> Pieces:
        """Kernels write each chunk's message; received pieces stay as they arrive."""
        local, move, arrays = self._local, self.move, []
        send = self._exchange.over_wire(exchange_shares)
        for chunk in self._cut(layout):
            (sent,) = self._sender.between(given, local.dims, local.matrix.sign, self._ports(chunk))
            arrays.append(send(sent, move.axes))
        return Pieces(tuple(arrays), move.source, self.dim)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block | Pieces:
        if not self._by_kernels(layout):
            return self._by_steps(block, layout)
        if self.hands and isinstance(block, tuple):
            return self._in_pieces(block, layout)
        return in_planes(lambda planes: self._in_pieces(planes, layout).joined(), block)

    def _by_steps(self, block: Block, layout: Layout) -> Block:
        dim, rows = self.dim, self._rows(layout)
        before, after = (self.move.parts if dim == end else 1 for end in (self.move.target, self.move.source))
        parts = jax.tree.map(lambda part: unfolded(resize(part, dim, before * rows), dim, before), block)
        chunks = [jax.tree.map(functools.partial(taken, **chunk._asdict()), parts) for chunk in self._cut(layout)]
        for step, at in self.pairs(layout):
            if isinstance(step, Exchange):
                chunks = [step.apply_to_rows(chunk, at, kept=dim) for chunk in chunks]
            elif isinstance(step, LocalFFT):
                chunks = _one_by_one(step, chunks, at)
        joined = jax.tree.map(lambda *parts: assembled(parts, dim, after), *chunks)
        return jax.tree.map(lambda part: resize(part, dim, self.after(layout).block[dim]), joined)

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        local, move = self._local, self.move
        if not self._by_kernels(layout):
            chunks = ((one, at.resize(self.dim, at.shape[self.dim] // self.chunks)) for one, at in self.pairs(layout))
            return tuple(trial for one, at in chunks if one.kernels for trial in one.kernels.trials(at, None)[0]), None
        lines, cut = Lines(layout.block, local.dims, local.lengths), self._cut(layout)
        second = self._ports(Rows(self.dim, cut[0].size, cut[0].size))
        form = self._exchange.tiles(self._shares(layout)[0])
        coding = self._sender.form_trials(form) if form else ()
        own = self._sender.trials(lines, second._replace(came=came))
        return (*own, *coding), Came(move.source, self.dim, move.parts, len(cut)) if self.hands else None

    def transpose(self, layout: Layout) -> "Pipeline":
        return dataclasses.replace(super().transpose(layout), hands=())

    def insert(self, dim: int) -> "Pipeline":
        return dataclasses.replace(super().insert(dim), hands=tuple(shift(d, dim) for d in self.hands))

    def name(self, layout: Layout) -> str:
        steps = ", ".join(step.name(before) for step, before in self.pairs(layout))
        return f"{steps}, in {self.chunks} chunks of {names((self.dim,), layout)}"

    def _rows(self, layout: Layout) -> int:
        return self.after(layout).block[self.dim] if self.dim == self.move.target else layout.block[self.dim]


def _chunked(layout: Layout, local: LocalFFT, move: AxisMove, chip: Chip) -> tuple[int, int]:
    """The dimension to cut (the longest that neither step touches, else the move's source), and the number of chunks.
    Kernels take the one with more chunks, all equal, of whole tiles if possible.
    """
    free = [d for d in range(layout.ndim) if d not in (*local.dims, move.source, move.target)]
    longest = max(free, key=layout.block.__getitem__, default=move.source)
    dims = [longest if layout.block[longest] >= CHUNKS else move.source]
    if local.takes_pieces:
        for rows in (SUBLANES, 1):
            tiles = {layout.ndim - 1: LANES, layout.ndim - 2: rows}
            equal = [(_equal(layout.block[d], tiles.get(d, 1)), d) for d in (*dims, move.source) if d not in local.dims]
            many, dim = max(equal, key=lambda pair: pair[0], default=(0, 0))
            if many > 1:
                return dim, many
    if dims[0] in local.dims:
        return dims[0], 0
    if chip.side > 1 and dims[0] == layout.ndim - 1:  # chunks that end within a tile take twice the memory
        return dims[0], _equal(layout.block[dims[0]], LANES)
    return dims[0], min(CHUNKS, layout.block[dims[0]])


def _wasted(work: Work, waste: float) -> Work:
    return dataclasses.replace(work, memory_bytes=int(waste * work.memory_bytes), fed_bytes=int(waste * work.fed_bytes))


def _equal(rows: int, tile: int) -> int:
    return max((n for n in range(1, CHUNKS + 1) if rows % (n * tile) == 0), default=0) if rows else 0


def _one_by_one(step: LocalFFT, chunks: list[Block], layout: Layout) -> list[Block]:
    done: list[Block] = []
    for chunk in chunks:
        if done:
            chunk, done[-1] = lax.optimization_barrier((chunk, done[-1]))
        done.append(step.apply(chunk, layout))
    return done
