"""A walk: steps through layouts, from the array as it came to the array as it is wanted.

The reversed walk of transposed steps is the transposed matrix, of conjugate transposed steps the adjoint; the inverse
is the adjoint with another scale. Nothing here knows how a walk was found (see search) or how JAX differentiates it
(see plans.primitive).
"""

import dataclasses
import functools
import itertools
import math
from typing import Any

import jax

from ..collectives.all_to_all import halfway
from ..layout.layout import Cuts, Layout, hashed_once
from ..machine.chip import GENERIC, Chip, CompilerOptions
from ..machine.work import Work, total
from ..numerics.split_complex import Block, in_planes
from ..steps import Step, turned
from ..steps.base import Held

FINEST = 8  # how many times smaller than those that are kept chunks may be; small ones find a place more often


@hashed_once
@dataclasses.dataclass(frozen=True)
class Walk:
    """Steps taken from a layout, and one factor for the whole.

    Attributes:
        start: the layout the array comes in.
        steps: the steps, first to last.
        scale: the result is multiplied by this.
        planes: every step works on planes, so that a complex array is taken apart once and joined once.
        real: the array it starts from is real.
    """

    start: Layout
    steps: tuple[Step, ...]
    scale: float = 1.0
    planes: bool = False
    real: bool = False

    @functools.cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The layout before each step, and the last one left."""
        return tuple(itertools.accumulate(self.steps, lambda layout, step: step.after(layout), initial=self.start))

    @property
    def pairs(self) -> tuple[tuple[Step, Layout], ...]:
        """Each step with the layout it starts from."""
        return tuple(zip(self.steps, self.layouts[:-1], strict=True))

    @property
    def end(self) -> Layout:
        """The layout the result is in."""
        return self.layouts[-1]

    @functools.cached_property
    def reals(self) -> tuple[bool, ...]:
        """Whether the array is real before each step, and at the end."""
        sizes = itertools.accumulate(self.steps, turned, initial=1 if self.real else 2)
        return tuple(size == 1 for size in sizes)

    def works(self, itemsize: int, chip: Chip) -> tuple[Work, ...]:
        """What each step costs one device; a complex number has `itemsize` bytes, a real one half as many."""
        sizes = (itemsize // 2 if real else itemsize for real in self.reals)
        return tuple(step.work(layout, size, chip) for (step, layout), size in zip(self.pairs, sizes, strict=False))

    def work(self, itemsize: int, chip: Chip) -> Work:
        """What the whole walk costs one device."""
        return total(self.works(itemsize, chip))

    def compiler_options(self, itemsize: int, chip: Chip, whole: bool = True, beside: int = 0) -> CompilerOptions:
        """Those of the chip; where its host keeps all that lies between the steps, memory in chunks of that size.

        The compiler warns of every array that is larger than a chunk. `whole` says that one complex array of the type
        that is computed in comes and goes, piece by piece: planes, another type or arithmetic before or behind take a
        block. `beside` are the bytes of the largest array that such arithmetic makes besides.
        """
        if not self._largest:
            return chip.options
        lines = max(step.scratch(itemsize) for step in self.steps)
        nbytes = max(((whole and self._pieces) or self._largest) * itemsize, lines, beside)
        chunks = (("xla_multiheap_size_constraint_per_heap", str(max(nbytes, chip.chunk // FINEST))),)
        return chip.options + (chunks if nbytes <= chip.chunk else ())

    @functools.cached_property
    def _held(self) -> tuple[Held, ...]:
        """The arrays that each step makes; none where one makes larger ones, or all can be done in place."""
        held = [step.held(layout) for step, layout in self.pairs]
        known = tuple(one for one in held if one is not None)
        sends_and_computes = len({len(step.dims) > 0 for step in self.steps}) == 2
        return known if len(known) == len(held) and sends_and_computes else ()

    @property
    def _largest(self) -> int:
        """Numbers in the largest block; 0 where that is not known."""
        return max((one.largest for one in self._held), default=0)

    @property
    def _pieces(self) -> int:
        """Numbers in the largest array between the first block and the last; 0 where it may be another block."""
        shapes = {one.piece for one in self._held}
        if len(shapes) != 1 or self.start.block in shapes:
            return 0
        return math.prod(*shapes) * halfway(self.steps[-1].joined, self.end.ndim)

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives one run does, each hop of a ring counted."""
        counts = {"all-to-all": 0, "collective-permute": 0}
        for step, real, work in zip(self.steps, self.reals, self.works(2, GENERIC), strict=False):
            apart = 2 if (self.planes or step.planar) and not real else 1
            counts["all-to-all"] += apart * work.all_to_alls
            counts["collective-permute"] += apart * work.hops
        return {name: count for name, count in counts.items() if count}

    def error(self, itemsize: int) -> float:
        """The relative L2 error to expect, of steps whose errors are independent."""
        return math.hypot(*(step.error(itemsize) for step in self.steps))

    @property
    def planar(self) -> bool:
        """True where a complex array is taken apart before the first step: the machine wants it, or every step does."""
        return len(self.steps) > 0 and (self.planes or all(step.planar for step in self.steps))

    def apply(self, block: Block, *operands: Any) -> Block:
        """One device's block, from the first layout to the last; `operands` are the steps', by slot."""
        apply = functools.partial(self._apply, operands=operands)
        return in_planes(apply, block) if self.planar else apply(block)

    def _apply(self, block: Any, operands: tuple[Any, ...]) -> Any:
        for j, (step, layout) in enumerate(self.pairs):
            with jax.named_scope(f"step{j}_{type(step).__name__}"):
                block = step.apply(block, layout, None if step.slot is None else operands[step.slot])
        return block if self.scale == 1 else jax.tree.map(lambda part: part * self.scale, block)

    def transpose(self) -> "Walk":
        """The walk back by the transposed matrix."""
        steps = tuple(step.transpose(layout) for step, layout in self.pairs)
        return Walk(self.end, steps[::-1], self.scale, self.planes, self.reals[-1])

    def conjugate(self) -> "Walk":
        """The walk by the conjugate matrix."""
        return dataclasses.replace(self, steps=tuple(step.conjugate() for step in self.steps))

    def adjoint(self) -> "Walk":
        """The walk back by the adjoint matrix."""
        return self.transpose().conjugate()

    def inverse(self, scale: float) -> "Walk":
        """The walk back by the inverse matrix, which the steps' own leave to be scaled."""
        steps = tuple(step.invert(layout) for step, layout in self.pairs)
        return Walk(self.end, steps[::-1], scale, self.planes, self.reals[-1])

    def insert(self, dim: int, size: int, cuts: Cuts) -> "Walk":
        """The walk of an array with one more dimension before `dim`, which stays as it is."""
        start = self.start.insert(dim, size, cuts)
        return Walk(start, tuple(step.insert(dim) for step in self.steps), self.scale, self.planes, self.real)

    def stages(self) -> tuple["Walk", ...]:
        """A walk for each step, which one after the other do the same."""
        last = len(self.steps) - 1
        scales = [1.0] * last + [self.scale]
        parts = zip(self.pairs, scales, self.reals[:-1], strict=True)
        return tuple(Walk(at, (step,), by, self.planes, real) for (step, at), by, real in parts)
