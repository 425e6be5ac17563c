"""`python -m benchmarks fft` and its kin: measured here and now, meshfft beside its baselines."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, print_json, say

from ..measure.baselines import names_that_scale
from ..measure.cases import Task
from ..measure.regression import HEADS as CHANGE_HEADS
from ..measure.regression import Change, cells, changes, to_measure, unlike, worse
from ..measure.rows import Row, read_rows
from ..measure.scaling import HEADS as SCALING_HEADS
from ..measure.scaling import grown, points_of, sharing, tables
from ..measure.words import folded, notes
from . import speed


@guarded
def fft(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    mesh: speed.Meshes = None,
    kind: flags.Kind = "fft",
    dtype: speed.Dtype = None,
    method: speed.Methods = "auto",
    order: speed.Orders = "natural,any",
    precision: speed.Precisions = "default",
    baselines: speed.Baselines = "all",
    rounds: speed.Rounds = 15,
    rows: speed.Rows = None,
    as_json: flags.Json = False,
) -> None:
    """Measure transforms of one array: meshfft on each mesh, and what else there is.

    Calls take turns in an order shuffled every round. Without --mesh: slab, pencil and block of all devices; on
    the CPU eight that share its cores. Rows that are there are replaced.
    """
    speed.check_flags(rounds, rows)
    task = speed.task_of(shape, dtype, kind)
    how = speed.how_of(method, order, precision)
    found = speed.beside(task, mesh, how, baselines, rounds, rows)
    speed.tell(found, f"{kind} of {' x '.join(map(str, task.shape))} {task.dtype}", as_json, rows)


@guarded
def dense(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    samples: Annotated[
        str | None, typer.Option(metavar="M,M,...", help="Points along each dimension; by default as many as inputs.")
    ] = None,
    mesh: speed.Meshes = None,
    dtype: speed.Dtype = None,
    precision: speed.Precisions = "default",
    baselines: speed.Baselines = "all",
    rounds: speed.Rounds = 15,
    rows: speed.Rows = None,
    as_json: flags.Json = False,
) -> None:
    """Measure transforms at random points: meshfft's kdftn, and finufft along one dimension after the other.

    finufft takes all cores, and is asked for 1e-6, in complex128 1e-12. Otherwise as benchmarks fft.
    """
    speed.check_flags(rounds, rows)
    task = speed.task_of(shape, dtype, "fft")
    many = task.shape if samples is None else flags.read_sizes(samples, "--samples", "256,256,256")
    fits = len(many) == len(task.shape)
    if not fits:
        raise ValueError(f"--samples {samples} for {len(task.shape)} dimensions: give as many numbers as the shape has")
    task = task._replace(samples=many)
    found = speed.beside(task, mesh, speed.how_of("kdft", "natural", precision), baselines, rounds, rows)
    sizes, points = (" x ".join(map(str, values)) for values in (task.shape, many))
    speed.tell(found, f"{sizes} {task.dtype} at {points} random points", as_json, rows)


@guarded
def scaling(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    devices: Annotated[str, typer.Option(metavar="P,P,...", help="On how many devices.")] = "1,2,4,8",
    weak: Annotated[
        bool, typer.Option("--weak", help="The array grows with the devices; SHAPE is that of the fewest.")
    ] = False,
    kind: flags.Kind = "fft",
    dtype: speed.Dtype = None,
    method: speed.Methods = "auto",
    order: speed.Orders = "natural",
    precision: speed.Precisions = "default",
    baselines: speed.Baselines = "all",
    rounds: speed.Rounds = 15,
    rows: speed.Rows = None,
    as_json: flags.Json = False,
) -> None:
    """Measure transforms on more and more devices: seconds, ideal seconds, and parallel efficiency.

    The ideal line is the paper's, T_first / (P / first); with --weak it is flat. meshfft takes the mesh that is
    modelled to be its fastest, baselines the fastest of theirs. CPU devices share the machine's cores. Rows that are
    there are replaced.
    """
    speed.check_flags(rounds, rows)
    task = speed.task_of(shape, dtype, kind)
    counts = sorted(set(flags.read_sizes(devices, "--devices", "1,2,4,8")))
    how, others = speed.how_of(method, order, precision), speed.baselines_of(baselines, task.what, names_that_scale())
    tasks = [_grown(task, counts[0], count) if weak else task for count in counts]
    there = speed.start_devices(counts[-1], "--devices")
    cases = [
        case
        for one, count in zip(tasks, counts, strict=True)
        for case in speed.cases_on(one, there[:count], how, others)
    ]
    found = speed.run(cases, there, rounds)
    speed.keep(found, rows)
    _tell_scaling(found, weak, as_json)
    if rows is not None and not as_json:
        say(f"Wrote {rows}.")


def _grown(task: Task, first: int, count: int) -> Task:
    return task._replace(shape=grown(task.shape, first, count))


def _tell_scaling(rows: Sequence[Row], weak: bool, as_json: bool) -> None:
    """Prints a table for each way, or one object with its points."""
    if as_json:
        scaled = {name: [one.to_dict() for one in line] for name, line in points_of(rows, weak).items()}
        print_json({"weak": weak, "scaling": scaled, "rows": [row.to_dict() for row in rows]})
        return
    task = rows[0].case.task
    say(f"{'Weak' if weak else 'Strong'} scaling, {task.kind} of {task.dtype}")
    for name, lines in tables(rows, weak).items():
        say(f"\n{name}\n")
        print_columns(SCALING_HEADS, lines)
    say(f"\n{sharing(rows)}{notes(rows, ratio=False)}")


@guarded
def guard(
    baseline: Annotated[Path, typer.Argument(metavar="ROWS", help="A file that another bench wrote with --rows.")],
    factor: Annotated[float, typer.Option(metavar="F", help="How many times a ratio may grow.")] = 1.25,
    rounds: speed.Rounds = 15,
    rows: speed.Rows = None,
    as_json: flags.Json = False,
) -> None:
    """Measure the cases of a file again, and see whether meshfft became slower than its baselines did.

    Compares ratios to the baselines that are present in both, never seconds. The exit code is 1 where a ratio grew by
    more than --factor, or a case is absent that was not; run it when nothing else runs. New rows go to --rows.
    """
    speed.check_flags(rounds, rows)
    if not 1 <= factor < math.inf:
        raise ValueError(f"--factor {factor} would take what became faster for slower: give 1 or more, as 1.25")
    before = read_rows(baseline)
    cases = to_measure(before)
    now = speed.run(cases, speed.devices_for(cases), rounds)
    speed.keep(now, rows)
    found = changes(before, now)
    slower = worse(found, factor)
    if as_json:
        told = {"changes": [one.to_dict() for one in found], "worse": len(slower), "factor": factor}
        print_json({**told, "rows": [row.to_dict() for row in now]})
    else:
        _tell_changes(before, now, found, factor)
    if slower:
        raise typer.Exit(1)


def _tell_changes(before: Sequence[Row], now: Sequence[Row], found: Sequence[Change], factor: float) -> None:
    say("Ratios to the baselines (their geometric mean) before and now.\n")
    print_columns(CHANGE_HEADS, cells(found, factor))
    slower = len(worse(found, factor))
    verdict = f"{slower} of {len(found)} worse than {factor:g} times before."
    for line in (unlike(before, now), verdict):
        if line:
            say(f"\n{folded(line)}")
    say(notes(now, ratio=False))
