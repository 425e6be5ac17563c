"""The evaluation's tables, made of rows: Table I and strong scaling.

gain         seconds of the paper's way on its best mesh / meshfft's on blocks of all three dimensions
efficiency   ideal seconds / seconds
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..rows import Values, find, grouped
from .cases import BEST, CUBES, FFT, KDFT, OWN, PAPER_FFT, PAPER_KDFT, POD, SCALINGS, TABLE

WAYS = {"KDFT": (PAPER_KDFT, KDFT), "FFT": (PAPER_FFT, FFT)}  # the paper's, then meshfft's
LINKS = ("permutes", "all-to-alls")
TABLE_HEADS = ("array", "paper", "its on\n4,4,128", "its\nbest", "ours on\n8,16,16", "gain", "ours\nbest", "floor")
SCALING_HEADS = ("algorithm", "cores", "seconds", "products", "links", "efficiency")


class Table(NamedTuple):
    title: str
    heads: Sequence[str]
    lines: list[list[str]]


def tables(rows: Sequence[Values]) -> Iterator[Table]:
    if found := [one for family in WAYS for one in entries(rows, family)]:
        title = f"Table I on {POD}: seconds, modelled but for the paper's own"
        yield Table(title, TABLE_HEADS, list(map(_line, found)))
    for scaling in SCALINGS:
        totals = grouped(find(rows, figure=scaling.name, quantity="total"), lambda row: row["algorithm"])
        if lines := [_scaling(same[0]["algorithm"], one) for same in totals for one in scaled(same)]:
            yield Table(f"{scaling.title}, strong scaling on TPU v3: seconds, modelled", SCALING_HEADS, lines)


def entries(rows: Iterable[Values], family: str) -> list[Values]:
    """Seconds of Table I for KDFT or FFT, the largest array first; modelled except for `measured`."""
    rows = find(rows, figure=TABLE, family=family)
    sizes = sorted({row["shape"][0] for row in rows}, reverse=True)
    return [{"array": f"{family} {n}^3", "n": n, **_entry(find(rows, shape=[n] * 3), family)} for n in sizes]


def _entry(rows: Sequence[Values], family: str) -> Values:
    its, ours = (find(rows, algorithm=way.name, quantity="total") for way in WAYS[family])
    chosen = {
        "measured": find(rows, known="published"),  # by the paper
        "own": find(its, note=f"mesh: {OWN}"),  # the paper's algorithm on the paper's mesh
        "paper": find(its, note=f"mesh: {BEST}"),  # and on its best one
        "blocks": find(ours, note=f"mesh: {CUBES}"),  # meshfft's walk from and to blocks of all dimensions
        "meshfft": find(ours, note=f"mesh: {BEST}"),  # and on its best mesh
        "floor": find(rows, algorithm=family, quantity="floor"),
    }
    return {name: row["seconds"] for name, (row,) in chosen.items()}


def _line(one: Values) -> list[str]:
    its = [number(one[name]) for name in ("measured", "own", "paper", "blocks")]
    gain = f"{one['paper'] / one['blocks']:.1f}"
    return [one["array"], *its, gain, number(one["meshfft"]), number(one["floor"])]


def scaled(rows: Sequence[Values]) -> list[Values]:
    """Strong scaling of one algorithm, the fewest cores first: seconds, those of parts, and the efficiency."""
    first = rows[0]["seconds"] * rows[0]["cores"]
    found = []
    for cores, seconds, parts in ((row["cores"], row["seconds"], row["parts"]) for row in rows):
        own = {"products": parts.get("products"), "links": sum(parts.get(name, 0.0) for name in LINKS)}
        found.append({"cores": str(cores), "seconds": seconds, **own, "efficiency": first / cores / seconds})
    return found


def _scaling(name: str, one: Values) -> list[str]:
    return [name, one["cores"], *(number(one[of]) for of in SCALING_HEADS[2:5]), f"{one['efficiency']:.2f}"]


def number(value: float | None) -> str:
    if value is None:
        return "-"
    text = f"{value:#.3g}".rstrip(".")
    return f"{value:.6f}" if "e" in text else text
