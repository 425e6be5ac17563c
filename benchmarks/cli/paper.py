"""`python -m benchmarks paper`: the paper's evaluation, modelled; its algorithms measured; as tables, rows, figures."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

from meshfft.cli import flags
from meshfft.cli.output import Progress, bar, guarded, print_columns, print_json, say
from meshfft.cli.plan import use_tpu_compiler
from meshfft.inspect.aot import devices_of
from meshfft.inspect.trace import check_profiler

from ..made import made_by
from ..measure.scaling import sharing
from ..measure.words import folded, notes
from ..paper.cases import cases, count
from ..paper.compiled import compiled_row
from ..paper.figures import check_folder, draw_all
from ..paper.measured import measured_cases, measured_tables, with_breakdowns, write_measured
from ..paper.modelled import known_rows, modelled_rows
from ..paper.paper import POD
from ..paper.rows import read_rows, write_rows
from ..paper.tables import RATIO_HEADS, Table, ratio_cells, tables
from . import speed

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
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the paper's algorithms on the devices here instead.")
    ] = False,
    devices: Annotated[str, typer.Option(metavar="P,P,...", help="With --measure: on how many devices.")] = "1,2,4,8",
    sizes: Annotated[
        str, typer.Option(metavar="N,N,...", help="With --measure: points along each of three dimensions.")
    ] = "64,128,256",
    rounds: speed.Rounds = 15,
    as_json: flags.Json = False,
) -> None:
    """Model the evaluation of the paper on TPU v3, and its table on v5p.

    Only the paper's own numbers are measured. With --measure both of its algorithms run here: the largest array on
    each number of devices, every array on the most, and where their time goes. Files that are there are replaced.
    """
    if measure:
        _measure(devices, sizes, rounds, rows, as_json, compiling or figures is not None or read is not None)
        return
    if compiling:
        use_tpu_compiler()
    if read is not None and (compiling or rows is not None):
        raise ValueError("--read takes rows as they are: leave out --compile and --rows")
    _check(compiling, rows, figures)
    found = _collected(compiling) if read is None else read_rows(read)
    drawn = _kept(found, rows, figures)
    if as_json:
        print_json({"rows": [row.to_dict() for row in found], "figures": [str(path) for path in drawn]})
        return
    _print_tables(found)
    for path in [*([rows] if rows else []), *drawn]:
        say(f"Wrote {path}.")


def _measure(devices: str, sizes: str, rounds: int, path: Path | None, as_json: bool, modelled: bool) -> None:
    """Measures, prints and keeps."""
    if modelled:
        raise ValueError("--measure models nothing: leave out --compile, --figures and --read")
    speed.check_flags(rounds, path)
    check_profiler(jax.config.values["jax_platforms"])
    counts = sorted(set(flags.read_sizes(devices, "--devices", "1,2,4,8")))
    cases = measured_cases(counts, sorted(set(flags.read_sizes(sizes, "--sizes", "64,128,256"))))
    there = speed.start_devices(counts[-1], "--devices")
    speed.check_walks(cases)
    rows = speed.run(cases, there, rounds)
    with bar(len(rows), in_bytes=False) as report:

        def told(words: str) -> None:
            report.begin(words)
            report.advance(1)

        found = with_breakdowns(rows, there, told)
    if path is not None:
        write_measured(path, found)
    if as_json:
        print_json({"rows": [one.to_dict() for one in found]})
        return
    _print(measured_tables(found))
    say(sharing(rows) + notes(rows, ratio=False))
    if path is not None:
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
    _print(tables(found))
    say(folded(WORDS))
    if lines := ratio_cells(found):
        say("\nCompute seconds: the cost model's and the compiler's cycles', both modelled.\n")
        print_columns(RATIO_HEADS, lines)


def _print(found: Iterable[Table]) -> None:
    for title, heads, lines in found:
        say(f"{title}\n")
        print_columns(heads, lines)
        say()


def _words(case: Any) -> str:
    return f"{case.algorithm.name}, {'x'.join(map(str, case.plan.shape))}, {case.cores} cores"
