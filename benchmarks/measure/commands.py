"""`python -m benchmarks fft` and `scaling`: measured here and now, meshfft beside its baselines."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, say

from . import flags as own
from . import scaling as scales
from . import words
from .baselines import BASELINES, MESHFFT, SCALING

Shape = Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")]
Orders = Annotated[str, flags.option("A,B,...", "natural, any, or both.")]
THEIRS = "For swirl-lm, dist_fft.py of the paper's authors: benchmarks/README.md."
Program = Annotated[Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help=THEIRS)]


@guarded
@flags.with_flags
def fft(
    shape: Shape,
    *,
    mesh: Annotated[list[str] | None, flags.option("P,P,...", "Devices along mesh axes; several times.")] = None,
    order: Orders = "natural,any",
    asked: own.Asked,
    program: Program = None,
) -> None:
    """Measure transforms of one array: meshfft on each mesh, and every baseline.

    Calls are interleaved in an order shuffled every round. Without --mesh: slab, pencil and block of all devices; on
    the CPU eight that share its cores. An existing file of rows is replaced.
    """
    task, ways = asked.read(shape, order)
    others = asked.others([name for name in BASELINES if name != MESHFFT])
    devices, meshes = own.start_meshes(mesh, len(task.shape))
    found = asked.run(own.cases_of(task, meshes, ways, others), devices, program)
    say(f"{task.kind} of {' x '.join(map(str, task.shape))} {task.dtype}\n")
    print_columns(words.HEADS, words.cells(found))
    say(f"\n{words.notes(found)}")


@guarded
@flags.with_flags
def scaling(
    shape: Shape,
    *,
    devices: Annotated[str, flags.option("P,P,...", "On how many devices.")] = "1,2,4,8",
    order: Orders = "natural",
    asked: own.Asked,
) -> None:
    """Measure transforms on more and more devices: seconds, ideal seconds, and parallel efficiency.

    The ideal line is the paper's, T_first / (P / first). meshfft takes the mesh that is modelled to be its fastest,
    baselines the fastest of theirs. CPU devices share the machine's cores. An existing file of rows is replaced.
    """
    task, ways = asked.read(shape, order)
    counts = sorted(set(flags.read_sizes(devices, "--devices", "1,2,4,8")))
    others = asked.others(SCALING)
    there = own.start_devices(counts[-1], "--devices")
    cases = [case for count in counts for case in own.cases_on(task, there[:count], ways, others)]
    found = asked.run(cases, there)
    say(f"Strong scaling, {task.kind} of {task.dtype}")
    for name, lines in scales.tables(found).items():
        say(f"\n{name}\n")
        print_columns(scales.HEADS, lines)
    say(f"\n{words.sharing(found)}{words.notes(found, ratio=False)}")
