"""The evaluation's figures, drawn from its rows: strong scaling, single operations, a breakdown, and Table I as bars.

Every label marks its numbers as measured or modelled. Nothing is computed here.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from meshfft.atomic import replacing
from meshfft.extras import need

from .cases import MEASURED, PAPER_FFT, SCALINGS, TABLES, Scaling
from .rows import Row, find
from .tables import Entry, entries

PAPER, OWN, OURS, BLOCKS, LOOSER, FLOOR = "#e8743b", "#9c3d0f", "#51127c", "#3c7fb1", "#a78bc4", "#555555"
PARTS = {  # the breakdown: label, parts and colour
    "arithmetic": (("products", "vector"), "#51127c"),
    "memory": (("memory",), "#a78bc4"),
    "all-to-alls": (("all-to-alls",), "#f6b26b"),
    "permutes": (("permutes",), "#e8743b"),
}


def check_folder(folder: Path) -> None:
    need("matplotlib", "drawing a figure")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: make it first, or draw elsewhere")


def draw_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draws every figure that has rows, in place of older files; returns the files."""
    figures, paths = need("matplotlib.figure", "drawing a figure"), []
    for name, title, draw in _drawings(rows):
        figure = figures.Figure(figsize=(6.4, 4.4), layout="constrained", dpi=150)
        draw(figure, rows)
        figure.suptitle(title)
        paths.append(folder / f"{name}.png")
        with replacing(paths[-1], overwrite=True) as temporary:
            figure.savefig(temporary, format="png")
    return paths


def _drawings(rows: Sequence[Row]) -> Iterator[tuple[str, str, Callable[[Any, Sequence[Row]], None]]]:
    for one in SCALINGS:
        if find(rows, figure=one.name):
            yield one.name, f"{one.title}: strong scaling on TPU v3, modelled", functools.partial(_scaling, scaling=one)
    title = "3-D KDFT, 2048 x 2048 x 2048: one operation of the third\ndimension on shapes (4, 4, n2), modelled"
    if find(rows, quantity="single permute"):
        yield "kdft-3d-single", title, _single
    title = "3-D FFT, 2048 x 2048 x 2048: where the time of the paper's\nalgorithm goes on TPU v3, modelled"
    if find(rows, figure="fft-3d"):
        yield "fft-3d-breakdown", title, _breakdown
    for name in TABLES:
        title = f"Table I on {TABLES[name]}: all but the paper's own numbers are modelled"
        if find(rows, figure=name, quantity="total", known="modelled"):
            yield name, title, functools.partial(_table, name=name)


def _scaling(figure: Any, rows: Sequence[Row], scaling: Scaling) -> None:
    spot, rows = figure.subplots(), find(rows, figure=scaling.name)
    names = list(dict.fromkeys(row.algorithm for row in rows))
    first = scaling.cores[0]
    for name, colour, mark in zip(names, (PAPER, OURS), "os", strict=False):
        mine, whose = find(rows, algorithm=name), name if name.startswith("paper") else f"meshfft's {name}"
        label = f"ideal, modelled: T_{first} / (cores / {first})" if name == names[0] else None
        _line(spot, find(mine, quantity="ideal"), color=colour, linestyle="--", linewidth=1, label=label)
        made = find(mine, quantity="total")
        _line(spot, made, color=colour, marker=mark, markersize=5, label=f"{whose}, modelled")
        if scaling.block is None and name == names[0]:
            _einsums(spot, made, colour)
    _measured(spot, scaling)
    _axes(spot, scaling.cores)


def _einsums(spot: Any, rows: Sequence[Row], colour: str) -> None:
    alone = [dataclasses.replace(row, seconds=row.parts["products"]) for row in rows]
    _line(spot, alone, color=colour, linestyle=":", marker="^", markersize=5, label="its einsum alone, modelled")


def _measured(spot: Any, scaling: Scaling) -> None:
    n = scaling.shape[0]
    if len(set(scaling.shape)) == 1 and len(scaling.shape) == 3 and scaling.cores[-1] == 2048 and n in MEASURED:
        label = "paper, measured (Table I)"
        spot.plot(2048, MEASURED[n][scaling.family], "*", color="black", markersize=11, label=label)


