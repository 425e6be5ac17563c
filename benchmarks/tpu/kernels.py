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
from ..rows import Values, circumstances, kept
from .scheduled import schedules

POINTS = 2**23
LENGTHS = "8,16,32,64,128,256,512,1000,1024,2048,4096,8192"
COMPARED = "256,512,1000,1024,4096,8192"
KINDS = "lane,sublane,first,plane,halflane,reallane,halfplane,realplane"
REAL = {"halflane": "lane", "reallane": "lane", "halfplane": "plane", "realplane": "plane"}  # to half spectra, and back
TOPOLOGIES = "v2:2x2,v3:2x2,v4:2x2x1,v5e:2x2,v5p:2x2x1,v6e:2x2,tpu7x:2x2x1"
COLUMNS = ("bundles", "memory", "beside", "cost", "XLA", "XLA / cost")
Bundles = dict[str, dict[str, dict[str, float]]]  # by chip, kind and lengths


def main(
    topology: str | None = None,
    lengths: str | None = None,
    kinds: str = KINDS,
    by: str = "kernel",
    table: Path | None = None,
    rows: Path | None = None,
) -> None:
    made = list[Values]()
    for one in (topology or (TOPOLOGIES if table else "v5e:2x2")).split(","):
        many = numbers(lengths or (LENGTHS if table else COMPARED))
        made += kept(rows, compiled(one, many, kinds.split(","), by.split(",")), "libtpu")
        print_table((one, *COLUMNS), lines([row for row in made if row["topology"] == one]))
    if table:
        write(table, made)


def compiled(topology: str, lengths: Sequence[int], kinds: Sequence[str], makers: Sequence[str]) -> Iterator[Values]:
    chip = chip_of(topology)
    for by in makers:
        some = kinds if by == "kernel" else [kind for kind in kinds if kind not in ("plane", *REAL)]
        jobs = [job(by, kind, n, chip) for n in lengths for kind in some]
        for row in schedules("benchmarks.tpu.kernels:program", jobs, topology, dump=by == "kernel"):
            yield {"topology": topology, "known": "modelled", **row}


def chip_of(topology: str) -> Chip:
    return CHIPS[topology.partition(":")[0]]


def job(by: str, kind: str, length: int, chip: Chip) -> Values:
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
    if kind in REAL:
        return _real(kind, shape, room)
    dims = {"lane": (2,), "sublane": (1,), "first": (0,), "plane": (1, 2)}[kind]
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


def _real(kind: str, shape: Sequence[int], room: int) -> tuple[Callable[..., Any], list[Sequence[int]]]:
    many, onto = 2 if REAL[kind] == "plane" else 1, kind.startswith("real")
    if real_kernel(shape, many, -1, room, onto) is None:
        raise ValueError(f"no kernel of {tuple(shape[-many:])}")
    run = partial(real_fft, many=many, length=shape[-1], sign=1 if onto else -1, room=room, onto_real=onto)
    half = (*shape[:-1], shape[-1] // 2 + 1)
    return (lambda re, im: run((re, im))[0], [half] * 2) if onto else (lambda x: run((x,)), [shape])


def by_xla(re: jax.Array, im: jax.Array, dims: Sequence[int]) -> Planes:
    block = jnp.fft.fftn(jax.lax.complex(re, im), axes=tuple(dims))
    return block.real, block.imag


def lines(rows: Sequence[Values]) -> Iterator[list[str]]:
    """A line for each kernel of one chip, beside XLA's complex FFT; a plane beside a sublane and a lane."""
    xla = {(row["kind"], *row["lengths"]): _each(row) for row in rows if row["by"] == "xla" and _good(row)}
    for row in (row for row in rows if row["by"] != "xla"):
        kind, lengths = row["kind"], row["lengths"]
        parts = [("sublane", lengths[0]), ("lane", lengths[1])] if kind == "plane" else [(kind, *lengths)]
        other = sum(xla[part] for part in parts) if all(part in xla for part in parts) else None
        reason = row.get("error", "turns of a loop are not known")
        yield [f"{kind} {'x'.join(map(str, lengths))}", *(_cells(row, other) if _good(row) else [reason])]


def _cells(row: Values, other: float | None) -> list[str]:
    chip, points, passes = chip_of(row["topology"]), math.prod(row["shape"]), row["passes"]
    assert chip.clock is not None
    bundles = [one["bundles"] / points for one in passes]
    memory = [one["bytes"] * chip.clock.value / chip.memory.value / points for one in passes]
    beside = _each(row)
    cost = sum(map(max, bundles, memory)) + beside
    names = " + ".join(f"{one:.4f}" for one in bundles)
    beyond = ["-", "-"] if other is None else [f"{other:.4f}", f"{other / cost:.1f}"]
    return [names, f"{sum(memory):.4f}", f"{beside:.4f}", f"{cost:.4f}", *beyond]


def _good(row: Values) -> bool:
    return "error" not in row and not any(one["unknown"] for one in row.get("passes", ()))


def _each(row: Values) -> float:
    return float(row["estimate"]) / math.prod(row["shape"])


def write(path: Path, rows: Sequence[Values]) -> None:
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
