"""`python -m benchmarks paper`: the paper's evaluation, modelled, as tables, rows and figures."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.cluster import use_tpu_compiler
from meshfft.cli.output import bar, guarded, print_columns, say, waiting
from meshfft.inspect.aot import devices_of

from ..measure.words import folded
from ..rows import write
from .cases import POD, cases
from .figures import check_folder, draw_all
from .modelled import compiled_row, known_rows, modelled_rows
from .rows import Row, read_rows
from .tables import RATIO_HEADS, Table, ratio_cells, tables

WORDS = (
    "measured: by the paper, on v3:32x32. its way: the paper's algorithm. growth: over the seconds of an eighth of the "
    "points. gain: seconds of its way over meshfft's. efficiency: ideal over modelled seconds. bf16x6, bf16x3: "
    "products. natural, any: order. compiled: modelled by the TPU compiler's cycles, with --compile."
)


@guarded
def paper(
    compiling: Annotated[
        bool, typer.Option("--compile", help="Compile every program too: half an hour and more.")
    ] = False,
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")] = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw the figures here.")] = None,
    read: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Print and draw the rows of this file; model nothing.")
    ] = None,
) -> None:
    """Model the evaluation of the paper on TPU v3, and its table on v5p.

    Only the paper's own numbers are measured. Files that are there are replaced.
    """
    if read is not None and (compiling or rows is not None):
        raise ValueError("--read takes rows as they are: leave out --compile and --rows")
    flags.check_rows(rows)
    if figures is not None:
        check_folder(figures)
    if compiling:
        use_tpu_compiler()
        devices_of(POD)
    found = list(_collected(compiling)) if read is None else read_rows(read)
    write(rows, (row.to_dict() for row in found), *["libtpu"] * compiling)
    drawn = draw_all(found, figures) if figures is not None else []
    _print(tables(found))
    say(folded(WORDS))
    if lines := ratio_cells(found):
        say("\nCompute seconds: the cost model's and the compiler's cycles', both modelled.\n")
        print_columns(RATIO_HEADS, lines)
    for path in [*([rows] if rows else []), *drawn]:
        say(f"Wrote {path}.")


def _collected(compiling: bool) -> Iterator[Row]:
    yield from known_rows()
    with waiting("planning every case"):
        made = list(cases())
    yield from modelled_rows(made)
    with bar(len(made) * compiling, in_bytes=False) as report:
        for case in made if compiling else ():
            report.begin(f"compile {case.name}")
            yield compiled_row(case)
            report.advance(1)


def _print(found: Iterable[Table]) -> None:
    for title, heads, lines in found:
        say(f"{title}\n")
        print_columns(heads, lines)
        say()
