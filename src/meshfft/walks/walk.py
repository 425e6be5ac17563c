"""A walk: steps through layouts, from the input to the result.

Reversed, transposed steps give the transposed matrix, their conjugates the adjoint; the inverse is the scaled adjoint.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import jax

from ..collectives.all_to_all import Pieces, count, halfway, joined
from ..collectives.levels import Wires
from ..collectives.wires import EXACT, Wire
from ..kept import Trial
from ..layout.layout import Cuts, Layout, hashed_once
from ..machine.chip import Chip, CompilerOptions
from ..machine.chips import GENERIC
from ..machine.machine import Work, total
from ..numerics.dtypes import Error, unit_of
from ..numerics.split_complex import Block, in_planes, resize_each, split
from ..steps import Step
from ..steps.base import Chunked, Takes, reached, slot_of
from .cpu_memory import Memory

FINEST = 8  # chunks may be this many times smaller than those kept
MATCHED_BYTES = 2**21  # least bytes of a block with chunks of one size
HALVED_BYTES = 2**22  # least bytes of a block whose chunks are halved
MATCHED_CHUNKS = 32  # most chunks of a block


@hashed_once
@dataclasses.dataclass(frozen=True)
class Walk:
    """Steps from one layout to another, and the factor of the result."""

    start: Layout
    steps: tuple[Step, ...]
    scale: float = 1.0  # of the result
    planes: bool = False  # split complex throughout: an array is split and joined once
    real: bool = False  # the input is real

    @functools.cached_property
    def layouts(self) -> tuple[Layout, ...]:
        return reached(self.start, self.steps)

    @property
    def pairs(self) -> tuple[tuple[Step, Layout], ...]:
        return tuple(zip(self.steps, self.layouts[:-1], strict=True))

    @property
    def name(self) -> str:
        return "; ".join(step.name(layout) for step, layout in self.pairs)

    @property
    def end(self) -> Layout:
        return self.layouts[-1]

    @property
    def taking(self) -> tuple[tuple[int, Takes, Layout], ...]:
        """(slot, step, layout before it) for steps with an operand."""
        slots = ((slot_of(step), step.takes, layout) for step, layout in self.pairs)
        return tuple((slot, step, layout) for slot, step, layout in slots if step and slot is not None)

    @functools.cached_property
    def reals(self) -> tuple[bool, ...]:
        """Whether the array is real before each step, and at the end."""
        first = 1 if self.real else 2
        sizes = itertools.accumulate(self.steps, lambda n, step: step.numbers.bytes_after(n), initial=first)
        return tuple(size == 1 for size in sizes)

    def works(self, itemsize: int, chip: Chip) -> tuple[Work, ...]:
        """Each step's cost on one device, for complex numbers of `itemsize` bytes."""
        sizes = [itemsize // 2 if real else itemsize for real in self.reals]
        blocks = [math.prod(at.block) * size for at, size in zip(self.layouts, sizes, strict=True)]
        works = [step.work(at, size, chip) for (step, at), size in zip(self.pairs, sizes, strict=False)]
        if chip.cached:
            return Memory(self.pairs, self.reals, self.scale != 1, itemsize // 2, works, blocks).counted()
        held = [blocks[-1] * (chip.side == 1 and work.hops > 0) for work in works[:-1]] + [0]
        wastes = itertools.pairwise(chip.waste(at.block) for at in self.layouts)
        beside = zip(works, held, map(max, wastes), strict=False)
        peaks = [math.ceil((work.peak_bytes + more) * by) for work, more, by in beside]
        return tuple(dataclasses.replace(work, peak_bytes=peak) for work, peak in zip(works, peaks, strict=False))

    def work(self, itemsize: int, chip: Chip) -> Work:
        return total(self.works(itemsize, chip))

    def compiler_options(self, itemsize: int, chip: Chip, plain: bool = True, beside: int = 0) -> CompilerOptions:
        """The chip's options, plus a heap chunk size if all arrays between the steps fit in a chunk. If `plain`, input
        and result are each one complex array of the computed type and may stay in chunks. Conversions or arithmetic
        around the walk need a whole block, and `beside` bytes.
        """
        each = [step.chunked.held(layout, itemsize) if step.chunked else None for step, layout in self.pairs]
        held = [one for one in each if one is not None]
        if len(held) < len(each) or len({len(step.dims) > 0 for step in self.steps}) < 2:  # or all is done in place
            return chip.options
        largest, shapes = max(one.largest for one in held), {one.chunk for one in held}
        last = self.steps[-1].chunked
        if plain and last and len(shapes) == 1 and self.start.block not in shapes:
            chunk = math.prod(*shapes) * halfway(last.grids[1], self.end.ndim)
            largest = chunk or largest
        nbytes = max(largest * itemsize, beside, *(one.scratch for one in held))
        chunks = (("xla_multiheap_size_constraint_per_heap", str(max(nbytes, chip.chunk // FINEST))),)
        return chip.options + (chunks if largest and nbytes <= chip.chunk else ())

    @property
    def collectives(self) -> dict[str, int]:
        """Collectives of one run, every hop of a ring counted; a TPU's float64 is two arrays of float32."""
        counts = {"all-to-all": 0, "collective-permute": 0}
        halves = 2 if any(dot.unit for step in self.steps for dot in step.numbers.dots) else 1
        for (step, layout), real, work in zip(self.pairs, self.reals, self.works(2, GENERIC), strict=False):
            planes = 2 if (self.planes or step.numbers.planar) and not real else 1
            arrays = 1 if step.sends and step.sends.joint(layout) else planes * halves
            counts["all-to-all"] += arrays * work.all_to_alls
            counts["collective-permute"] += arrays * work.hops
        return {name: count for name, count in counts.items() if count}

    def error(self, itemsize: int, rounding: float = 1.0) -> float:
        """The relative L2 error, at most: of the steps' arithmetic (see Error), and of the wires.

            error = r max(sqrt(sum noise_i^2 + scaled^2), sum equal_i + scaled) + condition (prod (1 + lost_i) - 1)

        r is a chip's `rounding`. `scaled` is the rounding of a factor that is no power of two and of its products.
        Steps that keep norms up to a factor keep a relative error; others multiply it by at most `condition`, the ratio
        of their extreme singular values: sqrt(2) for half spectra; for cosine transforms it depends on their ends. It
        is unknown, and taken as 1, for cropped results and arbitrary points. Imaginary parts that a real result drops
        are not counted.
        """
        scaled = 0.0 if math.frexp(self.scale)[0] == 0.5 else 2 * unit_of(itemsize)
        error = Error.of_all(step.error(layout, itemsize) for step, layout in self.pairs)
        rounded = rounding * max(math.hypot(error.noise, scaled), error.equal + scaled)
        return rounded + error.condition * error.lost

    def trials(self) -> tuple[Trial, ...]:
        every, came = list[Trial](), None
        for step, layout in self.pairs:
            own, came = step.kernels.trials(layout, came) if step.kernels else ((), None)
            every += own
        return tuple(dict.fromkeys(every))

    def wired(self, by: Wire = EXACT) -> "Walk":
        steps = (step.sends.wired(Wires(by, by)) if step.sends else step for step in self.steps)
        return dataclasses.replace(self, steps=tuple(steps))

    def apply(self, block: Block, *operands: object) -> Block:
        """Applies the steps to a device's block; `operands` are indexed by slot."""

        def run(block: Block | Pieces) -> Block:
            for j, (step, layout) in enumerate(self.pairs):
                with jax.named_scope(f"step{j}_{type(step).__name__}"):
                    if isinstance(block, Pieces) and step.kernels:
                        block = step.kernels.apply_pieces(block, layout)
                    else:
                        slot = slot_of(step)
                        block = step.apply(joined(block), layout, None if slot is None else operands[slot])
            # a mesh axis of one device may leave a longer block than the lines it holds
            block = resize_each(joined(block), tuple(range(self.end.ndim)), self.end.block)
            return block if self.scale == 1 else jax.tree.map(lambda part: part * self.scale, block)

        if self.steps and (self.planes or all(step.numbers.planar for step in self.steps)):
            return in_planes(lambda planes: split(run(planes)), block)
        return run(block)

    def transpose(self) -> "Walk":
        return self._back(tuple(step.transpose(layout) for step, layout in self.pairs), self.scale)

    def conjugate(self) -> "Walk":
        return dataclasses.replace(self, steps=tuple(step.conjugate() for step in self.steps))

    def adjoint(self) -> "Walk":
        return self.transpose().conjugate()

    def inverse(self, scale: float) -> "Walk":
        """The walk back; `scale` completes the steps' own inverses."""
        return self._back(tuple(step.invert(layout) for step, layout in self.pairs), scale)

    def _back(self, steps: tuple[Step, ...], scale: float) -> "Walk":
        return Walk(self.end, steps[::-1], scale, self.planes, self.reals[-1])

    def insert(self, dim: int, size: int, cuts: Cuts) -> "Walk":
        start = self.start.insert(dim, size, cuts)
        return dataclasses.replace(self, start=start, steps=tuple(step.insert(dim) for step in self.steps))

    def stages(self) -> tuple["Walk", ...]:
        scales = (*[1.0] * (len(self.steps) - 1), self.scale)
        parts = zip(self.pairs, scales, self.reals[:-1], strict=True)
        return tuple(Walk(at, (step,), by, self.planes, real) for (step, at), by, real in parts)


def fused(start: Layout, steps: tuple[Step, ...], itemsize: int) -> tuple[Step, ...]:
    """The steps, adapted to their neighbours. Exchanges send chunks of one size if possible, and local steps cut blocks
    like the exchange beside them; the compiler then drops each join that the next step cuts again.
    """
    every, sending = list(steps), dict[int, tuple[Chunked, Layout, tuple[int, ...]]]()
    for j, (step, at) in enumerate(Walk(start, steps).pairs):
        if step.chunked and (share := step.chunked.sent(at)) is not None:
            sending[j] = step.chunked, at, share
    for (j, (step, at, _)), shape in zip(sending.items(), _chunks([*sending.values()], itemsize), strict=True):
        every[j] = step.in_chunks(at, shape)
    beside = zip((None, *every), every, (*every[1:], None), strict=False)
    return tuple(step.fuse(before, after) for before, step, after in beside)


def _chunks(sending: Sequence[tuple[Chunked, Layout, tuple[int, ...]]], itemsize: int) -> list[tuple[int, ...]]:
    """Shape that each exchange sends to a device at a time: one for all if that leaves few chunks. Large blocks halve
    it, to compute one half while the other is sent.
    """
    shares = [share for *_, share in sending]
    nbytes = min((math.prod(at.block) for _, at, _ in sending), default=0) * itemsize
    if nbytes < MATCHED_BYTES:
        return shares
    common = tuple(math.gcd(*sizes) for sizes in zip(*shares, strict=True))
    many = max(math.prod(share) * count(step.grids[0]) for step, _, share in sending) // max(math.prod(common), 1)
    matched = many <= MATCHED_CHUNKS
    chunks = [common] * len(shares) if matched else shares
    halves = [dim for dim in range(len(common) - 1) if all(chunk[dim] % 2 == 0 for chunk in chunks)]
    if not halves or nbytes < HALVED_BYTES or (matched and 2 * many > MATCHED_CHUNKS):
        return chunks
    longest = max(reversed(halves), key=lambda dim: min(chunk[dim] for chunk in chunks))
    return [tuple(size // 2 if dim == longest else size for dim, size in enumerate(chunk)) for chunk in chunks]
