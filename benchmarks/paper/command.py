"""`python -m benchmarks paper`: the paper's evaluation, modelled, as tables and rows."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, say, waiting

from ..measure.words import folded
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
) -> None:
    """Model the evaluation of the paper on TPU v3, in about seven minutes on two cores.

    Only the paper's own numbers are measured. Files that are there are replaced.
    """
    flags.check_rows(rows)
    with waiting("planning every case"):
        made = list(cases())
    found = [*known_rows(), *modelled_rows(made)]
    write(rows, found)
    for title, heads, lines in tables(found):
        say(f"{title}\n")
        print_columns(heads, lines)
        say()
    say(folded(WORDS))
