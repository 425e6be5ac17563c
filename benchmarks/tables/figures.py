"""Figures of the pages, drawn from the rows of parts; each is drawn again when its rows change.

accuracy.png   the error of each tier, and its bound
plans.png      bytes and seconds of plans beside the compiler's, and seconds over those of the best walk
roofline.png   operations a second of the steps of a profiled walk, under the rates of the machine

The paper's evaluation has its own (paper/figures.py).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from meshfft.atomic import replacing
from meshfft.extras import need
from meshfft.machine.chips import CPU
from meshfft.plans.planning import plan

from ..paper.figures import DRAWN
from ..rows import Values
from ..wires import FIELDS

DARK, ORANGE, GREY = "#51127c", "#e8743b", "#555555"
LENGTH = 8192  # of the lines whose errors are drawn
Rows = Mapping[str, Sequence[Values]]


def draw(rows: Rows, folder: Path) -> list[Path]:
    """Draws the figures whose parts all have rows; returns their files."""
    figures, paths = need("matplotlib.figure", "drawing a figure"), []
    for name, (parts, drawn) in FIGURES.items():
        if all(rows.get(part) for part in parts):
            figure = figures.Figure(figsize=(6.4, 3.6), layout="constrained", dpi=150)
            drawn(figure, *(rows[part] for part in parts))
            paths.append(folder / f"{name}.png")
            with replacing(paths[-1], overwrite=True) as temporary:
                figure.savefig(temporary, format="png", metadata={"Software": None})
    return paths


def _accuracy(figure: Any, rows: Sequence[Values]) -> None:
    spot = figure.subplots()
    for method, colour, mark, aside in (("kdft", DARK, "o", -0.15), ("transpose", ORANGE, "s", 0.15)):
        same = [r for r in rows if (r["method"], r["n"], r["wire"]) == (method, LENGTH, "exact")]
        at = [TIERS.index(row["precision"]) + aside for row in same]
        for field in FIELDS:
            label = f"{'dense' if method == 'kdft' else 'FFT'}, measured" if field == FIELDS[0] else None
            spot.plot(at, [row[field] for row in same], mark, color=colour, markersize=4, label=label)
        bounds = [row["error_expected"] for row in same]
        spot.plot(at, bounds, "_", color=colour, markersize=14, label="its bound")
    spot.set_xticks(range(len(TIERS)), TIERS, rotation=30)
    spot.set(yscale="log", ylabel="relative L2 error", title=f"Lines of {LENGTH} numbers: {', '.join(FIELDS)}")
    spot.grid(axis="y", alpha=0.3)
    spot.legend(frameon=False, fontsize="small")


def _plans(figure: Any, plans: Sequence[Values], played: Sequence[Values], regrets: Sequence[Values]) -> None:
    left, middle, right = spots = figure.subplots(1, 3)
    peaks, seconds = [row["peak"] for row in plans], [row["seconds"] for row in played]
    for spot, title, values in ((left, "compiled/planned bytes", peaks), (middle, "planned/played, TPU", seconds)):
        spot.plot(np.linspace(0, 100, len(values)), np.sort(values), color=DARK)
        spot.set(title=title, xlabel=f"% of {len(values)} drawn plans", ylim=(0, None))
    for name, label, colour in (("plan", "as planned", DARK), ("measured", 'effort="measure"', ORANGE)):
        ratios = np.sort([row[name] for row in regrets])
        right.plot(np.linspace(0, 100, len(ratios)), ratios, color=colour, label=label)
    right.set(title="seconds/best, CPU", xlabel=f"% of {len(regrets)} drawn cases")
    right.legend(frameon=False, fontsize="small")
    for spot in spots:
        spot.axhline(1, color=GREY, linewidth=1)
        spot.grid(alpha=0.3)


def _roofline(figure: Any, rows: Sequence[Values]) -> None:
    """Operations and bytes as the plan counts them, seconds as measured, and the rates of a CPU device in plans."""
    spot, first = figure.subplots(), rows[0]
    count = int(np.prod([*first["mesh"].values()]))
    made = plan(tuple(first["shape"]), topology=f"cpu:{count}", dtype=first["dtype"], method=first["method"])
    works = made.walk.works(made.dtype.itemsize, made.machine.chip)
    for number, (step, work) in enumerate(zip(first["steps"], works, strict=True)):
        seconds = sum(row["seconds"] for row in rows if row["step"] == number and row["kind"] != "idle")
        done, label = count * work.vector_flops / seconds / 1e9, step.partition(" in place")[0]
        spot.plot(work.vector_flops / work.memory_bytes, done, "o", label=label)
    x = np.logspace(-1, 2, 50)
    roof = count * np.minimum(CPU.memory.value * x, CPU.vector.value) / 1e9
    spot.plot(x, roof, color=GREY, label="memory, then arithmetic")
    spot.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="10⁹ operations per second")
    spot.yaxis.set_major_formatter("{x:g}")
    spot.xaxis.set_major_formatter("{x:g}")
    spot.minorticks_off()
    spot.grid(alpha=0.3)
    spot.legend(frameon=False, fontsize="small")


TIERS = ("bf16", "bf16x3", "bf16x6", "float32", "int8x4", "int8x5", "int8x6", "int8x7", "float64")
FIGURES: dict[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "accuracy": (("wires",), _accuracy),
    "plans": (("plans", "played", "regret"), _plans),
    "roofline": (("profile",), _roofline),
    **{name: (("paper",), drawn) for name, drawn in DRAWN.items()},
}
