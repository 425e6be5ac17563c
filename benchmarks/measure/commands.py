"""`python -m benchmarks fft` and `scaling`: measured here and now, meshfft beside its baselines."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, say

from ..rows import write
from . import flags as own
from . import scaling as scales
from . import words
from .baselines import SCALING, names_for


@guarded
def fft(
    shape: own.Shape,
    samples: Annotated[
        str | None, typer.Option(metavar="M,M,...", help="So many random points along each dimension, by kdft.")
    ] = None,
    mesh: own.Meshes = None,
    kind: flags.KindFlag = "fft",
    dtype: own.Dtype = None,
    method: own.Methods = "auto",
    order: own.Orders = "natural,any",
    precision: own.Precisions = "default",
    ring: flags.RingFlag = None,
    baselines: own.Baselines = "all",
    program: own.Program = None,
    rounds: own.Rounds = 15,
    rows: own.Rows = None,
) -> None:
    """Measure transforms of one array: meshfft on each mesh, and every baseline.

    Calls are interleaved in an order shuffled every round. Without --mesh: slab, pencil and block of all devices; on
    the CPU eight that share its cores. With --samples: kdftn, and finufft along one dimension after another, on all
    cores and asked for 1e-6, in complex128 1e-12. Existing rows of the same cases are replaced.
    """
    own.check_flags(rounds, rows)
    task, title = own.task_of(shape, dtype, kind), ""
    if samples is not None:
        many = flags.read_sizes(samples, "--samples", "256,256,256")
        if len(many) != len(task.shape) or kind != "fft":
            raise ValueError(f"--samples {samples} for {kind} of {shape}: give a number for each dimension of an fft")
        task, title = task._replace(samples=many), f" at {' x '.join(map(str, many))} random points"
        method, order = "kdft", "natural"
    ways = own.ways_of(method, order, precision, ring)
    others = own.baselines_of(baselines, names_for(task.what))
    devices, meshes = own.start_meshes(mesh, len(task.shape))
    found = own.run(own.cases_of(task, meshes, ways, others), devices, rounds, program)
    write(rows, (row.to_dict() for row in found))
    say(f"{kind} of {' x '.join(map(str, task.shape))} {task.dtype}{title}\n")
    print_columns(words.HEADS, words.cells(found))
    say(f"\n{words.notes(found)}{_wrote(rows)}")


@guarded
def scaling(
    shape: own.Shape,
    devices: Annotated[str, typer.Option(metavar="P,P,...", help="On how many devices.")] = "1,2,4,8",
    weak: Annotated[
        bool, typer.Option("--weak", help="The array grows with the devices; SHAPE is that of the fewest.")
    ] = False,
    kind: flags.KindFlag = "fft",
    dtype: own.Dtype = None,
    method: own.Methods = "auto",
    order: own.Orders = "natural",
    precision: own.Precisions = "default",
    ring: flags.RingFlag = None,
    baselines: own.Baselines = "all",
    rounds: own.Rounds = 15,
    rows: own.Rows = None,
) -> None:
    """Measure transforms on more and more devices: seconds, ideal seconds, and parallel efficiency.

    The ideal line is the paper's, T_first / (P / first); with --weak it is flat. meshfft takes the mesh that is
    modelled to be its fastest, baselines the fastest of theirs. CPU devices share the machine's cores. Rows that are
    there are replaced.
    """
    own.check_flags(rounds, rows)
    task, ways = own.task_of(shape, dtype, kind), own.ways_of(method, order, precision, ring)
    counts = sorted(set(flags.read_sizes(devices, "--devices", "1,2,4,8")))
    others = own.baselines_of(baselines, SCALING)
    shapes = [scales.grown(task.shape, counts[0], count) if weak else task.shape for count in counts]
    there = own.start_devices(counts[-1], "--devices")
    cases = [
        case
        for one, count in zip(shapes, counts, strict=True)
        for case in own.cases_on(task._replace(shape=one), there[:count], ways, others)
    ]
    found = own.run(cases, there, rounds)
    write(rows, (row.to_dict() for row in found))
    say(f"{'Weak' if weak else 'Strong'} scaling, {task.kind} of {task.dtype}")
    for name, lines in scales.tables(found, weak).items():
        say(f"\n{name}\n")
        print_columns(scales.HEADS, lines)
    say(f"\n{words.sharing(found)}{words.notes(found, ratio=False)}{_wrote(rows)}")


def _wrote(path: Path | None) -> str:
    return f"\nWrote {path}." if path else ""
