"""The sections of models: a plan's walk, profiles, the paper's evaluation, and the cost model against the compiler."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from meshfft.layout.layout import axis_sizes
from meshfft.plans.picture import COLOURS, WIDE, check_drawable
from meshfft.plans.picture import draw as draw_walk
from meshfft.plans.plan import Plan

from ..paper.figures import Drawing, drawings
from ..paper.tables import RATIO_HEADS, ratio_cells, tables
from .page import MARKS, MODELLED, Figure, Section, Table, drawn, logarithmic
from .reading import Rows, Values

OWN = ("step", "kind", "name", "seconds", "share", "by_device", "cycles")  # what rows of one profile do not share
BUT = "modelled but for the paper's own numbers"
WALK = (
    "The array as it comes and after every step. A block has the colour and the number of the device that holds it; a "
    "prime marks a dimension that is transformed."
)
EVALUATION = (
    "The paper's figures and its Table I, on machines that are only described. Only the paper's numbers are measured."
)
AGAINST = "Both are models, as nothing ran. On the line they agree; above it the compiler takes longer."
PROFILES = (
    "The time of a run step by step, stacked of kinds of work: measured under JAX's profiler, or modelled for the "
    "program that the TPU compiler makes."
)


def walk(plan: Plan) -> Section:
    """The picture of a plan, as `Plan.show` draws it, and the plan as it prints."""
    sizes = axis_sizes(plan.mesh)
    check_drawable(plan.shape, sizes)
    tall = -(-len(plan.walk.layouts) // WIDE)
    image = drawn(lambda figure: draw_walk(figure, plan.walk, sizes), 3.4 * tall, 3.0 * WIDE)
    return Section("walk", "The walk", WALK, [Figure(plan.name, image)], str(plan))


def sections(rows: Rows) -> Iterator[Section]:
    if rows.profiles:
        yield Section("profiles", "Where the time goes", PROFILES, [p for one in profiles(rows) for p in _profile(one)])
    if rows.evaluation:
        yield Section("paper", "The paper's evaluation", EVALUATION, list(_evaluation(rows)))
    if against := list(_compiled(rows)):
        yield Section("models", "Model against compiler", AGAINST, against)


def profiles(rows: Rows) -> list[list[Values]]:
    """The rows of each profile: those that agree in all that is not a row's own."""
    found: dict[str, list[Values]] = {}
    for row in rows.profiles:
        shared = {name: value for name, value in row.items() if name not in OWN}
        found.setdefault(json.dumps(shared, sort_keys=True), []).append(row)
    return list(found.values())


def by_step(rows: Sequence[Values]) -> tuple[list[str], dict[str, Sequence[float]]]:
    steps, kinds = (list(dict.fromkeys(row[name] for row in rows)) for name in ("step", "kind"))
    spent = {(row["step"], row["kind"]): row["seconds"] for row in rows}
    return steps, {kind: [spent.get((step, kind), 0.0) for step in steps] for kind in kinds}


def _profile(rows: Sequence[Values]) -> Iterator[Figure | Table]:
    first, (steps, kinds) = rows[0], by_step(rows)
    hidden = ", ".join(f"{seconds:.3g} s of {kind}" for kind, seconds in first["hidden"].items())
    note = f"{first['how']}; a run takes {first['wall_seconds']:.4g} s."
    note += f" Hidden under other work: {hidden}." * bool(hidden)
    draw = partial(_stacked, names=steps, parts=kinds, what=f"seconds, {first['known']}")
    yield Figure(first["title"], drawn(draw, 1.2 + 0.4 * len(steps)), first["known"], note)
    lines = [[step, *(f"{kinds[kind][at]:.3g}" for kind in kinds)] for at, step in enumerate(steps)]
    yield Table(f"{first['title']}: seconds", ("step", *kinds), lines, first["known"])


def _stacked(figure: Any, names: Sequence[str], parts: dict[str, Sequence[float]], what: str) -> None:
    """A bar for each name, from the top, stacked of parts."""
    spot, ends = figure.subplots(), [0.0] * len(names)
    for (label, widths), colour in zip(parts.items(), COLOURS, strict=False):
        spot.barh(range(len(names)), widths, 0.6, left=ends, label=label, color=colour)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    spot.set_yticks(range(len(names)), names)
    spot.set(xlabel=what, ylim=(len(names) - 0.4, -0.6))
    figure.legend(loc="outside lower center", ncols=len(parts), frameon=False, fontsize="small")


def _evaluation(rows: Rows) -> Iterator[Figure | Table]:
    for one in drawings(rows.evaluation):
        yield Figure(one.title.replace("\n", " "), _paper(one, rows), BUT)
    for title, heads, lines in tables(rows.evaluation):
        yield Table(title, [head.replace("\n", " ") for head in heads], lines, BUT)


def _paper(one: Drawing, rows: Rows) -> str:
    return drawn(lambda figure: one.draw(figure, rows.evaluation), 4.6)


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
