"""The paper's evaluation: its tables, and series that pages quote.

FFT own                   seconds by size: Table I, a column of COLUMNS; `paper/meshfft` has a ratio of two
kdft-2d its efficiency    by cores: strong scaling of the paper's algorithm
single permutes           milliseconds by cores, of the third dimension
"""

from collections.abc import Sequence

from ..paper.cases import SCALINGS
from ..paper.tables import WAYS, entries, scaled, tables
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
    found = {one["cores"]: one for one in scaled(rows)}
    lost = {cores: one["seconds"] * (1 - one["efficiency"]) for cores, one in found.items()}
    compute = {cores: one["seconds"] - one["links"] for cores, one in found.items()}
    share = {cores: 100 * one["links"] / one["seconds"] for cores, one in found.items()}
    yield from ((f"{name} {what}", Series(it)) for what, it in (("lost", lost), ("compute", compute)))
    yield from ((f"{name} {of}", Series({c: one[of] for c, one in found.items()})) for of in ("links", "products"))
    yield f"{name} efficiency", Series({cores: one["efficiency"] for cores, one in found.items()}, hundredths)
    yield f"{name} share of links", Series(share, "{:.0f}".format)
