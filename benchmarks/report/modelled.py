"""The sections of models: the paper's evaluation, profiles, and the cost model against measurements and compiler."""

import functools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..paper.figures import Drawing, drawings
from ..paper.tables import RATIO_HEADS, ratio_cells, tables
from .drawing import COLOURS, MARKS, drawn, logarithmic, stacked
from .page import MODELLED, Figure, Section, Table
from .reading import Rows, Values

OWN = (
    "step",
    "kind",
    "name",
    "seconds",
    "share",
    "by_device",
    "cycles",
)  # of a profile's row: not shared by the others
BUT = "modelled but for the paper's own numbers"
EVALUATION = (
    "The paper's figures and its Table I, on machines that are only described. Only the paper's numbers are measured."
)
AGAINST = (
    "What the cost model says against what happened: on the line both agree, above it took longer than modelled. Where "
    "nothing ran, both axes are models."
)
PROFILES = (
    "The time of a run step by step, stacked of kinds of work: measured under JAX's profiler, or modelled for the "
    "program that the TPU compiler makes."
)


def sections(rows: Rows) -> Iterator[Section]:
    """The chapters for which there are rows."""
    if rows.profiles:
        yield Section("profiles", "Where the time goes", PROFILES, [p for one in profiles(rows) for p in _profile(one)])
    if rows.evaluation:
        yield Section("paper", "The paper's evaluation", EVALUATION, list(_evaluation(rows)))
    if against := [*_choices(rows.choices), *_compiled(rows)]:
        yield Section("models", "Models against measurements", AGAINST, against)


def profiles(rows: Rows) -> list[list[Values]]:
    """The rows of each profile: those that agree in all that is not a row's own."""
    found: dict[str, list[Values]] = {}
    for row in rows.profiles:
        shared = {name: value for name, value in row.items() if name not in OWN}
        found.setdefault(json.dumps(shared, sort_keys=True), []).append(row)
    return list(found.values())


def by_step(rows: Sequence[Values]) -> tuple[list[str], dict[str, Sequence[float]]]:
    """The steps of a profile, and by kind of work the seconds of each."""
    steps, kinds = (list(dict.fromkeys(row[name] for row in rows)) for name in ("step", "kind"))
    spent = {(row["step"], row["kind"]): row["seconds"] for row in rows}
    return steps, {kind: [spent.get((step, kind), 0.0) for step in steps] for kind in kinds}


def _profile(rows: Sequence[Values]) -> Iterator[Figure | Table]:
    first, (steps, kinds) = rows[0], by_step(rows)
    draw = functools.partial(stacked, names=steps, parts=kinds, what=f"seconds, {first['known']}")
    hidden = ", ".join(f"{seconds:.3g} s of {kind}" for kind, seconds in first["hidden"].items())
    note = (
        f"{first['how']}; a run takes {first['wall_seconds']:.4g} s."
        + f" Hidden under other work: {hidden}." * bool(hidden)
    )
    yield Figure(first["title"], drawn(draw, 1.2 + 0.4 * len(steps)), first["known"], note)
    lines = [[step, *(f"{kinds[kind][at]:.3g}" for kind in kinds)] for at, step in enumerate(steps)]
    yield Table(f"{first['title']}: seconds", ("step", *kinds), lines, first["known"])


def _evaluation(rows: Rows) -> Iterator[Figure | Table]:
    for one in drawings(rows.evaluation):
        yield Figure(one.title.replace("\n", " "), _paper(one, rows), BUT)
    for title, heads, lines in tables(rows.evaluation):
        yield Table(title, [head.replace("\n", " ") for head in heads], lines, BUT)


def _paper(one: Drawing, rows: Rows) -> str:
    return drawn(lambda figure: one.draw(figure, rows.evaluation), 4.6)


def _choices(choices: Sequence[Values]) -> Iterator[Figure | Table]:
    """Walks on CPU devices: modelled seconds against the median of calls."""
    if not choices:
        return
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in choices:
        way = next((method for method in row["methods"] if method != "auto"), "auto")
        groups.setdefault(way, []).append((row["modelled"], statistics.median(row["seconds"])))
    pairs = [pair for group in groups.values() for pair in group]
    within = sum(1 / 2 <= measured / modelled <= 2 for modelled, measured in pairs)
    title, note = "Walks on CPU devices", f"Within a factor of 2: {within} of {len(pairs)}."
    image = _pairs(groups, ("seconds, modelled", "seconds, measured"))
    yield Figure(title, image, "modelled against measured", note, str(choices[0].get("command", "")))
    heads = ("case", "methods", "mesh", "modelled s", "measured s")
    lines = [
        [row["case"], ", ".join(row["methods"]), ",".join(map(str, row["mesh"].values())),
         f"{row['modelled']:.3g}", f"{statistics.median(row['seconds']):.3g}"]
        for row in choices
    ]  # fmt: skip
    yield Table(title, heads, lines, "modelled against measured")


def _compiled(rows: Rows) -> Iterator[Figure | Table]:
    """Compute seconds of the model against the TPU compiler's cycles over the clock."""
    compiled = [row for row in rows.evaluation if row.compiled]
    if not compiled:
        return
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in compiled:
        groups.setdefault(row.algorithm, []).append((row.compiled["model_compute"], row.parts["compute"]))
    title, known = "Compute seconds on TPUs: cost model and compiler", "modelled, both; nothing ran"
    yield Figure(title, _pairs(groups, ("seconds, cost model", "seconds, compiler's cycles")), known)
    yield Table(title, RATIO_HEADS, ratio_cells(compiled), MODELLED)


def _pairs(groups: Mapping[str, Sequence[tuple[float, float]]], words: tuple[str, str]) -> str:
    """Points about the diagonal, with lines at half and twice."""

    def draw(figure: Any) -> None:
        spot, values = figure.subplots(), [value for group in groups.values() for pair in group for value in pair]
        ends = [min(values) / 2, max(values) * 2]
        for factor, style in ((1.0, "-"), (2.0, ":"), (0.5, ":")):
            spot.plot(ends, [factor * end for end in ends], style, color="grey", linewidth=1)
        for place, (name, group) in enumerate(groups.items()):
            spot.plot(*zip(*group, strict=True), MARKS[place % 8], color=COLOURS[place % 8], label=name)
        logarithmic(spot, "xy")
        spot.set(xlim=ends, ylim=ends, xlabel=words[0], ylabel=words[1], box_aspect=1)
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")

    return drawn(draw, 5.0)
