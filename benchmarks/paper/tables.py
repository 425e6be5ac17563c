"""The evaluation's tables, made of rows: Table I in columns, and the model held against the compiler."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .cases import FFT, FFT_ANY, KDFT, KDFT_3, PAPER_FFT, PAPER_KDFT, Algorithm
from .compiled import CYCLES
from .rows import Row, find

NONE = "-"
WAYS = {"KDFT": (PAPER_KDFT, KDFT, KDFT_3), "FFT": (PAPER_FFT, FFT, FFT_ANY)}  # the paper's, then meshfft's
SHORT = {KDFT.name: "bf16x6", KDFT_3.name: "bf16x3", FFT.name: "natural", FFT_ANY.name: "any"}
LINKS = ("permutes", "all-to-alls")
HEADS = (
    "array",
    "paper,\nmeasured",
    "its way,\nmodelled",
    "meshfft,\nmodelled",
    "compiled\nmodelled",
    "floor,\nmodelled",
    "meshfft\nbound by",
)
RATIO_HEADS = ("figure", "algorithm", "size", "cores", "model", "compiler", "ratio")


class Entry(NamedTuple):
    """One line of Table I, in seconds; None where there is none.

    Attributes:
        family: "KDFT" or "FFT".
        n: points along each dimension.
        way: the name of meshfft's algorithm: one as good as the paper's, then one that promises less.
        measured: by the paper.
        paper: the paper's algorithm, modelled.
        meshfft: the best walk, modelled.
        compiled: the best walk by the compiler's cycles, modelled.
        floor: the physical floor, modelled.
        binds: the resource that takes longest in the best walk.
    """

    family: str
    n: int
    way: str
    measured: float | None
    paper: float | None
    meshfft: float | None
    compiled: float | None
    floor: float | None
    binds: str


def entries(rows: Iterable[Row], figure: str, family: str) -> list[Entry]:
    """The lines of a table for KDFT or FFT, the largest array first."""
    rows = find(rows, figure=figure, family=family)
    sizes = sorted({row.shape[0] for row in rows}, reverse=True)
    return [_entry(find(rows, shape=(n,) * 3), way, n) for n in sizes for way in WAYS[family][1:]]


def table_cells(rows: Iterable[Row], figure: str, family: str) -> list[list[str]]:
    """The lines of a table as words, under HEADS."""
    return [
        [f"{one.n}^3 {SHORT[one.way]}", *map(_number, one[3:8]), "links" if one.binds in LINKS else one.binds]
        for one in entries(rows, figure, family)
    ]


def ratio_cells(rows: Iterable[Row]) -> list[list[str]]:
    """Compute seconds by the model and by the compiler, under RATIO_HEADS; the farthest from each other first."""
    found = [row for row in rows if row.compiled]
    found.sort(key=_ratio)
    found.sort(key=lambda row: max(_ratio(row), 1 / _ratio(row)), reverse=True)
    return [
        [
            row.figure,
            row.algorithm,
            "x".join(map(str, row.shape)) if len(set(row.shape)) > 1 else f"{row.shape[0]}^{len(row.shape)}",
            str(row.cores),
            _number(row.compiled["model_compute"]),
            _number(row.parts["compute"]),
            f"{_ratio(row):.2f}",
        ]
        for row in found
    ]


def is_compiled(row: Row) -> bool:
    """True of what the compiler was asked for."""
    return row.how.startswith(CYCLES)


def _entry(rows: Sequence[Row], way: Algorithm, n: int) -> Entry:
    """The line of one algorithm among the rows of one array; the paper did only what the first does."""
    paper, first, _ = WAYS[way.family]
    same = rows if way == first else ()
    best = find(rows, algorithm=way.name, quantity="total")
    floors = find(rows, algorithm=way.name, quantity="floor") or find(rows, algorithm=way.family, quantity="floor")
    modelled = [row for row in best if not is_compiled(row)]
    return Entry(
        way.family,
        n,
        way.name,
        _seconds(find(same, known="published")),
        _seconds([row for row in find(same, algorithm=paper.name) if not is_compiled(row)]),
        _seconds(modelled),
        _seconds([row for row in best if is_compiled(row)]),
        _seconds(floors),
        modelled[0].binds if modelled else NONE,
    )


def _seconds(rows: Sequence[Row]) -> float | None:
    return rows[0].seconds if rows else None


def _ratio(row: Row) -> float:
    return float(row.compiled["ratio"])


def _number(value: float | None) -> str:
    """Three digits, and never an exponent."""
    if value is None:
        return NONE
    text = f"{value:#.3g}"
    return f"{value:.6f}" if "e" in text else text
