"""Makes the rows of every part that lacks them at this commit, and puts them into README.md and docs/.

A page has them between marks, which readers do not see:

    <!--=SERIES KEY,KEY-->0.97, 0.92<!--/-->    numbers of a series; all of them without keys
    <!--=SERIES KEY/KEY-->64<!--/-->            the quotient of two of them
    <!--=table TITLE-->...<!--/-->              a table

Without --modelled it runs the measured parts, in at most three hours on two cores; run again, it continues where it
stopped. Prints the lines that it changes, so that their sentences can be judged again. Then it draws the figures.
"""

import difflib
import itertools
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .. import rows as files
from .figures import draw
from .parts import PARTS, ROOT, Part, chosen, missing, run
from .text import Series

FIGURES = ROOT / "docs" / "figures"
MARK = re.compile(r"(<!--=(.*?)-->)(.*?)(<!--/-->)", re.DOTALL)


def main(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="These parts alone.")] = None,
    modelled: Annotated[bool, typer.Option("--modelled", help="The modelled parts, not the measured ones.")] = False,
    pages: Annotated[bool, typer.Option("--pages", help="Only puts the rows that there are into the pages.")] = False,
) -> None:
    commit, parts = files.commit(), [] if pages else chosen(only or (), modelled)
    if parts and (not commit or commit.endswith("dirty")):
        raise SystemExit("src or benchmarks has changes, or this is no clone: commit them first")
    failed = [part.name for part in parts if not tried(part, commit)]
    fill(quotes())
    draw({part.name: files.read(part.path) for part in PARTS if part.path.exists()}, FIGURES)
    if failed:
        raise SystemExit(f"without new rows: {', '.join(failed)}")


def tried(part: Part, commit: str) -> bool:
    """Whether a part has rows of this commit now; the reason is printed otherwise."""
    begun = time.monotonic()
    if absent := missing(part):
        print(f"{part.name}: {', '.join(absent)} is not here (benchmarks/README.md)")
        return False
    try:
        run(part, commit)
    except subprocess.CalledProcessError as error:
        print(f"{part.name}: {error}")
        return False
    print(f"{part.name}: {(time.monotonic() - begun) / 60:.1f} minutes, planned {part.minutes}", flush=True)
    return True


def fill(found: "Quotes") -> None:
    for path in marked_pages():
        old, unknown = path.read_text(), list[str]()
        new = remade(old, found, unknown.append)
        print(f"{path.name}: {len(MARK.findall(new))} marks" + "".join(f"; no rows for {name}" for name in unknown))
        if new != old:
            path.write_text(new)
        changed = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        print("".join(f"    {line}\n" for line in itertools.islice(changed, 2, None)), end="")


def marked_pages() -> list[Path]:
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return [path for path in pages if MARK.search(path.read_text())]


class Quotes(NamedTuple):
    """What marks can name: tables and series, and the commits of the rows of each, which tests compare."""

    values: dict[str, str | Series]
    commits: dict[str, set[str]]

    def text(self, name: str) -> str:
        """The text of a mark; raises ValueError for a table, series or key that the rows lack."""
        head, keys = self.split(name)
        found = _of(self.values, head)
        if isinstance(found, str):
            return found
        numbers, form = found
        if "/" in keys:
            above, below = (_of(numbers, key) for key in keys.split("/"))
            return f"{above / below:.3g}"
        return ", ".join(map(form, [_of(numbers, key) for key in keys.split(",")] if keys else numbers.values()))

    def split(self, name: str) -> tuple[str, str]:
        head, _, keys = name.rpartition(" ")
        return (name, "") if name in self.values or name.startswith("table ") else (head, keys)


def quotes() -> Quotes:
    found = Quotes({}, {})
    for part in (one for one in PARTS if one.path.exists()):
        rows = files.read(part.path)
        made = dict(part.made(rows))
        found.values.update(made)
        found.commits.update({name: {row.get("commit", "") for row in rows} for name in made})
    return found


def remade(text: str, found: Quotes, unknown: Callable[[str], Any]) -> str:
    """A page with every marked text as the rows have it; one without rows is reported, and stays."""

    def new(mark: re.Match[str]) -> str:
        try:
            return mark[1] + found.text(mark[2]) + mark[4]
        except ValueError:
            unknown(mark[2])
            return mark[0]

    return MARK.sub(new, text)


def _of(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        near = difflib.get_close_matches(name, given, n=5, cutoff=0)
        raise ValueError(f"the rows have no {name!r}: name another, such as {', '.join(near)}")
    return given[name]
