"""`meshfft transform`: an array file in, its transform out, with every device holding only its own block.

Whatever can be refused is refused before anything is computed, and the output gets its name when it is complete.
"""

from pathlib import Path
from typing import Annotated

import typer

from . import flags, parse
from .cluster import cluster_of, run_in
from .guard import guarded
from .job import run
from .request import Job, devices


@guarded
def transform(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".npy, .nii, .nii.gz, .h5, .hdf5, .nc or .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".npy or .zarr.")],
    mesh: flags.KnownMesh = None,
    spec: flags.Spec = None,
    axes: flags.Axes = None,
    method: flags.KnownMethod = None,
    inverse: Annotated[bool, typer.Option("--inverse", help="Back, as IN tells if meshfft wrote it.")] = False,
    order: flags.KnownOrder = None,
    norm: flags.KnownNorm = None,
    kind: flags.KnownKind = None,
    precision: flags.KnownPrecision = None,
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="Which array of an HDF5 or Zarr file.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the spectrum: .png, .pdf, .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT where it exists.")] = False,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Of each process, as 8GB: in passes.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an unfinished run in passes.")] = False,
    distributed: Annotated[bool, typer.Option("--distributed", help="One of several processes, as JAX finds.")] = False,
    coordinator: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Process 0 of several, by hand.")] = None,
    processes: Annotated[int | None, typer.Option(metavar="N", help="How many processes there are.")] = None,
    process_id: Annotated[int | None, typer.Option(metavar="I", help="Which this is: 0 to N-1.")] = None,
    as_json: flags.Json = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log every part to stderr, as JSON lines.")] = False,
) -> None:
    """Transform the array in a file, and write the result.

    Uses the machine's accelerators where there are enough of them, else CPU devices that share its cores.
    """
    cluster = cluster_of(distributed, coordinator, processes, process_id)

    def job() -> Job:
        _check_plot(plot, inverse, kind)
        given = parse.given(axes, method=method, order=order, norm=norm, kind=kind, precision=precision)
        if mesh is not None:
            parse.mesh(mesh)
        outcome = (plot, overwrite, _limit(target, memory, resume), resume, as_json, log_json)
        return Job(source, target, dataset, mesh, spec, inverse, given, *outcome)

    run_in(cluster, job, devices, run)


def _check_plot(plot: Path | None, inverse: bool, kind: str | None) -> None:
    if plot is not None and inverse:
        raise ValueError("--plot draws a spectrum and --inverse leaves none: plot the forward transform")
    whole = kind in (None, "fft")
    if plot is not None and not whole:
        raise ValueError(f"--plot draws a whole spectrum, and --kind {kind} has none: leave one out")


def _limit(target: Path, memory: str | None, resume: bool) -> int | None:
    """How many bytes a process may hold: as it is said, or as it was where a run is resumed."""
    from ..out_of_core import recorded_budgets

    given = None if memory is None else parse.nbytes(memory, "--memory")
    recorded = recorded_budgets(target) if resume else None
    if recorded is None:
        waits = not resume or given is not None
        if not waits:
            raise ValueError(f"no run to {target} is unfinished: leave out --resume")
        return given
    had = recorded["budget"]
    both = f"the unfinished run has --memory {had}, this one has {given}"
    if given not in (None, had):
        raise ValueError(f"{both}: leave out --memory, or start again with --overwrite")
    return had
