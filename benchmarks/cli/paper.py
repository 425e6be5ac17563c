"""`python -m benchmarks paper`: the paper's evaluation, modelled; as tables, as JSON lines, and as figures."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from meshfft.cli import flags
from meshfft.cli.output import Progress, bar, guarded, print_columns, print_json, say
from meshfft.cli.plan import use_tpu_compiler
from meshfft.inspect.aot import devices_of

from ..made import made_by
from ..measure.words import folded
from ..paper.cases import cases, count
from ..paper.compiled import compiled_row
from ..paper.figures import check_folder, draw_all
from ..paper.modelled import known_rows, modelled_rows
from ..paper.paper import POD
from ..paper.rows import write_rows
from ..paper.tables import RATIO_HEADS, ratio_cells, tables

WORDS = (
    "measured: by the paper, on v3:32x32. its way: the paper's algorithm. growth: over the seconds of an eighth of the "
    "points. gain: seconds of its way over meshfft's. efficiency: ideal over modelled seconds. bf16x6, bf16x3: products. "
    "natural, any: order. compiled: modelled by the TPU compiler's cycles, with --compile."
)


@guarded
def paper(
    compiling: Annotated[
        bool, typer.Option("--compile", help="Compile every program too: half an hour and more.")
    ] = False,
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")] = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw the figures here.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Model the evaluation of the paper on TPU v3, and its table on v5p.

    Only the paper's own numbers are measured. Files that are there are replaced.
    """
    if compiling:
        use_tpu_compiler()
    _check(compiling, rows, figures)
    found = _collected(compiling)
    drawn = _kept(found, rows, figures)
    if as_json:
        print_json({"rows": [row.to_dict() for row in found], "figures": [str(path) for path in drawn]})
        return
    _print_tables(found)
    for path in [*([rows] if rows else []), *drawn]:
        say(f"Wrote {path}.")


def _check(compiling: bool, rows: Path | None, figures: Path | None) -> None:
    """Refuses what could not be done, before any work is done for it."""
    flags.check_rows(rows)
    if figures is not None:
        check_folder(figures)
    if compiling:
        devices_of(POD)


def _collected(compiling: bool) -> list[Any]:
    """All rows, each with what made it."""
    with bar(count() * (1 + compiling), in_bytes=False) as report:
        made = []
        report.begin("plan")
        for case in cases():
            report.begin(f"plan {_words(case)}")
            report.advance(1)
            made.append(case)
        found = [*known_rows(), *modelled_rows(made), *(_compiled(made, report) if compiling else ())]
    about = made_by(*(["libtpu"] if compiling else []))
    return [dataclasses.replace(row, made_by=about) for row in found]


def _compiled(made: Sequence[Any], report: Progress) -> list[Any]:
    found = []
    for case in made:
        report.begin(f"compile {_words(case)}")
        found.append(compiled_row(case))
        report.advance(1)
    return found


def _kept(found: Sequence[Any], rows: Path | None, figures: Path | None) -> list[Path]:
    """Writes and draws what was asked for; returns the figures."""
    if rows is not None:
        write_rows(rows, found)
    return draw_all(found, figures) if figures is not None else []


def _print_tables(found: Sequence[Any]) -> None:
    """Every table; and where programs were compiled, the model against the compiler."""
    for title, heads, lines in tables(found):
        say(f"{title}\n")
        print_columns(heads, lines)
        say()
    say(folded(WORDS))
    if lines := ratio_cells(found):
        say("\nCompute seconds: the cost model's and the compiler's cycles', both modelled.\n")
        print_columns(RATIO_HEADS, lines)


def _words(case: Any) -> str:
    return f"{case.algorithm.name}, {'x'.join(map(str, case.plan.shape))}, {case.cores} cores"
