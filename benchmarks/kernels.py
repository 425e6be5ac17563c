"""What FFT kernels of a TPU's vector unit cost by their compiled schedules, beside XLA's FFT of the same work.

    python -m benchmarks kernels --topology v5e:2x2 [--lengths 256,512] [--kinds plane] [--by kernel,xla] [--rows FILE]
    python -m benchmarks kernels --table src/meshfft/tpu/kernel_cycles.json [--topology v3:2x2,v5e:2x2]

Nothing runs: the TPU compiler makes each program for one device of a described pod, and cycles are counted in the
schedule that it dumps (measure/bundles.py). All columns are cycles a point, one complex number:

    bundles   VLIW instructions of the kernel, loops times turns
    memory    what it reads and writes over the rate of memory
    beside    what the compiler estimates for copies beside it
    cost      the larger of the first two for each pass, and the third
    XLA       what the compiler estimates for XLA's FFT of as many numbers; of planes the sum of both dimensions. It is
              compiled with --by kernel,xla, up to minutes each, or taken from the rows of FILE where it was
    units     the share of each unit's slots that is used

`--rows` appends a line for each program. `--table` writes what tpu/price.py reads. It needs the extra `tpu`.
"""

import argparse
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.jsonl import append
from benchmarks.made import made_by
from benchmarks.measure.scheduled import schedules
from meshfft.atomic import replacing
from meshfft.machine.chip import CHIPS, Chip
from meshfft.numerics.split_complex import Planes
from meshfft.tpu import engine
from meshfft.tpu.real import half

POINTS = 2**23
LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1000, 1024, 2048, 4096, 8192)
COMPARED = (256, 512, 1000, 1024, 4096, 8192)
KINDS = ("lane", "sublane", "first", "plane", "halflane", "reallane", "halfplane", "realplane")
REAL = {"halflane": "lane", "reallane": "lane", "halfplane": "plane", "realplane": "plane"}  # to half spectra, and back
TOPOLOGIES = ("v2:2x2", "v3:2x2", "v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")
UNITS = ("VALU", "XLU", "VLOAD", "VSTORE")
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", type=_words)
    parser.add_argument("--lengths", type=lambda text: [int(word) for word in _words(text)])
    parser.add_argument("--kinds", type=_words, default=KINDS)
    parser.add_argument("--by", type=_words, default=["kernel"])
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    topologies = given.topology or (TOPOLOGIES if given.table else ("v5e:2x2",))
    lengths, rows = given.lengths or (LENGTHS if given.table else COMPARED), list[Row]()
    for topology in topologies:
        for row in _made(topology, lengths, given.kinds, given.by):
            rows.append(row)
            append(given.rows, [row], ("libtpu",))
        print(_table(topology, rows, _recorded(given.rows)), flush=True)
    if given.table:
        write(given.table, rows)


def _words(text: str) -> list[str]:
    return text.split(",")


def _made(topology: str, lengths: Sequence[int], kinds: Sequence[str], makers: Sequence[str]) -> Iterator[Row]:
    """A row for each kernel, or FFT of XLA's."""
    chip = chip_of(topology)
    for by in makers:
        jobs = [job(by, kind, n, chip) for n in lengths for kind in kinds if by == "kernel" or kind != "plane"]
        for row in schedules("benchmarks.kernels:program", jobs, topology, dump=by == "kernel"):
            yield {"topology": topology, "known": "modelled", **row}


def chip_of(topology: str) -> Chip:
    return CHIPS[topology.partition(":")[0]]


def job(by: str, kind: str, length: int, chip: Chip) -> dict[str, Any]:
    """What `program` is called with: about POINTS numbers in a shape that suits the kind."""
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
    room = int(chip.scratch.value) - engine.RESERVED
    return {"by": by, "kind": kind, "lengths": lengths, "shape": shapes[complex_kind], "room": room}


def program(
    by: str, kind: str, lengths: Sequence[int], shape: Sequence[int], room: int
) -> tuple[Callable[..., Planes], list[Sequence[int]]]:
    """A transform of planes of that shape, by one kernel or by XLA's FFT.

    Raises:
        ValueError: the kernel does not take it in one pass.
    """
    last = len(shape) - 1
    if kind in REAL:
        return _real(by, kind, shape, room)
    dims = {"lane": (last,), "sublane": (last - 1,), "first": (0,), "plane": (last - 1, last)}[kind]
    if by == "xla":
        return functools.partial(_by_xla, dims=dims), [shape] * 2
    if not all(engine.supports(shape, dim, room) for dim in dims):
        if not engine.in_orders(tuple(shape), dims, room):
            raise ValueError(f"no kernel of {lengths}")
        return functools.partial(engine.run_in_orders, dims=dims, sign=-1, room=room), [shape] * 2
    passes = [one.kind for one in engine.passes(shape, dims, room)]
    if passes not in ([kind], ["twisted", "second"], ["subtwisted", "subsecond"]):
        raise ValueError(f"takes {', '.join(passes)}")
    return functools.partial(engine.run, dims=dims, sign=-1, room=room), [shape] * 2


