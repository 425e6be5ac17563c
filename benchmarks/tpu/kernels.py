"""Cost of FFT kernels of a TPU's vector unit by their compiled schedules, in cycles per point, beside XLA's FFT.

    cost = sum over passes of max(bundles, memory) + the estimated copies beside them

Nothing runs. `memory` is bytes over the rate of memory; XLA's FFT is the compiler's estimate, with `--by
kernel,xla`. `--table` writes the file that meshfft/tpu/price.py reads.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from meshfft.atomic import replacing
from meshfft.machine.chip import Chip
from meshfft.machine.chips import CHIPS
from meshfft.numerics.split_complex import Planes
from meshfft.tpu.engines import RESERVED
from meshfft.tpu.fft import in_orders, real_fft, run_in_orders
from meshfft.tpu.lines.short import real_kernel
from meshfft.tpu.passes import passes, run, supports

from ..common import numbers
from ..common import table as print_table
from ..rows import circumstances, kept
from .scheduled import schedules

POINTS = 2**23
LENGTHS = "8,16,32,64,128,256,512,1000,1024,2048,4096,8192"
COMPARED = "256,512,1000,1024,4096,8192"
KINDS = "lane,sublane,first,plane,halflane,reallane,halfplane,realplane"
REAL = {"halflane": "lane", "reallane": "lane", "halfplane": "plane", "realplane": "plane"}  # to half spectra, and back
TOPOLOGIES = "v2:2x2,v3:2x2,v4:2x2x1,v5e:2x2,v5p:2x2x1,v6e:2x2,tpu7x:2x2x1"
UNITS = ("VALU", "XLU", "VLOAD", "VSTORE")
COLUMNS = ("bundles", "memory", "beside", "cost", "XLA", "XLA / cost", "units")
Row = dict[str, Any]
Bundles = dict[str, dict[str, dict[str, float]]]  # by chip, kind and lengths


def main(
    topology: str | None = None,
    lengths: str | None = None,
    kinds: str = KINDS,
    by: str = "kernel",
    table: Path | None = None,
    rows: Path | None = None,
) -> None:
    made = list[Row]()
    for one in (topology or (TOPOLOGIES if table else "v5e:2x2")).split(","):
        many = numbers(lengths or (LENGTHS if table else COMPARED))
        made += kept(rows, compiled(one, many, kinds.split(","), by.split(",")), "libtpu")
        print_table((one, *COLUMNS), lines([row for row in made if row["topology"] == one], made, one))
    if table:
        write(table, made)


def compiled(topology: str, lengths: Sequence[int], kinds: Sequence[str], makers: Sequence[str]) -> Iterator[Row]:
    chip = chip_of(topology)
    for by in makers:
        jobs = [job(by, kind, n, chip) for n in lengths for kind in kinds if by == "kernel" or kind != "plane"]
        for row in schedules("benchmarks.tpu.kernels:program", jobs, topology, dump=by == "kernel"):
            yield {"topology": topology, "known": "modelled", **row}


def chip_of(topology: str) -> Chip:
    return CHIPS[topology.partition(":")[0]]


def job(by: str, kind: str, length: int, chip: Chip) -> dict[str, Any]:
    """Arguments of `program`: about POINTS numbers in a shape that suits the kind."""
    complex_kind = REAL.get(kind, kind)
    lengths = (length, length) if complex_kind == "plane" else (length,)
    many = max(1, POINTS // math.prod(lengths))
    shapes = {
        "lane": (max(1, many // length), min(many, length), length),
        "sublane": (max(1, many // 512), length, 512),
        "first": (length, 8, max(512, many // 8 // 512 * 512)),
        "plane": (many, *lengths),
    }
    assert chip.scratch is not None
    room = int(chip.scratch.value) - RESERVED
    return {"by": by, "kind": kind, "lengths": lengths, "shape": shapes[complex_kind], "room": room}


def program(
    by: str, kind: str, lengths: Sequence[int], shape: Sequence[int], room: int
) -> tuple[Callable[..., Any], list[Sequence[int]]]:
    """A transform of planes of that shape, by one kernel or by XLA's FFT, and the shapes of its arguments."""
    last = len(shape) - 1
    if kind in REAL:
        return _real(by, kind, shape, room)
    dims = {"lane": (last,), "sublane": (last - 1,), "first": (0,), "plane": (last - 1, last)}[kind]
    if by == "xla":
        return partial(by_xla, dims=dims), [shape] * 2
    if not all(supports(shape, dim, room) for dim in dims):
        if not in_orders(tuple(shape), dims, room):
            raise ValueError(f"no kernel of {lengths}")
        return lambda *planes: run_in_orders(planes, dims, -1, room), [shape] * 2
    kinds = [kind for one in passes(shape, dims, room) for kind in one.kinds]
    if kinds not in ([kind], ["twisted", "second"], ["subtwisted", "subsecond"]):
        raise ValueError(f"takes {', '.join(kinds)}")
    return lambda *planes: run(planes, tuple(shape), dims, -1, room), [shape] * 2


