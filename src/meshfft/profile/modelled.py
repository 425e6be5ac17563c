"""The same breakdown of a program that was compiled for a TPU which need not be there. Nothing runs.

    seconds of work = the compiler's cycles / clock       sum of cycles = that of `hlo.cycles`
    seconds of a collective = what the device waits for it, by `replay`: the torus model on the compiler's schedule
    wall = their sum

All of it is modelled. There is no idle: the device works, or waits for its links.
"""

from collections import Counter, defaultdict

import jax

from ..inspect.hlo import program_of, unpriced
from ..inspect.replay import cycle_of, waits
from ..inspect.schedule import Program, executed
from ..plans.plan import Plan
from .breakdown import Breakdown, Part, ordered
from .kinds import Op, ops_of

Key = tuple[int | None, str]


def modelled(compiled: jax.stages.Compiled, plan: Plan) -> Breakdown:
    """The breakdown of a plan's program, compiled for the machine that the plan is for.

    Raises:
        ValueError: the plan is for no chip whose clock is known, or a loop turns nobody knows how often.
    """
    return of_program(program_of(compiled), plan)


def of_program(program: Program, plan: Plan) -> Breakdown:
    """The same, of the program's text."""
    cycle, ops = cycle_of(plan), ops_of(program)
    cycles, waited, hidden = _cycles(program, ops), defaultdict[Key, float](float), defaultdict[str, float](float)
    for name, wait in waits(program, plan).items():
        if op := ops[name]:
            waited[op] += wait.waited
            hidden[op.kind] += wait.links - wait.waited
    keys = ordered({key for key in [*cycles, *waited] if cycles[key] or waited[key]})
    parts = tuple(Part(*key, (cycles[key] * cycle + waited[key],), cycles[key]) for key in keys)
    return Breakdown(
        tuple(step.name(layout) for step, layout in plan.walk.pairs),
        parts,
        (0,),
        (sum(part.seconds for part in parts),),
        {kind: seconds for kind, seconds in hidden.items() if seconds > 0},
        "modelled",
        _words(program, plan),
    )


def _cycles(program: Program, ops: dict[str, Op | None]) -> Counter[Key]:
    """The compiler's cycles by step and kind."""
    total: Counter[Key] = Counter()
    for instruction, times in executed(program):
        if instruction.cycles:
            total[ops[instruction.name] or Op(None, "other")] += instruction.cycles * times
    return total


def _words(program: Program, plan: Plan) -> str:
    without = sum(unpriced(program).values())
    left = f", {without} instructions without an estimate left out" if without else ""
    return f"the compiler's cycles for {plan.machine.chip.name}, and the torus model's waits for links{left}"