def _real(by: str, kind: str, shape: Sequence[int], room: int) -> tuple[Callable[..., Any], list[Sequence[int]]]:
    """Between real arrays of that shape and half spectra."""
    many, onto = 2 if REAL[kind] == "plane" else 1, kind.startswith("real")
    axes = tuple(range(-many, 0))
    if by == "kernel" and half.job_of(shape, many, -1, room, onto) is None:
        raise ValueError(f"no kernel of {tuple(shape[-many:])}")
    if not onto:
        to_half = functools.partial(half.half_spectrum, many=many, sign=-1, room=room)
        return to_half if by == "kernel" else functools.partial(_half_by_xla, axes=axes), [shape]
    to_real = functools.partial(half.from_half_spectrum, length=shape[-1], many=many, sign=1, room=room)
    by_xla = functools.partial(_real_by_xla, shape=tuple(shape[-many:]), axes=axes)
    return (lambda *x: to_real(x)) if by == "kernel" else by_xla, [(*shape[:-1], shape[-1] // 2 + 1)] * 2


def _half_by_xla(x: jax.Array, axes: Sequence[int]) -> Planes:
    block = jnp.fft.rfftn(x, axes=axes)
    return block.real, block.imag


def _real_by_xla(re: jax.Array, im: jax.Array, shape: Sequence[int], axes: Sequence[int]) -> jax.Array:
    return jnp.fft.irfftn(jax.lax.complex(re, im), shape, axes=axes, norm="forward")


def _by_xla(re: jax.Array, im: jax.Array, dims: Sequence[int]) -> Planes:
    block = jnp.fft.fftn(jax.lax.complex(re, im), axes=tuple(dims))
    return block.real, block.imag


def _recorded(path: Path | None) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def _table(topology: str, rows: Sequence[Row], recorded: Sequence[Row]) -> str:
    """Markdown: a line for each kernel."""
    mine = [row for row in (*recorded, *rows) if row["topology"] == topology]
    xla = {(row["kind"], *row["lengths"]): _each(row, "estimate") for row in mine if row["by"] == "xla" and _good(row)}
    made = {(row["kind"], *row["lengths"]): row for row in rows if row["topology"] == topology and row["by"] != "xla"}
    head = f"| {topology} | bundles | memory | beside | cost | XLA | XLA / cost | units |"
    return "\n".join(
        [head, "|---|---|---|---|---|---|---|---|", *(_line(row, xla, chip_of(topology)) for row in made.values())]
    )


def _line(row: Row, xla: dict[tuple[Any, ...], float], chip: Chip) -> str:
    kind, lengths = row["kind"], tuple(row["lengths"])
    name = f"{kind} {'x'.join(map(str, lengths))}"
    if not _good(row):
        return f"| {name} | {row.get('error', 'turns of a loop are not known')} |"
    cost, beside = _cost(row, chip), _each(row, "estimate")
    whole = xla.get((kind, *lengths))
    parts = ("sublane", "lane") if kind == "plane" else (kind,) * len(lengths)
    known = [xla.get((part, n)) for part, n in zip(parts, lengths, strict=True)] if whole is None else [whole]
    other = sum(one for one in known if one) if all(known) else 0.0
    passes, points = row["passes"], math.prod(row["shape"])
    names = [f"{one['bundles'] / points:.4f}" for one in passes]
    units = " ".join(f"{unit} {max(one['slots'].get(unit, 0) for one in passes):.2f}" for unit in UNITS)
    found = " | ".join([" + ".join(names), f"{sum(_memory(row, chip)):.4f}", f"{beside:.4f}", f"{cost:.4f}"])
    return f"| {name} | {found} | {f'{other:.4f} | {other / cost:.1f}' if other else '- | -'} | {units} |"


def _cost(row: Row, chip: Chip) -> float:
    """Cycles a point: of each pass the larger of bundles and memory, and what is beside them."""
    bundles = [one["bundles"] / math.prod(row["shape"]) for one in row["passes"]]
    return sum(map(max, bundles, _memory(row, chip))) + _each(row, "estimate")


def _memory(row: Row, chip: Chip) -> list[float]:
    """Cycles a point that memory takes for each pass."""
    assert chip.clock is not None
    rate = chip.memory.value / chip.clock.value * math.prod(row["shape"])
    return [one["bytes"] / rate for one in row["passes"]]


def _good(row: Row) -> bool:
    return "error" not in row and not any(one["unknown"] for one in row.get("passes", ()))


def _each(row: Row, what: str) -> float:
    return row[what] / math.prod(row["shape"])


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes bundles a point by chip, kind and lengths, and what made them; what these rows do not have stays."""
    bundles: dict[str, dict[str, dict[str, float]]] = json.loads(path.read_text())["bundles"] if path.exists() else {}
    for row in filter(_good, rows):
        for one in row["passes"]:
            _, kind, lengths = one["name"].partition(".")[0].split("_")  # as they are named: fft_plane_512x512.1
            of = bundles.setdefault(chip_of(row["topology"]).name, {}).setdefault(kind, {})
            of[lengths] = round(one["bundles"] / math.prod(row["shape"]), 5)
    made = {"made_by": "python -m benchmarks kernels --table FILE", "versions": made_by("jaxlib", "libtpu")}
    text = json.dumps({**made, "bundles": bundles}, indent=1)
    with replacing(path, overwrite=True) as temporary:
        temporary.write_text(re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), text) + "\n")


if __name__ == "__main__":
    main()
