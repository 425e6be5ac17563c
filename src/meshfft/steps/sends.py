"""Steps that send: over one wire, or through their own steps, in chunks."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import ParamSpec, Self, TypeVar, cast

import jax
from jax import Array

from ..collectives.levels import Wires
from ..collectives.wires import EXACT, Coded, Tiled, Wire, form_of
from ..collectives.words import WORD
from ..layout.layout import Layout, shift
from ..machine.chip import LANES, Chip, rounded_up
from ..machine.machine import Machine
from ..numerics.dtypes import Error
from ..numerics.split_complex import Block, in_complex
from .base import Sends, Step, reached

FLAT_OPERATIONS = 2.5  # times the operations in tiles, as numbers move there and back; fitted to TPU v5e
P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Wired(Sends):
    """A step over one wire; a lossy wire sends both planes in one message."""

    wire: Wire = dataclasses.field(default=EXACT, kw_only=True)

    def wired(self, wires: Wires) -> Self:
        return self if wires.outer == self.wire else dataclasses.replace(self, wire=wires.outer)

    def joint(self, layout: Layout) -> bool:
        return self.lossy

    @property
    def wires(self) -> tuple[Wire, ...]:
        return (self.wire,)

    @property
    def lossy(self) -> bool:
        return self.wire.lossy

    def passages(self, layout: Layout) -> float:
        """The norm of all losses over that of one passage."""
        return 1

    def lost(self, layout: Layout) -> float:
        return self.wire.error * self.passages(layout)

    def error(self, layout: Layout, itemsize: int) -> Error:
        return Error(lost=self.lost(layout))

    def message_bytes(self, share: Sequence[int], itemsize: int) -> int:
        return self.wire.nbytes(share, itemsize)

    def coding(self, shape: Sequence[int], itemsize: int, codes: int, chip: Chip) -> tuple[int, int]:
        """Operations and bytes to encode or decode a block `codes` times by XLA; one pass on CPUs and GPUs."""
        if not chip.planes:
            return 0, sum(one.lossy for one in self.wires) * codes * math.prod(shape) * itemsize
        numbers = math.prod(shape) * (itemsize // WORD)
        waste = rounded_up(shape[-1], LANES) / max(shape[-1], 1)
        each = (one.operations * (FLAT_OPERATIONS if one.flattens(shape) else waste) for one in self.wires)
        return round(sum(each) * codes * numbers), 0

    def tiles(self, share: Sequence[int]) -> Tiled | None:
        """The form of both planes of such shares in kernels."""
        form = form_of((2, *share), 1, self.wire) if isinstance(self.wire, Coded) else None
        return form if isinstance(form, Tiled) else None

    def over_wire(self, send: Callable[P, T]) -> Callable[P, T]:
        taking: Callable[..., T] = send
        return cast(Callable[P, T], functools.partial(taking, wire=self.wire))

    def on_arrays(self, function: Callable[[Array], Array], block: Block) -> Block:
        """Applies a sending function to each array, or to both planes as one complex array if they share a message."""
        return in_complex(function, block) if self.lossy else jax.tree.map(function, block)


@dataclasses.dataclass(frozen=True)
class InChunks(Sends):
    """Steps in sequence, one chunk of dimension `dim` at a time; none transforms `dim`. Abstract."""

    steps: tuple[Step, ...]
    dim: int  # cut into chunks
    chunks: int

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(d for step in self.steps for d in step.dims)

    def pairs(self, layout: Layout) -> tuple[tuple[Step, Layout], ...]:
        return tuple(zip(self.steps, reached(layout, self.steps), strict=False))

    def error(self, layout: Layout, itemsize: int) -> Error:
        return Error.of_all(step.error(at, itemsize) for step, at in self.pairs(layout))

    def wired(self, wires: Wires) -> Self:
        steps = tuple(step.sends.wired(wires) if step.sends else step for step in self.steps)
        return self if steps == self.steps else dataclasses.replace(self, steps=steps)

    def transpose(self, layout: Layout) -> Self:
        return dataclasses.replace(self, steps=tuple(step.transpose(at) for step, at in self.pairs(layout))[::-1])

    def conjugate(self) -> Self:
        return dataclasses.replace(self, steps=tuple(step.conjugate() for step in self.steps))

    def invert(self, layout: Layout) -> Self:
        return dataclasses.replace(self, steps=tuple(step.invert(at) for step, at in self.pairs(layout))[::-1])

    def insert(self, dim: int) -> Self:
        return dataclasses.replace(self, steps=tuple(step.insert(dim) for step in self.steps), dim=shift(self.dim, dim))


def wired(step: Step, layout: Layout, machine: Machine, wires: Wires) -> Step:
    """The step over the outer wire if a message leaves a domain, except in an inner stage."""
    differ = step.sends and wires.inner != wires.outer
    if differ and not any(map(machine.leaves, step.work(layout, 8, machine.chip).moves)):
        wires = Wires(wires.inner, wires.inner)
    return step.sends.wired(wires) if step.sends else step


def hops(parts: int, sums: bool) -> float:
    """Loss on a ring, in passages: 1 for blocks; for sums, sqrt(t) at hop t, the norm of t blocks."""
    return sum(map(math.sqrt, range(1, parts))) if sums else parts > 1
