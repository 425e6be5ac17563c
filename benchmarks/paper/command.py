"""`python -m benchmarks paper`: the paper's evaluation, modelled, as tables, rows and figures."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, say, waiting

from ..measure.words import folded
from ..rows import read as read_rows
from ..rows import write
from .cases import cases
from .figures import check_folder, draw_all
from .modelled import known_rows, modelled_rows
from .tables import tables

WORDS = (
    "paper: measured by the paper, on v3:32x32. its: the paper's algorithm, on the paper's mesh and on its best one. "
    "ours: meshfft's. gain: its best over ours on 8,16,16. efficiency: ideal over modelled seconds."
)


@guarded
def paper(
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")] = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw the figures here.")] = None,
    read: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Print and draw the rows of this file; model nothing.")
    ] = None,
) -> None:
    """Model the evaluation of the paper on TPU v3.

    Only the paper's own numbers are measured. Files that are there are replaced.
    """
    if read is not None and rows is not None:
        raise ValueError("--read takes rows as they are: leave out --rows")
    flags.check_rows(rows)
    if figures is not None:
        check_folder(figures)
    if read is None:
        with waiting("planning every case"):
            made = list(cases())
        found = [*known_rows(), *modelled_rows(made)]
    else:
        found = read_rows(read)
    write(rows, found)
    drawn = draw_all(found, figures) if figures is not None else []
    for title, heads, lines in tables(found):
        say(f"{title}\n")
        print_columns(heads, lines)
        say()
    say(folded(WORDS))
    for path in [*([rows] if rows else []), *drawn]:
        say(f"Wrote {path}.")
