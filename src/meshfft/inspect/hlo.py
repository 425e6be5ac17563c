"""What a compiled program really does: its collectives and the compiler's cycles, counted in the text that it prints.

    cycles(step, unit) = sum over what the step executes on the unit of estimated cycles * times

A collective in two halves overlaps what is scheduled between its start and its done. Invariant: what is in a loop
counts once for each turn. Of Pallas kernels the compiler estimates nothing: those of FFTs, which the text knows by
name, are priced by tpu/price.py where a chip is given. The kinds of work follow from opcodes and scopes:

    products     matrix products
    fft          XLA's FFT, whatever the compiler makes of it, and meshfft's own of additions and in kernels; not by
                 products
    permute      a hop of a ring, from its start to its end
    all-to-all   an exchange, from its start to its end
    copies       what only moves numbers: copies, transposes, slices, concatenations, packing of complex numbers
    other        arithmetic in between: phases, sums of products, weights, scales; collectives of other kinds
    idle         no instruction at all
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax

from ..machine.chip import Chip
from ..tpu import price as kernel_price
from ..tpu import wire_price
from .schedule import COLLECTIVES, Executed, Instruction, Program, executed, parse

UNITS = ("matrix", "vector", "copy")
KINDS = ("products", "fft", "permute", "all-to-all", "copies", "other", "idle")
SENT = {"collective-permute": "permute", "all-to-all": "all-to-all"}

FREE = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "call", "conditional"}
_MOVES = {"copy", "bitcast-convert", "transpose", "slice", "concatenate", "pad", "dynamic-slice", "reshape", "reverse"}
_MOVES |= {"dynamic-update-slice", "broadcast", "fusion", "real", "imag", "complex", *FREE}
_ARRAY = re.compile(r"\b([a-z]+\d*)[a-z0-9]*\[([\d,]*)\]")
_STEP = re.compile(r"\bstep(\d+)")
_PACK_CALL = re.compile(r'custom_call_target="X64')
_PRODUCT_CALL = re.compile(r'custom_call_target="[^"]*(?:gemm|matmul|dot)', re.IGNORECASE)
_FFT = re.compile(
    r"(?:^|/)(?:fft|jit\(fft\)|fft_\w+/pallas_call)(?:/|$)"
)  # a scope of ours, JAX's for XLA's, or a kernel
_KERNEL = re.compile(r"/fft_([a-z]+)_(\d+(?:x\d+)*)\w*/pallas_call")  # its kind and lengths
_WIRE = re.compile(r"/wire_(encode|decode)(\d+)_(\d+)/pallas_call")  # the way, bits and rows


class Collective(NamedTuple):
    """A collective as one run executes it on each device, named by the instruction that starts it.

    `bytes` is the size of its result in one execution. It is asynchronous where other instructions may run between its
    start and its done, and `covered` is their estimated cycles; two in flight share theirs.
    """

    name: str
    kind: str
    step: int | None
    times: int
    bytes: int
    asynchronous: bool
    covered: int


class Op(NamedTuple):
    """The step of an instruction, counted from one, 0 before the first; and its kind of work, one of KINDS."""

    step: int
    kind: str


class Kernels(NamedTuple):
    """How many FFT kernels one run executes, and their cycles: bundles of compiled schedules, or memory."""

    times: int
    cycles: int


class Spent(NamedTuple):
    """Estimated cycles of one step of the walk on one unit; step None is what comes before the first."""

    step: int | None
    unit: str
    cycles: int


def collectives(compiled: jax.stages.Compiled) -> dict[str, int]:
    """How many collectives of each kind one run of a compiled program does on each device.

    Raises:
        ValueError: a loop that cannot be followed.
    """
    return counts(every_collective(program_of(compiled)))


def counts(sent: Iterable[Collective]) -> dict[str, int]:
    """How many of each kind."""
    total: collections.Counter[str] = collections.Counter()
    for collective in sent:
        total[collective.kind] += collective.times
    return dict(total)


def program_of(compiled: jax.stages.Compiled, chip: Chip | None = None) -> Program:
    """The text of a compiled program, parsed; for a chip, with a price for each FFT kernel."""
    text = compiled.as_text()
    if not text:
        raise NotImplementedError("the compiled program has no text: this backend keeps none")
    return parse(text) if chip is None else priced(parse(text), chip)


def priced(program: Program, chip: Chip) -> Program:
    """The program with a price for each FFT kernel in it."""
    each = program.computations.items()
    computations = {name: {key: _priced(one, chip) for key, one in body.items()} for name, body in each}
    return program._replace(computations=computations)


def _priced(instruction: Instruction, chip: Chip) -> Instruction:
    if instruction.opcode != "custom-call":
        return instruction
    if found := _WIRE.search(instruction.op_name):
        bits, size = int(found[2]), bytes_of(instruction.type)
        reals = round(size / (wire_price.written(bits) if found[1] == "encode" else wire_price.REAL_BYTES))
        return dataclasses.replace(instruction, price=wire_price.cycles(chip, found[1], bits, int(found[3]), reals))
    if (found := _KERNEL.search(instruction.op_name)) is None:
        return instruction
    kind, lengths = found[1], tuple(map(int, found[2].split("x")))
    points = round(bytes_of(instruction.type) / kernel_price.written(kind, lengths))
    return dataclasses.replace(instruction, price=kernel_price.cycles(chip, kind, lengths, points))


def kernels(program: Program) -> Kernels:
    """The FFT kernels of one run, which are priced."""
    run = [one for one in executed(program) if one.instruction.price is not None]
    return Kernels(sum(one.times for one in run), sum(one.times * (one.instruction.price or 0) for one in run))


def every_collective(program: Program) -> tuple[Collective, ...]:
    """The collectives of one run, in order."""
    run, sent = executed(program), []
    steps = steps_of(program, run)
    for at, (instruction, times) in enumerate(run):
        for kind in sends(program, instruction) if times else ():
            done = _done(run, at)
            between = run[at + 1 : done] if program.scheduled else []
            covered = sum(one.times * (one.instruction.cycles or 0) for one in between) // times
            size = bytes_of(run[done].instruction.type)
            sent.append(Collective(instruction.name, kind, steps[at], times, size, done > at, covered))
    return tuple(sent)


def cycles(program: Program) -> tuple[Spent, ...]:
    """Estimated cycles of one run, by step and unit; collectives have none, and Pallas kernels those of their price."""
    run = executed(program)
    total: collections.Counter[tuple[int | None, str]] = collections.Counter()
    for (instruction, times), step in zip(run, steps_of(program, run), strict=True):
        if instruction.cycles:
            total[step, unit(program, instruction)] += instruction.cycles * times
    order = sorted(total, key=lambda key: (-1 if key[0] is None else key[0], UNITS.index(key[1])))
    return tuple(Spent(*key, total[key]) for key in order)


def ops_of(program: Program) -> dict[str, Op | None]:
    """The step and kind of each instruction of a run, by its name; None for what is no work."""
    run = executed(program)
    ops: dict[str, Op | None] = {}
    for (instruction, _), step in zip(run, steps_of(program, run), strict=True):
        ends = instruction.opcode.endswith(("-update", "-done")) and instruction.operands
        started = ops.get(instruction.operands[0]) if ends else None  # a collective ends as what it started as
        kind = kind_of(program, instruction)
        ops[instruction.name] = started or (None if kind is None else Op(0 if step is None else step + 1, kind))
    return ops


def kind_of(program: Program, instruction: Instruction) -> str | None:
    """One of KINDS; None for what is no work: parameters, tuples, loops.

    A fusion is what it holds: products if one is in it, else fft, else copies if all of it only moves, else other.
    """
    if instruction.opcode in FREE:
        return None
    if sent := sends(program, instruction):
        return SENT.get(sent[0], "other")
    work = _working(program, instruction)
    in_fft = [bool(_FFT.search(part.op_name or instruction.op_name)) for part in work]
    if any(_multiplies(part) and not inside for part, inside in zip(work, in_fft, strict=True)):
        return "products"
    if any(in_fft) or any(part.opcode == "fft" for part in work):
        return "fft"
    return "other" if work else "copies"


def unit(program: Program, instruction: Instruction) -> str:
    """The unit an instruction keeps busy: matrix where a product is in it, copy where it only moves, else vector."""
    work = _working(program, instruction)
    if any(map(_multiplies, work)):
        return "matrix"
    return "vector" if work else "copy"


def _working(program: Program, instruction: Instruction) -> list[Instruction]:
    """What of an instruction, and of all inside it, does more than move numbers. Scalars are indices."""
    parts = [instruction, *program.inside(instruction)]
    names = {part.name: part for part in parts}
    return [part for part in parts if not (_moves(part) or _scalar(part) or _joins(part, names))]


def _multiplies(part: Instruction) -> bool:
    return part.opcode in ("dot", "convolution") or bool(_PRODUCT_CALL.search(part.rest))


def _moves(part: Instruction) -> bool:
    return part.opcode.removesuffix("-start").removesuffix("-done") in _MOVES or bool(_PACK_CALL.search(part.rest))


def _joins(part: Instruction | None, names: Mapping[str, Instruction]) -> bool:
    """True for a concatenation as TPUs write it: the maximum of arrays padded with the least number."""
    if part is None or part.opcode != "maximum":
        return part is not None and part.opcode == "pad"
    return all(_joins(names.get(operand), names) for operand in part.operands)


def _scalar(instruction: Instruction) -> bool:
    return all(not shape for _, shape in _arrays(instruction.type))


def bytes_of(type_text: str) -> int:
    """The size of a type as the text names it, such as `(f32[2,8]{1,0:T(8,128)}, s8[4])`; padding is left out."""
    return sum(bits * math.prod(int(n) for n in shape.split(",") if n) for bits, shape in _arrays(type_text)) // 8


def _arrays(type_text: str) -> Iterator[tuple[int, str]]:
    """Bits of an element and shape of each array in a type; tokens have none."""
    for kind, shape in _ARRAY.findall(type_text):
        digits = kind.lstrip("abcdefghijklmnopqrstuvwxyz")
        yield 8 if kind == "pred" else int(digits or 0), shape


def steps_of(program: Program, run: Sequence[Executed]) -> list[int | None]:
    """The step of each instruction: the one its scopes name, else the one at work before it.

    At work is what has an estimate, in a text without any all that is not free.
    """
    steps: list[int | None] = []
    last, priced = None, any(instruction.cycles is not None for instruction, _ in run)
    for instruction, _ in run:
        named = _STEP.findall(instruction.op_name)
        steps.append(int(named[-1]) if named else last)
        busy = instruction.cycles is not None if priced else instruction.opcode not in FREE
        if busy or sends(program, instruction):
            last = steps[-1]
    return steps


def sends(program: Program, instruction: Instruction) -> list[str]:
    """The collectives an instruction is or starts, or has within it."""
    own = instruction.opcode.removesuffix("-start")
    if own in COLLECTIVES:
        return [own]
    if own in FREE:
        return []
    return [part.opcode for part in program.inside(instruction) if part.opcode in COLLECTIVES]


def _done(run: Sequence[Executed], at: int) -> int:
    """The index where a collective is waited for; its own where it is one instruction."""
    name = run[at].instruction.name
    if not run[at].instruction.opcode.endswith("-start"):
        return at
    for index, (instruction, _) in enumerate(run[at + 1 :], at + 1):
        if name in instruction.operands and instruction.opcode.endswith("-update"):
            name = instruction.name
        elif name in instruction.operands and instruction.opcode.endswith("-done"):
            return index
    raise ValueError(f"collective {name} is started and never waited for")
