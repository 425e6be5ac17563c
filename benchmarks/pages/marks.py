"""README.md and pages of docs/ with the numbers of benchmarks/results.

A page has them between marks, which readers do not see:

    <!--=SERIES KEY,KEY-->0.97, 0.92<!--/-->    numbers of a series (`series.py`); all of them without keys
    <!--=SERIES KEY/KEY-->64<!--/-->            the quotient of two of them
    <!--=table TITLE-->...<!--/-->              a table (`tables.py`)

Prints the lines that it changes, so that their sentences can be judged again.
"""

import difflib
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import rows as files
from ..measure.measured import read_rows as read_measured
from ..paper.rows import read_rows
from . import series, tables

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MARK = re.compile(r"(<!--=(.*?)-->)(.*?)(<!--/-->)", re.DOTALL)


def main() -> None:
    found = quotes(RESULTS)
    for path in marked_pages():
        old = path.read_text()
        new = remade(old, found)
        print(f"{path.name}: {len(MARK.findall(new))} marks")
        if new != old:
            path.write_text(new)
        changed = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        print("".join(f"    {line}\n" for line in itertools.islice(changed, 2, None)), end="")


def marked_pages() -> list[Path]:
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return [path for path in pages if MARK.search(path.read_text())]


class Quotes(NamedTuple):
    """What marks can name."""

    tables: dict[str, str]
    series: dict[str, series.Series]

    def text(self, name: str) -> str:
        """The text of a mark; raises ValueError for a table, series or key that the rows lack."""
        if name.startswith("table "):
            return str(_of(self.tables, name.removeprefix("table ")))
        if name in self.series:
            return ", ".join(map(self.series[name].form, self.series[name].numbers.values()))
        head, _, keys = name.rpartition(" ")
        numbers, form = _of(self.series, head)
        if "/" in keys:
            above, below = (_of(numbers, key) for key in keys.split("/"))
            return f"{above / below:.3g}"
        return ", ".join(form(_of(numbers, key)) for key in keys.split(","))


def quotes(results: Path) -> Quotes:
    paper, authors = read_rows(results / "paper.jsonl"), read_measured(results / "authors-epyc-2cores.jsonl")
    names = ("programs-pod.jsonl", "programs-256-2cores.jsonl", "long-convolution-2cores.jsonl")
    pod, beside, convolved = ([*files.read(results / name).values()] for name in names)
    made = [tables.of_paper(paper), tables.of_programs(pod), tables.of_authors(authors)]
    made.append(tables.of_convolutions(convolved))
    found = [series.of_paper(paper), series.of_programs(pod), series.of_authors(authors)]
    found.append(series.of_baselines(read_measured(results / "fft-epyc-2cores.jsonl"), beside))
    return Quotes(dict(itertools.chain(*made)), dict(itertools.chain(*found)))


def remade(text: str, found: Quotes) -> str:
    """A page with every marked text as the rows have it."""
    return MARK.sub(lambda mark: mark[1] + found.text(mark[2]) + mark[4], text)


def _of(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        near = difflib.get_close_matches(name, given, n=5, cutoff=0)
        raise ValueError(f"the rows have no {name!r}: name another, such as {', '.join(near)}")
    return given[name]
