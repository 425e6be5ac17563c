"""The evaluation's tables, made of rows: Table I by the paper's way and by meshfft's, strong scaling, one operation of
the third dimension, and the model held against the compiler.

    growth       seconds / seconds of an eighth of the points      gain   seconds of the paper's way / meshfft's
    efficiency   ideal seconds / seconds
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .cases import BEST, CUBES, FFT, FFT_ANY, KDFT, KDFT_3, OWN, PAPER_FFT, PAPER_KDFT, Algorithm
from .compiled import CYCLES
from .paper import BLOCKS, SCALINGS, SHAPES, TABLES
from .rows import Row, find

NONE = "-"
WAYS = {"KDFT": (PAPER_KDFT, KDFT, KDFT_3), "FFT": (PAPER_FFT, FFT, FFT_ANY)}  # the paper's, then meshfft's
SHORT = {KDFT.name: "bf16x6", KDFT_3.name: "bf16x3", FFT.name: "natural", FFT_ANY.name: "any"}
LINKS = ("permutes", "all-to-alls")
PAPER_HEADS = ("array", "paper,\nmeasured", "growth", "on\n{}", "growth", "paper /\nmodel", "on best\nmesh", "growth")
GAIN_HEADS = ("array", "its way,\nbest mesh", "meshfft,\n{}", "gain", "meshfft,\nbest mesh", "gain", "best mesh")
HEADS = ("array", "meshfft", "compiled", "floor", "meshfft\nbound by")
SCALING_HEADS = ("cores", *("its way", "products", "links", "effi-\nciency"), *("meshfft", "links", "effi-\nciency"))
SINGLE_HEADS = ("cores", "one einsum,\nms", "one permute,\nms", "permutes", "all permutes,\nms")
RATIO_HEADS = ("figure", "algorithm", "size", "cores", "model", "compiler", "ratio")


class Entry(NamedTuple):
    """One array of Table I, in seconds; None where there is none.

    Attributes:
        family: "KDFT" or "FFT".
        n: points along each dimension.
        way: the name of meshfft's algorithm: one as good as the paper's, then one that promises less.
        measured: by the paper.
        own: the paper's algorithm on the paper's mesh, modelled.
        paper: the paper's algorithm on its best mesh, modelled.
        blocks: meshfft's walk from and to blocks of all three dimensions, modelled.
        meshfft: meshfft's walk on its best mesh, modelled.
        compiled: the same by the compiler's cycles, modelled.
        floor: the physical floor, modelled.
        binds: the resource that takes longest in the best walk.
        mesh: the best mesh of meshfft's walk.
    """

    family: str
    n: int
    way: str
    measured: float | None
    own: float | None
    paper: float | None
    blocks: float | None
    meshfft: float | None
    compiled: float | None
    floor: float | None
    binds: str
    mesh: str

    @property
    def name(self) -> str:
        """What is transformed, and meshfft's way."""
        return f"{self.family} {self.n}^3 {SHORT[self.way]}"


class Table(NamedTuple):
    """A table: its title, its heads, and its lines as words."""

    title: str
    heads: Sequence[str]
    lines: list[list[str]]


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """Every table of which there are rows, but for the compiler's."""
    for name, topology in TABLES.items():
        found = [one for family in WAYS for one in entries(rows, name, family)]
        first = [one for one in found if one.way in (KDFT.name, FFT.name)]
        if topology in SHAPES and first:
            heads = [head.format(_mesh(SHAPES[topology])) for head in PAPER_HEADS]
            yield Table(f"Table I on {topology}: the paper's seconds, and its way modelled", heads, _paper(first))
        if found:
            heads = [head.format(_mesh(BLOCKS[topology])) for head in GAIN_HEADS]
            yield Table(f"Table I on {topology}: seconds of both ways, modelled", heads, _gains(found))
            yield Table(f"Table I on {topology}: seconds of meshfft, modelled", HEADS, _bounds(found))
    for scaling in SCALINGS:
        if lines := _scaling(find(rows, figure=scaling.name)):
            yield Table(f"{scaling.title}, strong scaling on TPU v3: seconds, modelled", SCALING_HEADS, lines)
    if lines := _singles(rows):
        yield Table("3-D KDFT, its way: the third dimension on (4, 4, n2), modelled", SINGLE_HEADS, lines)


def entries(rows: Iterable[Row], figure: str, family: str) -> list[Entry]:
    """The lines of a table for KDFT or FFT, the largest array first."""
    rows = find(rows, figure=figure, family=family)
    sizes = sorted({row.shape[0] for row in rows}, reverse=True)
    return [_entry(find(rows, shape=(n,) * 3), way, n) for n in sizes for way in WAYS[family][1:]]


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


def efficiency(row: Row, first: Row) -> float | None:
    """Ideal seconds over seconds, from the fewest cores."""
    if not row.seconds or first.seconds is None:
        return None
    return first.seconds * first.cores / row.cores / row.seconds


