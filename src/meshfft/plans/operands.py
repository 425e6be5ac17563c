"""Operands: what the steps of a walk take besides the array, made from what the caller gave, and stored as they ask."""

import dataclasses
from typing import Any

from ..operators.operands import operand_of
from ..walks.walk import Walk

OWN_SPLIT = ("cpu",)  # platforms whose products of bfloat16 terms are made here


def furnish(walk: Walk, sources: tuple[Any, ...], platform: str | None, real: Any) -> tuple[Walk, tuple[Any, ...]]:
    """The walk with tables for matrices where they pay, and its operands by slot."""
    operands, steps = [operand_of(source, real) for source in sources], []
    for step in walk.steps:
        if platform in OWN_SPLIT and (found := step.tabled(sources, len(operands))) is not None:
            step, table = found
            operands.append(table)
        steps.append(step)
    return dataclasses.replace(walk, steps=tuple(steps)), tuple(operands)


def differentiable(walk: Walk) -> bool:
    """True where samples are traced."""
    return not all(step.linear for step in walk.steps)


def stored(walk: Walk, operands: tuple[Any, ...], mapped: frozenset[str] = frozenset()) -> tuple[Any, ...]:
    """The operands as the steps of a walk take them, by slot; none for steps of other walks."""
    found: list[Any] = [None] * len(operands)
    for step, layout in walk.pairs:
        if step.slot is not None:
            found[step.slot] = step.operand(operands[step.slot], layout, mapped)
    return tuple(found)