def _single(figure: Any, rows: Sequence[Row]) -> None:
    spot = figure.subplots()
    permutes, einsums = (find(rows, quantity=f"single {name}") for name in ("permute", "einsum"))
    linked = [row for row in permutes if row.mesh["z"] > 2]
    _line(spot, linked, color=PAPER, marker="o", markersize=5, label="one permute, modelled")
    _line(spot, einsums, color=OURS, marker="s", markersize=5, label="one einsum, modelled")
    if len(linked) < len(permutes):
        text = f"at {permutes[0].cores} cores a permute stays within a chip: {1e6 * permutes[0].seconds:.0f} us"
        spot.text(0.02, 0.04, text, transform=spot.transAxes, fontsize="small", color=PAPER)
    _axes(spot, [row.cores for row in permutes])


def _breakdown(figure: Any, rows: Sequence[Row]) -> None:
    made = [row for row in find(rows, figure="fft-3d", algorithm=PAPER_FFT.name, quantity="total") if row.parts]
    spot, below = figure.subplots(), [0.0] * len(made)
    for label, (parts, colour) in PARTS.items():
        sums = [sum(row.parts.values()) for row in made]
        shares = [100 * sum(row.parts.get(p, 0) for p in parts) / total for row, total in zip(made, sums, strict=True)]
        spot.bar(range(len(made)), shares, 0.65, bottom=below, color=colour, label=label)
        below = [a + b for a, b in zip(below, shares, strict=True)]
    for at, row in enumerate(made):
        spot.text(at, 101, f"{row.seconds:.3g} s", ha="center", va="bottom")
    spot.set_xticks(range(len(made)), [str(row.cores) for row in made])
    spot.set(xlabel="cores", ylabel="share of the time, %", ylim=(0, 109))
    spot.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _table(figure: Any, rows: Sequence[Row], name: str) -> None:
    figure.set_size_inches(9, 4.6)
    spots = figure.subplots(1, 2, sharey=True)
    for spot, family in zip(spots, ("KDFT", "FFT"), strict=True):
        lines = entries(rows, name, family)
        _bars(spot, lines[::2], lines[1::2])
        spot.set(title=family)
    spots[0].set_ylabel("seconds")
    handles, labels = spots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def _bars(spot: Any, lines: Sequence[Entry], looser: Sequence[Entry]) -> None:
    bars = (
        ("paper, measured on v3:32x32", [one.measured for one in lines], "black"),
        ("paper's way on (4, 4, 128), modelled", [one.own for one in lines], OWN),
        ("paper's way on its best mesh, modelled", [one.paper for one in lines], PAPER),
        ("meshfft, blocks in and out, modelled", [one.blocks for one in lines], BLOCKS),
        ("meshfft, best mesh, modelled", [one.meshfft for one in lines], OURS),
        ("meshfft, bf16x3 or any order, modelled", [one.meshfft for one in looser], LOOSER),
    )
    for place, (label, heights, colour) in enumerate(bars):
        at = [j + (place - 2.5) * 0.14 for j in range(len(heights))]
        if any(heights):
            spot.bar(at, [height or 0 for height in heights], 0.13, color=colour, label=label)
    for group, start, end in ((lines, -0.45, 0.28), (looser, 0.28, 0.45)):
        starts, ends = ([j + side for j in range(len(group))] for side in (start, end))
        name = "physical floor, modelled" if group is lines else None
        heights = [one.floor or 0 for one in group]
        spot.hlines(heights, starts, ends, color=FLOOR, linestyle="--", label=name)
    spot.set_xticks(range(len(lines)), [f"{one.n}^3" for one in lines])
    spot.set_yscale("log")
    spot.yaxis.set_major_formatter("{x:g}")
    spot.grid(axis="y", alpha=0.3)
    spot.set_axisbelow(True)


def _line(spot: Any, rows: Sequence[Row], **look: Any) -> None:
    spot.plot([row.cores for row in rows], [row.seconds for row in rows], **look)


def _axes(spot: Any, cores: Sequence[int]) -> None:
    spot.set_xscale("log", base=2)
    spot.set_yscale("log")
    spot.yaxis.set_major_formatter("{x:g}")
    spot.minorticks_off()
    spot.set_xticks(list(cores), [str(count) for count in cores])
    spot.set(xlabel="cores", ylabel="seconds")
    spot.grid(alpha=0.3, which="both")
    spot.legend(frameon=False, fontsize="small")