def _entry(rows: Sequence[Row], way: Algorithm, n: int) -> Entry:
    """The line of one algorithm among the rows of one array; the paper did only what the first does."""
    paper, first, _ = WAYS[way.family]
    same = rows if way == first else ()
    totals, planned = find(rows, quantity="total"), [row for row in rows if not is_compiled(row)]
    seen = [row for row in find(totals, algorithm=way.name, note=f"mesh: {BEST}") if is_compiled(row)]
    best = find(planned, algorithm=way.name, quantity="total", note=f"mesh: {BEST}")
    its = find(planned if same else (), algorithm=paper.name)
    floors = find(rows, algorithm=way.name, quantity="floor") or find(rows, algorithm=way.family, quantity="floor")
    return Entry(
        way.family,
        n,
        way.name,
        measured=_seconds(find(same, known="published")),
        own=_seconds(find(its, note=f"mesh: {OWN}")),
        paper=_seconds(find(its, note=f"mesh: {BEST}")),
        blocks=_seconds(find(planned, algorithm=way.name, note=f"mesh: {CUBES}")),
        meshfft=_seconds(best),
        compiled=_seconds(seen),
        floor=_seconds(floors),
        binds=best[0].binds if best else NONE,
        mesh=_mesh(best[0].mesh.values()) if best else NONE,
    )


def _paper(found: Sequence[Entry]) -> list[list[str]]:
    """The paper's numbers beside the model of its algorithm, each with its growth; under PAPER_HEADS."""
    lines = []
    for one in found:
        less = next((other for other in found if (other.family, 2 * other.n) == (one.family, one.n)), None)

        def grown(seconds: Callable[[Entry], float | None], one: Entry = one, less: Entry | None = less) -> list[str]:
            return [_number(seconds(one)), _times(seconds(one), None if less is None else seconds(less))]

        measured, own, best = (grown(pick) for pick in (lambda e: e.measured, lambda e: e.own, lambda e: e.paper))
        lines.append([f"{one.family} {one.n}^3", *measured, *own, _times(one.measured, one.own, 2), *best])
    return lines


def _gains(found: Sequence[Entry]) -> list[list[str]]:
    """Under GAIN_HEADS."""
    return [
        [
            *(one.name, _number(one.paper)),
            *(_number(one.blocks), _times(one.paper, one.blocks)),
            *(_number(one.meshfft), _times(one.paper, one.meshfft), one.mesh),
        ]
        for one in found
    ]


def _bounds(found: Sequence[Entry]) -> list[list[str]]:
    """Under HEADS."""
    return [
        [
            *(one.name, _number(one.meshfft), _number(one.compiled), _number(one.floor)),
            "links" if one.binds in LINKS else one.binds,
        ]
        for one in found
    ]


def _scaling(rows: Sequence[Row]) -> list[list[str]]:
    """Under SCALING_HEADS: a line for each number of cores."""
    made = [row for row in find(rows, quantity="total") if not is_compiled(row)]
    its = [row for row in made if row.algorithm.startswith("paper")]
    ours = {row.cores: row for row in made if row not in its}
    if not its or not ours:
        return []
    firsts = its[0], ours[its[0].cores]
    lines = []
    for row in its:
        if other := ours.get(row.cores):
            seconds, products, links, part = _scaled(row, firsts[0])
            found, _, sent, share = _scaled(other, firsts[1])
            lines.append([str(row.cores), seconds, products, links, part, found, sent, share])
    return lines


def _scaled(row: Row, first: Row) -> tuple[str, str, str, str]:
    """Seconds, of which products and links, and the efficiency."""
    links, part = sum(row.parts.get(name, 0.0) for name in LINKS), efficiency(row, first)
    numbers = (row.seconds, row.parts.get("products"), links)
    seconds, products, sent = map(_number, numbers)
    return seconds, products, sent, NONE if part is None else f"{part:.2f}"


def _singles(rows: Sequence[Row]) -> list[list[str]]:
    """Under SINGLE_HEADS."""
    permutes, einsums = (find(rows, quantity=f"single {name}") for name in ("permute", "einsum"))
    pairs = [(one, permute) for one, permute in zip(einsums, permutes, strict=True) if one.seconds and permute.seconds]
    return [
        [
            *(str(one.cores), _number(1e3 * (one.seconds or 0)), _number(1e3 * (permute.seconds or 0))),
            *(str(permute.mesh["z"] - 1), _number(1e3 * (permute.seconds or 0) * (permute.mesh["z"] - 1))),
        ]
        for one, permute in pairs
    ]


def _mesh(sizes: Iterable[int]) -> str:
    return ",".join(map(str, sizes))


def _seconds(rows: Sequence[Row]) -> float | None:
    return rows[0].seconds if rows else None


def _ratio(row: Row) -> float:
    return float(row.compiled["ratio"])


def _times(one: float | None, other: float | None, digits: int = 1) -> str:
    """One over the other."""
    return f"{one / other:.{digits}f}" if one and other else NONE


def _number(value: float | None) -> str:
    """Three digits, and never an exponent."""
    if value is None:
        return NONE
    text = f"{value:#.3g}".rstrip(".")
    return f"{value:.6f}" if "e" in text else text
