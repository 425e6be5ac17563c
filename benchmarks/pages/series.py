"""Series: numbers of benchmarks/results by name and key, which pages quote.

FFT own                   seconds by size: Table I, a column of COLUMNS; `own/meshfft` has their ratios
kdft-2d its efficiency    by cores: strong scaling of the paper's algorithm
single permutes           milliseconds by cores, of the third dimension
pod compute               seconds by program, compiled for a described pod
beside jnp-sharded        times as long as meshfft, by the mesh of 256^3
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..measure.measured import Row as Measured
from ..measure.words import mesh_words
from ..paper.cases import SCALINGS
from ..paper.rows import Row, find
from ..paper.tables import LINKS, WAYS, entries, number

COLUMNS = ("measured", "own", "paper", "blocks", "meshfft", "floor")  # seconds of a `paper.tables.Entry`
THEIRS = "swirl-lm"
USUAL = ("auto", "default", "exact")
Named = Iterator[tuple[str, "Series"]]


class Series(NamedTuple):
    """Numbers by key, and how one is written."""

    numbers: dict[str, float]
    form: Callable[[float], str] = number


def of_paper(rows: Sequence[Row]) -> Named:
    table = {family: entries(rows, family) for family in WAYS}
    for family, lines in table.items():
        yield from _of_table(family, {c: {str(one.n): getattr(one, c) for one in lines} for c in COLUMNS})
    pairs = zip(table["KDFT"], table["FFT"], strict=True)
    yield "KDFT/FFT own", Series({str(a.n): a.own / b.own for a, b in pairs if a.own and b.own}, "{:.2f}".format)
    for scaling in SCALINGS:
        its = WAYS[scaling.family][0].name
        yield from _of_figure(f"{scaling.name} its", find(rows, figure=scaling.name, algorithm=its, quantity="total"))
    for name in ("permute", "einsum"):
        single = find(rows, quantity=f"single {name}")
        yield f"single {name}", Series({str(row.cores): 1e3 * row.seconds for row in single})
    hops = find(rows, quantity="single permute")
    yield "single permutes", Series({str(row.cores): 1e3 * row.seconds * (row.mesh["z"] - 1) for row in hops})


def _of_table(name: str, found: dict[str, dict[str, float]]) -> Named:
    for column, numbers in found.items():
        yield f"{name} {column}", Series(numbers)
        grown = {n: s / numbers[less] for n, s in numbers.items() if (less := str(int(n) // 2)) in numbers}
        yield f"{name} {column} growth", Series(grown, "{:.1f}".format)
    for above, below in itertools.permutations(COLUMNS, 2):
        ratios = {n: s / found[below][n] for n, s in found[above].items()}
        digits = "{:.2f}" if "measured" in (above, below) else "{:.1f}"
        yield f"{name} {above}/{below}", Series(ratios, digits.format)
    off = {n: 100 * abs(s / found["own"][n] - 1) for n, s in found["measured"].items()}
    yield f"{name} off", Series(off, "{:.0f}".format)  # percent of the modelled


def _of_figure(name: str, rows: Sequence[Row]) -> Named:
    total = {str(row.cores): row.seconds for row in rows}
    links = {str(row.cores): sum(row.parts.get(one, 0.0) for one in LINKS) for row in rows}
    share = {cores: 100 * links[cores] / spent for cores, spent in total.items()}
    efficiency = _efficiency(total)
    lost = {cores: spent * (1 - efficiency[cores]) for cores, spent in total.items()}
    yield from ((f"{name} {what}", Series(it)) for what, it in (("links", links), ("lost", lost)))
    yield f"{name} compute", Series({cores: spent - links[cores] for cores, spent in total.items()})
    yield f"{name} products", Series({str(row.cores): row.parts["products"] for row in rows})
    yield f"{name} efficiency", Series(efficiency, "{:.2f}".format)
    yield f"{name} share of links", Series(share, "{:.0f}".format)


def _efficiency(total: Mapping[str, float]) -> dict[str, float]:
    first, seconds = next(iter(total.items()))
    return {cores: seconds * int(first) / int(cores) / spent for cores, spent in total.items()}


def of_programs(rows: Sequence[Mapping[str, Any]]) -> Named:
    for name in ("plan", "compute"):
        seconds = {program(row): row[f"modelled_{name}"] for row in rows if f"modelled_{name}" in row}
        yield f"pod {name}", Series(seconds)


def program(row: Mapping[str, Any]) -> str:
    """The name of a compiled program: 8192@2048-any-int16, 2048@256-cooley-tukey-natural, 2048@256-swirl-lm."""
    ways = [row[name] for name in ("method", "order", "precision", "wire", "engine")]
    words = [word for word in ways if word not in USUAL] if row["by"] != THEIRS else [THEIRS]
    return "-".join([f"{row['shape'][0]}@{math.prod(row['mesh'])}", *words])


def of_baselines(rows: Sequence[Measured], programs: Sequence[Mapping[str, Any]]) -> Named:
    """256^3 by others over meshfft in natural order, by mesh."""
    medians = {(row.case.name, mesh_words(row.case)): row.median or math.nan for row in rows}
    ours = {mesh: spent for (name, mesh), spent in medians.items() if name == "meshfft transpose natural"}
    theirs = {mesh: medians["jnp-sharded", mesh] / spent for mesh, spent in ours.items()}
    yield "beside jnp-sharded", Series(theirs, "{:.0f}".format)
    times = [(row["program"], statistics.median(row["seconds"])) for row in programs]
    for kind, how in (("once", "alone"), ("a turn", "a turn")):
        best = min(spent for one, spent in times if (one["by"], one["kind"]) == ("mpi4py-fft", kind))
        mine = {",".join(map(str, one["mesh"])): best / spent for one, spent in times if one["how"] == how}
        yield f"beside mpi4py-fft {kind}", Series(mine, "{:.2f}".format)


def of_authors(rows: Sequence[Measured]) -> Named:
    loads = [row.facts["load_before"] for row in rows]
    yield "here load", Series({"least": min(loads), "most": max(loads)}, "{:.1f}".format)
