"""The text of a compiled program: its computations, and what one run executes, in order, how many times.

    times(instruction in a loop) = turns of the loop * times(the loop)

A loop's turns stand on the loop where the compiler wrote them down, and else follow from its condition: one element of
the loop's tuple, counted by a constant in the body, compared with a limit that is a constant, maybe handed in through
the tuples of the loops around. Invariant: a loop whose turns cannot be told raises; none is silently counted once.
"""

import dataclasses
import functools
import operator
import re
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z0-9\-]*)\((.*?)\)(?:, (.*)|$)")
_CALLED = re.compile(r"(\w+)=(?:%([\w.\-]+)|\{(%[\w.\-]+(?:, %[\w.\-]+)*)\})")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_BRANCHES = ("branch_computations", "true_computation", "false_computation")
_ROLES = ("body", "condition", "calls", "to_apply", *_BRANCHES)
_RUN = {"while": ("body",), "call": ("to_apply",), "conditional": _BRANCHES}
_HANDED = ("copy", "bitcast", "convert", "reshape", "copy-start", "copy-done")
_PASSES = {"LT": operator.lt, "GT": operator.gt, "LE": operator.le, "GE": operator.ge, "NE": operator.ne}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of the text: `name = type opcode(inside), rest`."""

    name: str
    type: str
    opcode: str
    inside: str
    rest: str
    root: bool

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of its operands."""
        return tuple(re.findall(r"%([\w.\-]+)", self.inside))

    @functools.cached_property
    def calls(self) -> dict[str, tuple[str, ...]]:
        """The computations it calls, by role: body, condition, calls, to_apply, ..."""
        found = ((role, one or many.replace("%", "")) for role, one, many in _CALLED.findall(self.rest))
        return {role: tuple(names.split(", ")) for role, names in found if role in _ROLES}

    @property
    def op_name(self) -> str:
        """The scopes of the Python that asked for it; empty where the compiler made it up."""
        return found[1] if (found := _OP_NAME.search(self.rest)) else ""

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate of one execution; None where it gives none."""
        return int(found[1]) if (found := _CYCLES.search(self.rest)) else None

    @property
    def trips(self) -> int | None:
        """The turns of a loop, where the compiler wrote them down."""
        return int(found[1]) if (found := _TRIPS.search(self.rest)) else None

    def attribute(self, name: str) -> str:
        """A plain attribute, such as `direction` of a compare; empty where it has none."""
        return found[1] if (found := re.search(rf"\b{name}=(\w+)", self.rest)) else ""


Computation = dict[str, Instruction]


class Program(NamedTuple):
    """The computations of a compiled program by name, each with its instructions by name in the order of the text."""

    computations: dict[str, Computation]
    entry: str
    scheduled: bool

    def inside(self, instruction: Instruction) -> Iterator[Instruction]:
        """What the computations hold that an instruction calls, and those that they call."""
        for name in _called(instruction):
            for inner in self.computations.get(name, {}).values():
                yield inner
                yield from self.inside(inner)


class Executed(NamedTuple):
    """An instruction, and how many times one run executes it."""

    instruction: Instruction
    times: int


class Item(NamedTuple):
    """An instruction, and where it is a loop or a call, what it runs, and how often in a row."""

    instruction: Instruction
    turns: int
    body: tuple["Item", ...]


class _Scope(NamedTuple):
    """A computation, and where known the instruction that calls it and the scope that one stands in."""

    computation: Computation
    caller: "_Scope | None" = None
    at: Instruction | None = None


class _Source(NamedTuple):
    """Where a value comes from: an instruction, and the path to the value within its tuple."""

    scope: _Scope
    instruction: Instruction
    path: tuple[int, ...] = ()

    @property
    def constant(self) -> int | None:
        whole = self.instruction.opcode == "constant" and re.fullmatch(r"-?\d+", self.instruction.inside)
        return int(self.instruction.inside) if whole else None


def parse(text: str) -> Program:
    """The computations and instructions in the text of a compiled program."""
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
    """What one run executes, in order: each loop's body once in the list, with the times it runs.

    Loops and calls stand before what they run. A conditional counts with all its branches, an upper bound; what is
    inside a fusion, a reduction or an asynchronous wrapper is part of it (see `Program.inside`); loops' conditions are
    left out.

    Raises:
        ValueError: a loop of which it cannot be told how often it turns.
    """
    return list(_flat(nested(program), 1))


def nested(program: Program) -> tuple[Item, ...]:
    """What one run executes, in order, each loop and call with its body; as `executed` in all else."""
    return _nested(program, _Scope(program.computations[program.entry]))


def _flat(items: tuple[Item, ...], times: int) -> Iterator[Executed]:
    for item in items:
        yield Executed(item.instruction, times)
        yield from _flat(item.body, times * item.turns)


def _nested(program: Program, scope: _Scope) -> tuple[Item, ...]:
    return tuple(_item(program, scope, instruction) for instruction in scope.computation.values())


def _item(program: Program, scope: _Scope, instruction: Instruction) -> Item:
    called = [name for role in _RUN.get(instruction.opcode, ()) for name in instruction.calls.get(role, ())]
    inner = (_Scope(program.computations[name], scope, instruction) for name in called)
    turns = _turns(program, scope, instruction) if instruction.opcode == "while" else 1
    return Item(instruction, turns, tuple(item for one in inner for item in _nested(program, one)))


def _turns(program: Program, scope: _Scope, loop: Instruction) -> int:
    """How often a loop turns."""
    if loop.trips is not None:
        return loop.trips
    turns = _counted(program, scope, loop)
    if turns is None:
        raise ValueError(f"loop {loop.name}: cannot tell how often it turns, its condition compares no counter")
    return turns or 0


def _counted(program: Program, scope: _Scope, loop: Instruction) -> int | None:
    """The turns of a loop whose condition compares a counter with a constant."""
    condition = _Scope(program.computations[loop.calls["condition"][0]], scope, loop)
    test = _source(program, condition, _root(condition))
    if test.instruction.opcode != "compare":
        return None
    one, other = (_source(program, test.scope, name) for name in test.instruction.operands)
    direction = test.instruction.attribute("direction")
    if one.constant is not None:
        one, other, direction = other, one, _MIRRORED.get(direction, "")
    if (
        direction not in _PASSES
        or one.instruction.opcode != "parameter"
        or one.scope.at is not loop
        or other.constant is None
    ):
        return None
    first = _source(program, scope, loop.operands[0], one.path).constant
    step = _step(program, scope, loop, one.path)
    return None if first is None or not step else _length(first, other.constant, step, direction)


def _length(first: int, limit: int, step: int, direction: str) -> int | None:
    """How many of first, first + step, ... pass the test; None where all would."""
    if not _PASSES[direction](first, limit):
        return 0
    if direction == "NE":
        turns, beside = divmod(limit - first, step)
        return turns if turns > 0 and not beside else None
    ends = (step > 0) == (direction in ("LT", "LE"))
    return len(range(first, limit + (direction == "LE") - (direction == "GE"), step)) if ends else None


def _step(program: Program, scope: _Scope, loop: Instruction, path: tuple[int, ...]) -> int | None:
    """What the body adds to an element of the loop's tuple, where that is a constant."""
    body = _Scope(program.computations[loop.calls["body"][0]], scope, loop)
    made = _source(program, body, _root(body), path)
    if made.instruction.opcode not in ("add", "subtract"):
        return None
    one, other = (_source(program, made.scope, name) for name in made.instruction.operands)
    if one.constant is not None and made.instruction.opcode == "add":
        one, other = other, one
    if other.constant is None or one.instruction.opcode != "parameter" or (one.scope.at, one.path) != (loop, path):
        return None
    return other.constant if made.instruction.opcode == "add" else -other.constant