def _real(by: str, kind: str, shape: Sequence[int], room: int) -> tuple[Callable[..., Any], list[Sequence[int]]]:
    """Between real arrays of that shape and half spectra."""
    many, onto = 2 if REAL[kind] == "plane" else 1, kind.startswith("real")
    axes = tuple(range(-many, 0))
    if by == "kernel" and real_kernel(shape, many, -1, room, onto) is None:
        raise ValueError(f"no kernel of {tuple(shape[-many:])}")
    if not onto:
        to_half = partial(real_fft, many=many, length=shape[-1], sign=-1, room=room, onto_real=False)
        return (lambda *x: to_half(x)) if by == "kernel" else lambda x: _planes(jnp.fft.rfftn(x, axes=axes)), [shape]
    to_real = partial(real_fft, many=many, length=shape[-1], sign=1, room=room, onto_real=True)

    def real_by_xla(re: jax.Array, im: jax.Array) -> jax.Array:
        return jnp.fft.irfftn(jax.lax.complex(re, im), tuple(shape[-many:]), axes=axes, norm="forward")

    return (lambda *x: to_real(x)[0]) if by == "kernel" else real_by_xla, [(*shape[:-1], shape[-1] // 2 + 1)] * 2


def by_xla(re: jax.Array, im: jax.Array, dims: Sequence[int]) -> Planes:
    return _planes(jnp.fft.fftn(jax.lax.complex(re, im), axes=tuple(dims)))


def _planes(block: jax.Array) -> Planes:
    return block.real, block.imag


def lines(recorded: Sequence[Row], rows: Sequence[Row], topology: str) -> Iterator[list[str]]:
    xla = {(row["kind"], *row["lengths"]): _each(row) for row in recorded if row["by"] == "xla" and _good(row)}
    for row in rows:
        if row["topology"] == topology and row["by"] != "xla":
            name = f"{row['kind']} {'x'.join(map(str, row['lengths']))}"
            reason = row.get("error", "turns of a loop are not known")
            yield [name, *(_cells(row, xla, chip_of(topology)) if _good(row) else [reason])]


def _cells(row: Row, xla: dict[tuple[Any, ...], float], chip: Chip) -> list[str]:
    kind, lengths, passes = row["kind"], tuple(row["lengths"]), row["passes"]
    bundles = [one["bundles"] / math.prod(row["shape"]) for one in passes]
    memory, beside = _memory(row, chip), _each(row)
    cost = sum(map(max, bundles, memory)) + beside
    parts = [("sublane", lengths[0]), ("lane", lengths[1])] if kind == "plane" else []
    known = [xla.get(part) for part in parts] if parts and (kind, *lengths) not in xla else [xla.get((kind, *lengths))]
    other = sum(one for one in known if one) if all(known) else 0.0
    units = " ".join(f"{unit} {max(one['slots'].get(unit, 0) for one in passes):.2f}" for unit in UNITS)
    names = " + ".join(f"{one:.4f}" for one in bundles)
    beyond = [f"{other:.4f}", f"{other / cost:.1f}"] if other else ["-", "-"]
    return [names, f"{sum(memory):.4f}", f"{beside:.4f}", f"{cost:.4f}", *beyond, units]


def _memory(row: Row, chip: Chip) -> list[float]:
    assert chip.clock is not None
    rate = chip.memory.value / chip.clock.value * math.prod(row["shape"])
    return [one["bytes"] / rate for one in row["passes"]]


def _good(row: Row) -> bool:
    return "error" not in row and not any(one["unknown"] for one in row.get("passes", ()))


def _each(row: Row) -> float:
    return float(row["estimate"]) / math.prod(row["shape"])


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes bundles a point by chip, kind and lengths; what these rows do not have stays."""
    bundles: Bundles = json.loads(path.read_text())["bundles"] if path.exists() else {}
    for row in filter(_good, rows):
        for one in row["passes"]:
            _, kind, lengths = one["name"].partition(".")[0].split("_")  # as they are named: fft_plane_512x512.1
            of = bundles.setdefault(chip_of(row["topology"]).name, {}).setdefault(kind, {})
            of[lengths] = round(one["bundles"] / math.prod(row["shape"]), 5)
    write_table(path, bundles, "kernels")


def write_table(path: Path, bundles: Bundles, command: str) -> None:
    """Writes a table of the package: bundles, and what made them, the innermost objects in a line each."""
    facts = circumstances("libtpu")
    kept = {name: facts["versions"][name] for name in ("meshfft", "jax", "jaxlib", "libtpu")}
    made = {"made_by": f"python -m benchmarks {command} --table FILE", "versions": {**kept, "commit": facts["commit"]}}
    text = json.dumps({**made, "bundles": bundles}, indent=1)
    with replacing(path, overwrite=True) as temporary:
        temporary.write_text(re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), text) + "\n")
