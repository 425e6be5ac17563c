"""`python -m benchmarks fft`: measured here and now, meshfft beside its baselines."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.cli import flags
from meshfft.cli.output import guarded, print_columns, say

from . import flags as own
from . import words
from .baselines import BASELINES, MESHFFT

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