def _source(program: Program, scope: _Scope, name: str, path: tuple[int, ...] = ()) -> _Source:
    """Where a value comes from, through copies, tuples, calls and loops that hand it on unchanged."""
    instruction = scope.computation[name]
    match instruction.opcode:
        case "get-tuple-element":
            index = int(instruction.attribute("index"))
            return _source(program, scope, instruction.operands[0], (index, *path))
        case "tuple" if path:
            return _source(program, scope, instruction.operands[path[0]], path[1:])
        case "parameter" if scope.caller and scope.at and _kept(program, scope.at, path):
            return _source(program, scope.caller, scope.at.operands[int(instruction.inside)], path)
        case "while" if _kept(program, instruction, path):
            return _source(program, scope, instruction.operands[0], path)
        case "fusion" | "call":
            inner = _Scope(program.computations[_called(instruction)[0]], scope, instruction)
            return _source(program, inner, _root(inner), path)
        case opcode if opcode in _HANDED:
            return _source(program, scope, instruction.operands[0], path)
    return _Source(scope, instruction, path)


def _kept(program: Program, loop: Instruction, path: tuple[int, ...]) -> bool:
    """True where the body of a loop hands an element of its tuple on as it came, and for what is no loop."""
    if loop.opcode != "while":
        return True
    body = _Scope(program.computations[loop.calls["body"][0]])
    found = _source(program, body, _root(body), path)
    return found.instruction.opcode == "parameter" and found.path == path


def _root(scope: _Scope) -> str:
    return next(name for name, instruction in scope.computation.items() if instruction.root)


def _called(instruction: Instruction) -> list[str]:
    return [name for names in instruction.calls.values() for name in names]
