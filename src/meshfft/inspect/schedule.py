"""The text of a compiled program: its computations, and the instructions of one run, in order, with their times.

    times(instruction in a loop) = trips of the loop * times(the loop)

A loop's trip count is in the text, or its integers are followed from trip to trip. A loop that cannot be followed
raises if it sends, else counts once.
"""

import functools
import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LONGEST = 2**15  # trips to follow; a ring over the largest pod has fewer

_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\((.*?)\)(?:, (.*)|$)")
_CALLED = re.compile(r"(\w+)=(?:%([\w.\-]+)|\{(%[\w.\-]+(?:, %[\w.\-]+)*)\})")
_BRANCHES = ("branch_computations", "true_computation", "false_computation")
_ROLES = ("body", "condition", "calls", "to_apply", *_BRANCHES)
_RUN = {"while": ("body",), "call": ("to_apply",), "conditional": _BRANCHES}
_SAME = {"copy", "bitcast", "convert", "bitcast-convert", "reshape", "copy-start", "copy-done"}
_BINARY = {"LT": operator.lt, "GT": operator.gt, "LE": operator.le, "GE": operator.ge, "NE": operator.ne}
_BINARY |= {"EQ": operator.eq, "add": operator.add, "subtract": operator.sub, "and": operator.and_, "or": operator.or_}

Value = int | None | tuple["Value", ...]  # None if it does not follow from constants

COLLECTIVES = ("all-to-all", "collective-permute", "all-gather", "all-reduce", "reduce-scatter", "collective-broadcast")


@dataclass(frozen=True)
class Instruction:
    """One line of the text: `name = type opcode(inside), rest`."""

    name: str
    type: str
    opcode: str
    inside: str
    rest: str
    root: bool
    price: int | None = None  # cycles of one execution of a kernel

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        return tuple(re.findall(r"%([\w.\-]+)", self.inside))

    @functools.cached_property
    def calls(self) -> dict[str, tuple[str, ...]]:
        called = ((role, one or many.replace("%", "")) for role, one, many in _CALLED.findall(self.rest))
        return {role: tuple(names.split(", ")) for role, names in called if role in _ROLES}

    @functools.cached_property
    def op_name(self) -> str:
        return self.attribute(r'\bop_name="((?:[^"\\]|\\.)*)"')

    @functools.cached_property
    def cycles(self) -> int | None:
        cycles = self.attribute(r'"estimated_cycles":"(\d+)"')
        return int(cycles) if cycles else self.price

    @property
    def starts(self) -> bool:
        return self.opcode.endswith("-start") or self.opcode == "recv"

    def attribute(self, pattern: str) -> str:
        found = re.search(pattern, self.rest)
        return found[1] if found else ""


Computation = dict[str, Instruction]


class Program(NamedTuple):
    """A program's computations by name, each with its instructions in text order."""

    computations: dict[str, Computation]
    entry: str
    scheduled: bool

    def inside(self, instruction: Instruction) -> Iterator[Instruction]:
        for names in instruction.calls.values():
            for inner in (inner for name in names for inner in self.computations.get(name, {}).values()):
                yield inner
                yield from self.inside(inner)


class Executed(NamedTuple):
    instruction: Instruction
    times: int


class Item(NamedTuple):
    """An instruction; a loop or a call has a body, which runs `trips` times in a row."""

    instruction: Instruction
    trips: int
    body: tuple["Item", ...]


def parse(text: str) -> Program:
    computations: dict[str, Computation] = {}
    name = entry = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[1]
            computations[name] = {}
            entry = name if line.startswith("ENTRY") else entry
        elif name and (found := _LINE.match(line)):
            root, made, kind, opcode, inside, rest = found.groups()
            computations[name][made] = Instruction(made, kind, opcode, inside, rest or "", bool(root))
    if not entry:
        raise ValueError("the text has no ENTRY computation: give that of a compiled program, compiled.as_text()")
    return Program(computations, entry, "is_scheduled=true" in text.partition("\n")[0])


