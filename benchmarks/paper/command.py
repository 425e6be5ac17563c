"""`python -m benchmarks paper`: the paper's evaluation, modelled, as tables and rows."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, say, waiting

from ..measure.words import folded
from ..rows import read as read_rows
from ..rows import write
from .cases import cases
from .modelled import known_rows, modelled_rows
from .tables import tables

WORDS = (
    "paper: measured by the paper, on v3:32x32. its: the paper's algorithm, on the paper's mesh and on its best one. "
    "ours: meshfft's. gain: its best over ours on 8,16,16. efficiency: ideal over modelled seconds."
)


@guarded
def paper(
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")] = None,
    read: Annotated[Path | None, typer.Option(metavar="FILE", help="Print this file's rows; model nothing.")] = None,
) -> None:
    """Model the evaluation of the paper on TPU v3.

    Only the paper's own numbers are measured. Files that are there are replaced.
    """
    if read is not None and rows is not None:
        raise ValueError("--read takes rows as they are: leave out --rows")
    flags.check_rows(rows)
    if read is None:
        with waiting("planning every case"):
            made = list(cases())
        found = [*known_rows(), *modelled_rows(made)]
    else:
        found = read_rows(read)
    write(rows, found)
    for title, heads, lines in tables(found):
        say(f"{title}\n")
        print_columns(heads, lines)
        say()
    say(folded(WORDS))
    if rows is not None:
        say(f"Wrote {rows}.")
