"""The evaluation's figures, drawn from its rows: strong scaling in three dimensions, and Table I as bars.

Every label marks its numbers as measured or modelled. Nothing is computed here.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..rows import Values, find
from .cases import MEASURED, POD, SCALINGS, TABLE, Scaling
from .tables import entries

PAPER, OWN, OURS, BLOCKS, FLOOR = "#e8743b", "#9c3d0f", "#51127c", "#3c7fb1", "#555555"


def _scaling(figure: Any, rows: Sequence[Values], scaling: Scaling) -> None:
    figure.set_size_inches(6.4, 4.4)
    figure.suptitle(f"{scaling.title}: strong scaling on TPU v3, modelled")
    spot, rows = figure.subplots(), find(rows, figure=scaling.name, quantity="total")
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    first = scaling.cores[0]
    for name, colour, mark in zip(names, (PAPER, OURS), "os", strict=False):
        mine, whose = find(rows, algorithm=name), name if name.startswith("paper") else f"meshfft's {name}"
        label = f"ideal, modelled: T_{first} / (cores / {first})" if name == names[0] else None
        cores, lines = [row["cores"] for row in mine], [mine[0]["seconds"] * first / row["cores"] for row in mine]
        spot.plot(cores, lines, color=colour, linestyle="--", linewidth=1, label=label)
        seconds = [row["seconds"] for row in mine]
        spot.plot(cores, seconds, color=colour, marker=mark, markersize=5, label=f"{whose}, modelled")
    if scaling.cores[-1] == 2048:
        measured = MEASURED[scaling.shape[0]][scaling.family]
        spot.plot(2048, measured, "*", color="black", markersize=11, label="paper, measured (Table I)")
    _axes(spot, scaling.cores)


def _table(figure: Any, rows: Sequence[Values]) -> None:
    figure.set_size_inches(9, 4.6)
    figure.suptitle(f"Table I on {POD}: all but the paper's own numbers are modelled")
    spots = figure.subplots(1, 2, sharey=True)
    for spot, family in zip(spots, ("KDFT", "FFT"), strict=True):
        _bars(spot, entries(rows, family))
        spot.set(title=family)
    spots[0].set_ylabel("seconds")
    handles, labels = spots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def _bars(spot: Any, lines: Sequence[Values]) -> None:
    bars = (
        ("paper, measured on v3:32x32", [one["measured"] for one in lines], "black"),
        ("paper's way on (4, 4, 128), modelled", [one["own"] for one in lines], OWN),
        ("paper's way on its best mesh, modelled", [one["paper"] for one in lines], PAPER),
        ("meshfft, blocks in and out, modelled", [one["blocks"] for one in lines], BLOCKS),
        ("meshfft, best mesh, modelled", [one["meshfft"] for one in lines], OURS),
    )
    for place, (label, heights, colour) in enumerate(bars):
        at = [j + (place - 2) * 0.17 for j in range(len(heights))]
        spot.bar(at, heights, 0.16, color=colour, label=label)
    starts, ends = ([j + side for j in range(len(lines))] for side in (-0.43, 0.43))
    floors = [one["floor"] for one in lines]
    spot.hlines(floors, starts, ends, color=FLOOR, linestyle="--", label="physical floor, modelled")
    spot.set_xticks(range(len(lines)), [f"{one['n']}^3" for one in lines])
    spot.set_yscale("log")
    spot.yaxis.set_major_formatter("{x:g}")
    spot.grid(axis="y", alpha=0.3)
    spot.set_axisbelow(True)


def _axes(spot: Any, cores: Sequence[int]) -> None:
    spot.set_xscale("log", base=2)
    spot.set_yscale("log")
    spot.yaxis.set_major_formatter("{x:g}")
    spot.minorticks_off()
    spot.set_xticks(list(cores), [str(count) for count in cores])
    spot.set(xlabel="cores", ylabel="seconds")
    spot.grid(alpha=0.3, which="both")
    spot.legend(frameon=False, fontsize="small")


DRAWN: dict[str, Callable[..., None]] = {  # of the figures with the paper's mesh, and of Table I
    **{one.name: functools.partial(_scaling, scaling=one) for one in SCALINGS if one.block},
    TABLE: _table,
}
