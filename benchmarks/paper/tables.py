"""The evaluation's tables, made of rows: Table I and strong scaling.

gain         seconds of the paper's way on its best mesh / meshfft's on blocks of all three dimensions
efficiency   ideal seconds / seconds
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..rows import Values, find
from .cases import BEST, CUBES, FFT, KDFT, OWN, PAPER_FFT, PAPER_KDFT, POD, SCALINGS, TABLE

NONE = "-"
WAYS = {"KDFT": (PAPER_KDFT, KDFT), "FFT": (PAPER_FFT, FFT)}  # the paper's, then meshfft's
LINKS = ("permutes", "all-to-alls")
TABLE_HEADS = ("array", "paper", "its on\n4,4,128", "its\nbest", "ours on\n8,16,16", "gain", "ours\nbest", "floor")
SCALING_HEADS = ("cores", *("its way", "products", "links", "effi-\nciency"), *("meshfft", "links", "effi-\nciency"))
Seconds = float | None


class Table(NamedTuple):
    title: str
    heads: Sequence[str]
    lines: list[list[str]]


def tables(rows: Sequence[Values]) -> Iterator[Table]:
    if found := [one for family in WAYS for one in entries(rows, family)]:
        title = f"Table I on {POD}: seconds, modelled but for the paper's own"
        yield Table(title, TABLE_HEADS, list(map(_line, found)))
    for scaling in SCALINGS:
        if lines := _scaling(find(rows, figure=scaling.name)):
            yield Table(f"{scaling.title}, strong scaling on TPU v3: seconds, modelled", SCALING_HEADS, lines)


def entries(rows: Iterable[Values], family: str) -> list[Values]:
    """Seconds of Table I for KDFT or FFT, the largest array first; modelled except for `measured`, None if missing."""
    rows = find(rows, figure=TABLE, family=family)
    sizes = sorted({row["shape"][0] for row in rows}, reverse=True)
    return [{"array": f"{family} {n}^3", "n": n, **_entry(find(rows, shape=[n] * 3), family)} for n in sizes]


def _entry(rows: Sequence[Values], family: str) -> Values:
    its, ours = (find(rows, algorithm=way.name, quantity="total") for way in WAYS[family])
    return {
        "measured": _seconds(find(rows, known="published")),  # by the paper
        "own": _seconds(find(its, note=f"mesh: {OWN}")),  # the paper's algorithm on the paper's mesh
        "paper": _seconds(find(its, note=f"mesh: {BEST}")),  # and on its best one
        "blocks": _seconds(find(ours, note=f"mesh: {CUBES}")),  # meshfft's walk from and to blocks of all dimensions
        "meshfft": _seconds(find(ours, note=f"mesh: {BEST}")),  # and on its best mesh
        "floor": _seconds(find(rows, algorithm=family, quantity="floor")),
    }


def _line(one: Values) -> list[str]:
    its = [number(one[name]) for name in ("measured", "own", "paper", "blocks")]
    gain = _times(one["paper"], one["blocks"])
    return [one["array"], *its, gain, number(one["meshfft"]), number(one["floor"])]


def _scaling(rows: Sequence[Values]) -> list[list[str]]:
    made = find(rows, quantity="total")
    its = [row for row in made if row["algorithm"].startswith("paper")]
    ours = {row["cores"]: row for row in made if row not in its}
    if not its or not ours:
        return []
    lines, first = [], ours[its[0]["cores"]]
    for row in its:
        if other := ours.get(row["cores"]):
            found, _, *shares = _scaled(other, first)
            lines.append([str(row["cores"]), *_scaled(row, its[0]), found, *shares])
    return lines


def _scaled(row: Values, first: Values) -> tuple[str, str, str, str]:
    links = sum(row["parts"].get(name, 0.0) for name in LINKS)
    ideal = first["seconds"] * first["cores"] / row["cores"]
    return number(row["seconds"]), number(row["parts"].get("products")), number(links), _times(ideal, row["seconds"], 2)


def _seconds(rows: Sequence[Values]) -> Seconds:
    return rows[0]["seconds"] if rows else None


def _times(one: Seconds, other: Seconds, digits: int = 1) -> str:
    return f"{one / other:.{digits}f}" if one and other else NONE


def number(value: Seconds) -> str:
    if value is None:
        return NONE
    text = f"{value:#.3g}".rstrip(".")
    return f"{value:.6f}" if "e" in text else text
