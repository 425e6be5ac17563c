"""`meshfft transform`: an array file in, its transform out, with every device holding only its own block.

Whatever can be refused is refused before anything is computed, and the output gets its name when it is complete.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..dtypes import PRECISIONS
from ..errors import check
from . import flags, parse
from .guard import guarded
from .show import Timing, print_json, print_timings, progress


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
    as_json: flags.Json = False,
) -> None:
    """Transform the array in a file, and write the result.

    Uses the machine's accelerators where there are enough of them, else CPU devices that share its cores.
    """
    from ..files import check_output, open_array
    from ..files.writing import check_room
    from ..picture import check_picture
    from .memory import check_memory

    check(plot is None or not inverse, "--plot draws a spectrum and --inverse leaves none: plot the forward transform")
    check(plot is None or kind == "fft", f"--plot draws a whole spectrum, and --kind {kind} has none: leave one out")
    sizes, options = parse.mesh(mesh), parse.options(axes, method, order, norm, inverse, kind)
    parse.choice(precision, PRECISIONS, "--precision")
    check_output(target, overwrite, 0)
    if plot is not None:
        check_picture(plot, overwrite)
    with open_array(source, dataset) as array:
        made = _plan(array, sizes, parse.spec(spec, sizes, array.ndim), precision, options)
        if not as_json:
            typer.echo(f"{made}\n")
        refused = made.walk.real and array.dtype.kind == "c"
        check(not refused, f"{source} holds {array.dtype}, and --kind {kind} transforms real numbers: use --kind fft")
        check_memory(made.peak_bytes, list(made.mesh.devices.flat))
        check_room(target, math.prod(made.out_shape) * made.out_dtype.itemsize)
        timings = _compute(made, array, target, overwrite)
    if plot is not None:
        _draw(target, plot, options["axes"], overwrite)
    _report(made, source, target, plot, timings, as_json)


def _plan(array: Any, sizes: dict[str, int], spec: Sequence[parse.SpecEntry], precision: str, options: Any) -> Any:
    """The plan for an array, on a mesh of running devices."""
    import meshfft

    from .devices import start_mesh, use_float64

    if precision == "float64" or (precision == "default" and array.dtype in (np.float64, np.complex128)):
        use_float64()
    return meshfft.plan(
        array.shape, mesh=start_mesh(sizes), spec=spec, dtype=array.dtype, precision=precision, **options
    )


def _compute(made: Any, array: Any, target: Path, overwrite: bool) -> list[Timing]:
    """Reads, transforms and writes; returns what each step took."""
    import meshfft

    from ..files import write_array
    from .execute import run_stages

    spec = made.in_layout.spec
    numbers = array.astype(made.in_dtype if array.dtype.kind == "c" else np.finfo(made.dtype).dtype)
    with progress(2 + 2 * len(made.stages)) as report:
        y, timings = run_stages(made, lambda: meshfft.shard(numbers, made.mesh, spec), report)
        report("write")
        begun = time.perf_counter()
        write_array(target, y, made.out_layout, overwrite=overwrite)
    return [*timings, Timing("write", None, time.perf_counter() - begun)]


def _draw(target: Path, plot: Path, axes: tuple[int, ...] | None, overwrite: bool) -> None:
    """The picture, from slices of the file just written."""
    from ..files import open_array
    from ..picture import central_planes, save_spectrum

    with open_array(target) as spectrum:
        planes = central_planes(spectrum.shape, axes)
        save_spectrum(plot, [np.abs(spectrum[plane.at]) for plane in planes], planes, overwrite=overwrite)


def _report(made: Any, source: Path, target: Path, plot: Path | None, timings: list[Timing], as_json: bool) -> None:
    if as_json:
        files = {"input": str(source), "output": str(target), "plot": str(plot) if plot else None}
        print_json({**made.to_dict(), **files, "measured": [timing._asdict() for timing in timings]})
        return
    print_timings(timings)
    typer.echo(f"Wrote {target}: {made.out_dtype} {' x '.join(map(str, made.out_shape))}.")
    if plot is not None:
        typer.echo(f"Drew {plot}.")
