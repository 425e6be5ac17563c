"""Replay: a compiled program played through in the order it was scheduled, with modelled seconds on every link.

    an instruction takes its estimated cycles / clock
    a collective takes the links from its start, or when they are free, for as long as the torus model says
    its done waits for that; what stands in between hides it
    total = compute + what the device waits for each collective

Nothing runs: cycles are the compiler's, seconds on links the model's, and the total is modelled.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax

from ..machine.work import Move
from ..plans.plan import Plan
from ..steps import Step
from .hlo import Collective, every_collective, program_of
from .schedule import Item, Program, nested


class Timeline(NamedTuple):
    """Modelled seconds of one run.

    Attributes:
        compute: of the device's own work.
        links: of its links.
        total: from begin to end.
        waits: that the device waits for each collective, by the name of its start.
    """

    compute: float
    links: float
    total: float
    waits: dict[str, float]


def timeline(compiled: jax.stages.Compiled, plan: Plan) -> Timeline:
    """Plays a plan's compiled program through.

    Raises:
        ValueError: the plan is for no chip whose clock is known.
    """
    clock, program = plan.machine.chip.clock, program_of(compiled)
    if clock is None:
        raise ValueError(f"the clock of {plan.machine.chip.name} devices is not known: replay plans for TPUs")
    moves = [_moves(step, plan, j) for j, step in enumerate(plan.walk.steps)]
    return play(program, 1 / clock.value, {one.name: _seconds(one, moves, plan) for one in every_collective(program)})


def play(program: Program, cycle: float, lasting: Mapping[str, float]) -> Timeline:
    """Plays a program through: seconds of a cycle, and of the links for each collective by the name of its start."""
    player = _Player(cycle, lasting)
    player.play(nested(program))
    return Timeline(player.compute, player.links, max(player.now, player.free), dict(player.waits))


class _Player:
    """Two clocks: the device's, and the moment its links are free; and how long the first waits for each collective."""

    def __init__(self, cycle: float, lasting: Mapping[str, float]) -> None:
        self.cycle, self.lasting = cycle, lasting
        self.now = self.free = self.compute = self.links = 0.0
        self.arrivals: dict[str, float] = {}
        self.waits: defaultdict[str, float] = defaultdict(float)

    def play(self, items: Iterable[Item]) -> None:
        for item in items:
            self._execute(item)
            if item.turns > 0 and item.body:
                self._turn(item)

    def _execute(self, item: Item) -> None:
        name, opcode = item.instruction.name, item.instruction.opcode
        spent = (item.instruction.cycles or 0) * self.cycle
        self.now, self.compute = self.now + spent, self.compute + spent
        if (seconds := self.lasting.get(name)) is not None:
            self.free, self.links = max(self.free, self.now) + seconds, self.links + seconds
            self.arrivals[name] = self.free
            if not opcode.endswith("-start"):
                self._wait(name)
        elif opcode.endswith("-done"):
            for operand in item.instruction.operands:
                if operand in self.lasting:  # a copy within a device may have a start and a done too
                    self._wait(operand)

    def _wait(self, name: str) -> None:
        """Until a collective that is under way has arrived."""
        later = max(self.now, self.arrivals.pop(name, self.now))
        self.waits[name] += later - self.now
        self.now = later

    def _turn(self, item: Item) -> None:
        """A loop's body twice; what the second turn adds, every later one does."""
        self.play(item.body)
        if item.turns > 1:
            before, waited = (self.now, self.free, self.compute, self.links), dict(self.waits)
            self.play(item.body)
            after = (self.now, self.free, self.compute, self.links)
            more = [(b - a) * (item.turns - 2) for a, b in zip(before, after, strict=True)]
            self.now, self.free, self.compute, self.links = (a + m for a, m in zip(after, more, strict=True))
            for name, seconds in waited.items():
                self.waits[name] += (self.waits[name] - seconds) * (item.turns - 2)


def _moves(step: Step, plan: Plan, place: int) -> dict[str, Move]:
    """The moves of a step, by the kind of collective that makes them."""
    work = step.work(plan.walk.layouts[place], plan.dtype.itemsize, plan.machine.chip)
    return {"all-to-all" if move.kind == "all-to-all" else "collective-permute": move for move in work.moves}


def _seconds(one: Collective, moves: list[dict[str, Move]], plan: Plan) -> float:
    """Modelled seconds of one collective; of a two-way ring's two, half of what they take together."""
    move = moves[one.step or 0][one.kind]
    halves = 2 if move.kind == "two-way ring" else 1
    return plan.machine.move_seconds(move._replace(nbytes=one.bytes, times=1)) / halves