def executed(program: Program) -> list[Executed]:
    return list(_flat(nested(program), 1))


def nested(program: Program) -> tuple[Item, ...]:
    """The instructions of one run, in order, each loop and call with its body, a conditional with all branches.

    A fusion, a reduction or an asynchronous wrapper is one instruction. Raises ValueError for a loop that sends and
    whose trip count depends on data.
    """
    return _items(program, program.computations[program.entry], ())


def _flat(items: tuple[Item, ...], times: int) -> Iterator[Executed]:
    for item in items:
        yield Executed(item.instruction, times)
        yield from _flat(item.body, times * item.trips)


def _items(program: Program, computation: Computation, arguments: Sequence[Value]) -> tuple[Item, ...]:
    values, items = _values(program, computation, arguments), list[Item]()
    for instruction in computation.values():
        trips, inputs = 1, [values.get(name) for name in instruction.operands if instruction.opcode != "conditional"]
        if instruction.opcode == "while":
            trips, *inputs = _loop(program, instruction, inputs[0])[:2]
        called = [name for role in _RUN.get(instruction.opcode, ()) for name in instruction.calls.get(role, ())]
        bodies = (_items(program, program.computations[name], inputs) for name in called)
        items.append(Item(instruction, trips, tuple(itertools.chain(*bodies))))
    return tuple(items)


def _loop(program: Program, loop: Instruction, state: Value) -> tuple[int, Value, Value]:
    """A loop's trip count, unchanged values of its tuple, and its tuple at the end."""
    if known := loop.attribute(r'"known_trip_count":\{"n":"(\d+)"\}'):
        return int(known), None, None
    condition, body = (program.computations[loop.calls[role][0]] for role in ("condition", "body"))
    kept = state
    for trips in range(LONGEST):
        goes_on = _result(program, condition, [state])
        if goes_on is None:
            break
        if not goes_on:
            return trips, kept, state
        if isinstance(kept, tuple) and isinstance(state, tuple):
            kept = tuple(a if a == b else None for a, b in zip(kept, state, strict=True))
        state = _result(program, body, [state])
    if any(inner.opcode.removesuffix("-start") in COLLECTIVES for inner in program.inside(loop)):
        raise ValueError(f"loop {loop.name}: cannot tell its trip count, its condition compares no counter")
    return 1, None, None  # it depends on data, and nothing is sent


def _result(program: Program, computation: Computation, arguments: Sequence[Value]) -> Value:
    root = next(name for name, instruction in computation.items() if instruction.root)
    return _values(program, computation, arguments).get(root)


def _values(program: Program, computation: Computation, arguments: Sequence[Value]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, instruction in computation.items():
        if "[]" in instruction.type:  # a scalar, or a tuple with one
            inputs = [values.get(operand) for operand in instruction.operands]
            values[name] = _value(program, instruction, inputs, arguments)
    return values


def _value(program: Program, instruction: Instruction, inputs: list[Value], arguments: Sequence[Value]) -> Value:
    match instruction.opcode, inputs:
        case "constant", _ if re.fullmatch(r"-?\d+", instruction.inside):
            return int(instruction.inside)
        case "parameter", _ if arguments:
            return arguments[int(instruction.inside)]
        case "tuple", _:
            return tuple(inputs)
        case "get-tuple-element", [tuple(elements)]:
            return elements[int(instruction.attribute(r"\bindex=(\d+)"))]
        case (("fusion" | "call"), _):
            ((name,),) = instruction.calls.values()
            return _result(program, program.computations[name], inputs)
        case "while", [state]:
            return _loop(program, instruction, state)[2]
        case (("add" | "subtract" | "compare" | "and" | "or"), [int(one), int(other)]):
            name = instruction.attribute(r"\bdirection=(\w+)") or instruction.opcode
            return _BINARY[name](one, other) if name in _BINARY else None
        case "select", [int(which), one, other]:  # the carry of a 64-bit counter, a pair of 32 on a TPU
            return one if which else other
        case opcode, [value] if opcode in _SAME:
            return value
    return None
