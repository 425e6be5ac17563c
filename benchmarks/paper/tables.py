"""The evaluation's tables, made of rows: Table I, strong scaling, one operation of the third dimension.

growth       seconds / seconds of an eighth of the points      gain   seconds of the paper's way / meshfft's
efficiency   ideal seconds / seconds
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .cases import BEST, BLOCKS, CUBES, FFT, FFT_ANY, KDFT, KDFT_3, OWN, PAPER_FFT, PAPER_KDFT, SCALINGS, SHAPES, TABLES
from .rows import Row, find

NONE = "-"
WAYS = {"KDFT": (PAPER_KDFT, KDFT, KDFT_3), "FFT": (PAPER_FFT, FFT, FFT_ANY)}  # the paper's, then meshfft's
SHORT = {KDFT.name: "bf16x6", KDFT_3.name: "bf16x3", FFT.name: "natural", FFT_ANY.name: "any"}
LINKS = ("permutes", "all-to-alls")
PAPER_HEADS = ("array", "paper,\nmeasured", "growth", "on\n{}", "growth", "paper /\nmodel", "on best\nmesh", "growth")
GAIN_HEADS = ("array", "its way,\nbest mesh", "meshfft,\n{}", "gain", "best\nmesh", "gain", "mesh", "floor")
SCALING_HEADS = ("cores", *("its way", "products", "links", "effi-\nciency"), *("meshfft", "links", "effi-\nciency"))
SINGLE_HEADS = ("cores", "one einsum,\nms", "one permute,\nms", "permutes", "all permutes,\nms")
Seconds = float | None


class Entry(NamedTuple):
    """One array of Table I, in seconds, modelled except for the paper's own; None for a missing number."""

    family: str
    n: int
    way: str  # the name of meshfft's algorithm: one as good as the paper's, then one that promises less
    measured: Seconds  # by the paper
    own: Seconds  # the paper's algorithm on the paper's mesh
    paper: Seconds  # and on its best one
    blocks: Seconds  # meshfft's walk from and to blocks of all three dimensions
    meshfft: Seconds  # and on its best mesh
    floor: Seconds
    mesh: str  # of the best walk

    @property
    def name(self) -> str:
        return f"{self.n}^3 {SHORT[self.way]}"


class Table(NamedTuple):
    """A table: its title, its column names, and its lines as words."""

    title: str
    heads: Sequence[str]
    lines: list[list[str]]


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    for name, topology in TABLES.items():
        found = [one for family in WAYS for one in entries(rows, name, family)]
        first = [one for one in found if one.way in (KDFT.name, FFT.name)]
        if topology in SHAPES and first:
            heads = [head.format(_mesh(SHAPES[topology])) for head in PAPER_HEADS]
            yield Table(f"Table I on {topology}: the paper's seconds, and its way modelled", heads, _paper(first))
        if found:
            heads = [head.format(_mesh(BLOCKS[topology])) for head in GAIN_HEADS]
            yield Table(f"Table I on {topology}: seconds of both ways, modelled", heads, list(map(_gains, found)))
    for scaling in SCALINGS:
        if lines := _scaling(find(rows, figure=scaling.name)):
            yield Table(f"{scaling.title}, strong scaling on TPU v3: seconds, modelled", SCALING_HEADS, lines)
    if lines := _singles(rows):
        yield Table("3-D KDFT, its way: the third dimension on (4, 4, n2), modelled", SINGLE_HEADS, lines)


def entries(rows: Iterable[Row], figure: str, family: str) -> list[Entry]:
    """The lines of a table for KDFT or FFT, the largest array first."""
    rows = find(rows, figure=figure, family=family)
    sizes = sorted({row.shape[0] for row in rows}, reverse=True)
    return [_entry(find(rows, shape=(n,) * 3), family, way.name, n) for n in sizes for way in WAYS[family][1:]]


def _entry(rows: Sequence[Row], family: str, way: str, n: int) -> Entry:
    paper, first, _ = WAYS[family]
    totals = find(rows, quantity="total")
    best = find(totals, algorithm=way, note=f"mesh: {BEST}")
    its = find(totals if way == first.name else (), algorithm=paper.name)
    floors = find(rows, algorithm=way, quantity="floor") or find(rows, algorithm=family, quantity="floor")
    return Entry(
        family,
        n,
        way,
        measured=_seconds(find(rows if way == first.name else (), known="published")),
        own=_seconds(find(its, note=f"mesh: {OWN}")),
        paper=_seconds(find(its, note=f"mesh: {BEST}")),
        blocks=_seconds(find(totals, algorithm=way, note=f"mesh: {CUBES}")),
        meshfft=_seconds(best),
        floor=_seconds(floors),
        mesh=_mesh(best[0].mesh.values()) if best else NONE,
    )


def _paper(found: Sequence[Entry]) -> list[list[str]]:
    lines, points = [], {(one.family, one.n): one for one in found}
    for one in found:
        less = points.get((one.family, one.n // 2))
        measured = [number(one.measured), _times(one.measured, less and less.measured)]
        own = [number(one.own), _times(one.own, less and less.own), _times(one.measured, one.own, 2)]
        best = [number(one.paper), _times(one.paper, less and less.paper)]
        lines.append([f"{one.family} {one.n}^3", *measured, *own, *best])
    return lines


def _gains(one: Entry) -> list[str]:
    blocks = [number(one.blocks), _times(one.paper, one.blocks)]
    best = [number(one.meshfft), _times(one.paper, one.meshfft), one.mesh]
    return [one.name, number(one.paper), *blocks, *best, number(one.floor)]


def _scaling(rows: Sequence[Row]) -> list[list[str]]:
    made = find(rows, quantity="total")
    its = [row for row in made if row.algorithm.startswith("paper")]
    ours = {row.cores: row for row in made if row not in its}
    if not its or not ours:
        return []
    lines, first = [], ours[its[0].cores]
    for row in its:
        if other := ours.get(row.cores):
            found, _, *shares = _scaled(other, first)
            lines.append([str(row.cores), *_scaled(row, its[0]), found, *shares])
    return lines


def _scaled(row: Row, first: Row) -> tuple[str, str, str, str]:
    links = sum(row.parts.get(name, 0.0) for name in LINKS)
    ideal = first.seconds * first.cores / row.cores
    return number(row.seconds), number(row.parts.get("products")), number(links), _times(ideal, row.seconds, 2)


def _singles(rows: Sequence[Row]) -> list[list[str]]:
    permutes, einsums = (find(rows, quantity=f"single {name}") for name in ("permute", "einsum"))
    lines = []
    for einsum, permute in zip(einsums, permutes, strict=True):
        one, hops = 1e3 * permute.seconds, permute.mesh["z"] - 1
        lines.append([str(einsum.cores), number(1e3 * einsum.seconds), number(one), str(hops), number(one * hops)])
    return lines


def _mesh(sizes: Iterable[int]) -> str:
    return ",".join(map(str, sizes))


def _seconds(rows: Sequence[Row]) -> Seconds:
    return rows[0].seconds if rows else None


def _times(one: Seconds, other: Seconds, digits: int = 1) -> str:
    return f"{one / other:.{digits}f}" if one and other else NONE


def number(value: Seconds) -> str:
    if value is None:
        return NONE
    text = f"{value:#.3g}".rstrip(".")
    return f"{value:.6f}" if "e" in text else text
