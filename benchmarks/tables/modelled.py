"""Tables and series of modelled rows, by part."""

import itertools
import math
from collections.abc import Sequence

from ..rows import Values
from ..tpu import kernels
from .text import Named, Series, extremes, markdown, number

THEIRS = "swirl-lm"
USUAL = ("auto", "default", "exact")
WIRES = ("order", "wire", "sent by a device", "plan", "cycles", "links", "played")
PROGRAMS = ("program", "mesh", "plan", "played", "compute by the plan", "by the compiler", "ratio")
CLUSTERS = ("array", "machine", "mesh", "MB", "exact", "one stage, two", "outer int16")
SHOWN = ((1024, "64*h100:8"), (1024, "4*v5p:4x8x8"), (4096, "4*h100:8"), (4096, "2*v5p:4x8x8"))
PASSES = ("512^3: passes lost; all-to-alls; blocks sent", "natural order", "any order", "real, natural")
WAYS = (("fft", "natural"), ("fft", "any"), ("rfft", "natural"))  # columns of PASSES
KERNELS = ("chip", "length", "plane", "XLA over it", "last", "middle", "first", "XLA over each")
CHIPS = (("v5e:2x2", 512), ("v5e:2x2", 4096), ("v5p:2x2x1", 512), ("v3:2x2", 512))


def pod(rows: Sequence[Values]) -> Named:
    for name in ("plan", "compute", "played"):
        seconds = {program(row): row[f"modelled_{name}"] for row in rows if f"modelled_{name}" in row}
        yield f"pod {name}", Series(seconds)
        yield f"pod {name} ms", Series({one: 1e3 * spent for one, spent in seconds.items()}, "{:.1f}".format)
    wires = [row for row in rows if (row["shape"][0], row["mesh"], row["engine"]) == (8192, [2048], "auto")]
    wires.sort(key=lambda row: (row["order"] != "natural", -row["sent_bytes"]))
    fields, compared = ("plan", "compute", "links", "played"), ("plan", "played", "plan_compute", "compute")
    sent = ([one["order"], one["wire"], f"{one['sent_bytes'] / 1e9:.2f} GB", *_seconds(one, *fields)] for one in wires)
    yield "table wires", markdown(WIRES, sent)
    ours = [row for row in rows if row["by"] != THEIRS and (row["wire"], row["engine"]) == ("exact", "auto")]
    ours = [row for row in ours if row["topology"].startswith("v3")]
    against = (
        [program(one), ", ".join(map(str, one["mesh"])), *_seconds(one, *compared), f"{_ratio(one):.2f}"]
        for one in sorted(ours, key=_ratio)
    )
    yield "table programs", markdown(PROGRAMS, against)


def program(row: Values) -> str:
    """The name of a compiled program: 8192@2048-any-int16, 2048@256-cooley-tukey-natural, 2048@256-swirl-lm."""
    ways = [row[name] for name in ("method", "order", "precision", "wire", "engine")]
    words = [word for word in ways if word not in USUAL] if row["by"] != THEIRS else [THEIRS]
    return "-".join([f"{row['shape'][0]}@{math.prod(row['mesh'])}", *words])


def _ratio(row: Values) -> float:
    return float(row["modelled_plan_compute"] / row["modelled_compute"])


def _seconds(row: Values, *fields: str) -> list[str]:
    return [number(row[f"modelled_{field}"]) for field in fields]


def clusters(rows: Sequence[Values]) -> Named:
    found = {(row["shape"], row["machine"], row["wire"]): row for row in rows}
    pairs = [(found[*one, "exact"], found[*one, "outer int16"]) for one in SHOWN]
    yield "table clusters", markdown(CLUSTERS, itertools.starmap(_cluster, pairs))
    saved = extremes(100 * (1 - rounded["seconds"] / exact["seconds"]) for exact, rounded in pairs)
    yield "clusters saved", Series(saved, "{:.0f}".format)
    listed = {f"{n}@{name}": 1e3 * (found[n, name, "exact"]["as_listed"] or math.nan) for n, name in SHOWN}
    yield "clusters as listed", Series(listed, "{:.0f}".format)


def _cluster(exact: Values, rounded: Values) -> list[str]:
    sent = ", ".join(f"{exact[name] / 1e6:.4g}" for name in ("inside_bytes", "outside_bytes"))
    stages = (exact[name] for name in ("one_stage", "two_stages"))
    words = [_ms(exact["seconds"]), ", ".join(map(_ms, stages)), _ms(rounded["seconds"])]
    return [f"{exact['shape']}^3", f"`{exact['machine']}`", "x".join(map(str, exact["mesh"])), sent, *words]


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1e3 * seconds)


def passes(rows: Sequence[Values]) -> Named:
    found = {(*row["mesh"], row["kind"], row["order"]): row for row in rows if row["shape"][0] == 512}
    meshes = {"slab": (8,), "pencil": (2, 4), "block": (2, 2, 2)}
    lines = ([name, *(_lost(found[*mesh, *way]) for way in WAYS)] for name, mesh in meshes.items())
    yield "table passes", markdown(PASSES, lines)


def _lost(row: Values) -> str:
    lost = sum(number for kind, number in row["passes"].items() if kind not in ("fft", "all-to-all"))
    sent = row["sent_bytes"] / (8 * math.prod(row["shape"]) / row["devices"])
    return f"{round(lost, 1):g}; {row['all_to_alls']}; {sent:.2f}"


def cycles(rows: Sequence[Values]) -> Named:
    """Costs of FFT kernels; a line of `kernels.lines` has the cost of a point fifth, and XLA's over it seventh."""
    lines = []
    for topology, n in CHIPS:
        found = {line[0]: line for line in kernels.lines([row for row in rows if row["topology"] == topology])}
        known = [found.get(name, []) for name in (f"plane {n}x{n}", f"lane {n}", f"sublane {n}", f"first {n}")]
        cost, over = ([line[at] if len(line) > 2 else "-" for line in known] for at in (4, 6))
        cost = [one if one == "-" else f"{float(one):.3f}" for one in cost]
        lines.append([topology.partition(":")[0], str(n), cost[0], over[0], *cost[1:], ", ".join(over[1:])])
    yield "table kernels", markdown(KERNELS, lines)


def strong(rows: Sequence[Values]) -> Named:
    for name in ("whole", "placed", "interpolate"):
        yield f"strong {name}", Series({str(row["cores"]): row[name] for row in rows})


def played(rows: Sequence[Values]) -> Named:
    seconds = [row["seconds"] for row in rows]
    yield "played", Series(extremes(seconds), "{:.2f}".format)
    number = {"draws": len(seconds), "near": sum(0.7 <= one <= 1.3 for one in seconds)}
    yield "played number", Series(number, "{:.0f}".format)
