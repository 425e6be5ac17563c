"""The paper's evaluation: its tables, and series that pages quote.

FFT own                   seconds by size: Table I, a column of COLUMNS; `paper/meshfft` has a ratio of two
kdft-2d its efficiency    by cores: strong scaling of the paper's algorithm
single permutes           milliseconds by cores, of the third dimension
"""

from collections.abc import Mapping, Sequence

from ..paper.cases import SCALINGS
from ..paper.tables import LINKS, WAYS, entries, tables
from ..rows import Values, find
from .text import Named, Series, fenced, hundredths

COLUMNS = ("measured", "own", "paper", "blocks", "meshfft")  # of `paper.tables.entries`


def of_paper(rows: Sequence[Values]) -> Named:
    for title, heads, cells in tables(rows):
        yield f"table {title}", fenced(title, heads, cells)
    table = {family: entries(rows, family) for family in WAYS}
    for family, lines in table.items():
        yield from _of_table(family, {c: {str(one["n"]): one[c] for one in lines} for c in COLUMNS})
    pairs = zip(table["KDFT"], table["FFT"], strict=True)
    yield "KDFT/FFT own", Series({str(a["n"]): a["own"] / b["own"] for a, b in pairs}, hundredths)
    for scaling in SCALINGS:
        its = WAYS[scaling.family][0].name
        yield from _of_figure(f"{scaling.name} its", find(rows, figure=scaling.name, algorithm=its, quantity="total"))
    for name in ("permute", "einsum"):
        single = find(rows, quantity=f"single {name}")
        yield f"single {name}", Series({str(row["cores"]): 1e3 * row["seconds"] for row in single})
    hops = find(rows, quantity="single permute")
    yield "single permutes", Series({str(row["cores"]): 1e3 * row["seconds"] * (row["mesh"]["z"] - 1) for row in hops})


def _of_table(name: str, found: dict[str, dict[str, float]]) -> Named:
    for column, numbers in found.items():
        yield f"{name} {column}", Series(numbers)
        grown = {n: s / numbers[less] for n, s in numbers.items() if (less := str(int(n) // 2)) in numbers}
        yield f"{name} {column} growth", Series(grown, "{:.1f}".format)
    for ours in ("blocks", "meshfft"):
        gain = {n: s / found[ours][n] for n, s in found["paper"].items()}
        yield f"{name} paper/{ours}", Series(gain, "{:.1f}".format)
    off = {n: 100 * abs(s / found["own"][n] - 1) for n, s in found["measured"].items()}
    yield f"{name} off", Series(off, "{:.0f}".format)  # percent of the modelled


def _of_figure(name: str, rows: Sequence[Values]) -> Named:
    total = {str(row["cores"]): row["seconds"] for row in rows}
    links = {str(row["cores"]): sum(row["parts"].get(one, 0.0) for one in LINKS) for row in rows}
    share = {cores: 100 * links[cores] / spent for cores, spent in total.items()}
    efficiency = _efficiency(total)
    lost = {cores: spent * (1 - efficiency[cores]) for cores, spent in total.items()}
    yield from ((f"{name} {what}", Series(it)) for what, it in (("links", links), ("lost", lost)))
    yield f"{name} compute", Series({cores: spent - links[cores] for cores, spent in total.items()})
    yield f"{name} products", Series({str(row["cores"]): row["parts"]["products"] for row in rows})
    yield f"{name} efficiency", Series(efficiency, hundredths)
    yield f"{name} share of links", Series(share, "{:.0f}".format)


def _efficiency(total: Mapping[str, float]) -> dict[str, float]:
    first, seconds = next(iter(total.items()))
    return {cores: seconds * int(first) / int(cores) / spent for cores, spent in total.items()}
