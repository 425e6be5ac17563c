"""`meshfft transform`: an array file in, its transform out, with every device holding only its own block.

Whatever can be refused is refused before anything is computed, and the output gets its name when it is complete.
"""

import math
from pathlib import Path
from typing import Annotated

import typer

from ..dtypes import PRECISIONS
from ..errors import check
from . import flags, parse
from .cluster import cluster_of, run_in
from .guard import guarded
from .job import Job, run


@guarded
def transform(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".npy, .nii, .nii.gz, .h5, .hdf5 or .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".npy or .zarr.")],
    mesh: flags.Mesh,
    spec: flags.Spec = None,
    axes: flags.Axes = None,
    method: flags.Method = "auto",
    inverse: Annotated[bool, typer.Option("--inverse", help="Transform back.")] = False,
    order: flags.Order = "natural",
    norm: flags.Norm = "backward",
    kind: flags.Kind = "fft",
    precision: flags.Precision = "default",
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="Which array of an HDF5 or Zarr file.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the spectrum: .png, .pdf, .svg.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT where it exists.")] = False,
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
    check(plot is None or not inverse, "--plot draws a spectrum and --inverse leaves none: plot the forward transform")
    check(plot is None or kind == "fft", f"--plot draws a whole spectrum, and --kind {kind} has none: leave one out")
    sizes, options = parse.mesh(mesh), parse.options(axes, method, order, norm, inverse, kind)
    parse.choice(precision, PRECISIONS, "--precision")
    cluster = cluster_of(distributed, coordinator, processes, process_id)
    job = Job(source, target, dataset, sizes, spec, precision, options, plot, overwrite, as_json, log_json)
    run_in(cluster, math.prod(sizes.values()), target, lambda: run(job))
