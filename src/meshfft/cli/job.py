"""What `meshfft transform` does once its flags are read: checks, plans, reads, transforms, writes, reports.

Where there are several processes every one runs it; what one refuses, all do, and only process 0 prints.
"""

import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from ..errors import check
from . import parse
from .progress import Report, bar, log
from .show import Timing, print_json, print_timings


class Job(NamedTuple):
    """The flags, read."""

    source: Path
    target: Path
    dataset: str | None
    mesh: dict[str, int]
    spec: str | None
    precision: str
    options: dict[str, Any]
    plot: Path | None
    overwrite: bool
    as_json: bool
    log_json: bool


def run(job: Job) -> None:
    """The whole of it."""
    import jax

    from ..files import check_output
    from ..picture import check_picture
    from ..processes import check_alike, exchange, together
    from .devices import start_mesh

    check_output(job.target, job.overwrite, 0)
    if job.plot is not None:
        check_picture(job.plot, job.overwrite)
    mesh = start_mesh(job.mesh)
    with _opened(job) as array:
        made = _plan(job, array, mesh)
        first = jax.process_index() == 0
        if first and not job.as_json:
            typer.echo(f"{made}\n")
        check_alike("the input", [list(array.shape), str(array.dtype)])
        check_alike("the plan", str(made))
        neighbours = exchange(socket.gethostname()).count(socket.gethostname())
        together(lambda: _check(job, made, array, neighbours))
        timings = _compute(job, made, array)
    if first and job.plot is not None:
        _draw(job, job.plot)
    if first:
        _report(job, made, timings)


@contextlib.contextmanager
def _opened(job: Job) -> Iterator[Any]:
    from ..files import open_array
    from ..processes import together

    with contextlib.ExitStack() as stack:
        yield together(lambda: stack.enter_context(open_array(job.source, job.dataset)))


def _plan(job: Job, array: Any, mesh: Any) -> Any:
    """The plan for an array, on a mesh of running devices."""
    import meshfft

    from .devices import use_float64

    if job.precision == "float64" or (job.precision == "default" and array.dtype in (np.float64, np.complex128)):
        use_float64()
    spec = parse.spec(job.spec, job.mesh, array.ndim)
    how = {"dtype": array.dtype, "precision": job.precision, **job.options}
    return meshfft.plan(array.shape, mesh=mesh, spec=spec, **how)


def _check(job: Job, made: Any, array: Any, neighbours: int) -> None:
    """Refuses what the plan shows to be impossible, with so many processes of the run on this machine."""
    from ..files.writing import check_room
    from .devices import local_devices
    from .memory import check_memory

    kind = job.options["kind"]
    refused = made.walk.real and array.dtype.kind == "c"
    check(not refused, f"{job.source} holds {array.dtype}, and --kind {kind} transforms real numbers: use --kind fft")
    check_memory(made.peak_bytes, local_devices(made.mesh), neighbours)
    check_room(job.target, math.prod(made.out_shape) * made.out_dtype.itemsize)


def _compute(job: Job, made: Any, array: Any) -> list[Timing]:
    """Reads, transforms and writes; returns what each step took."""
    import meshfft

    from ..files import write_array
    from .execute import run_stages

    spec = made.in_layout.spec
    numbers = array.astype(made.in_dtype if array.dtype.kind == "c" else np.finfo(made.dtype).dtype)
    with _reporting(job, made) as report:
        source = _Counted(numbers, report.advance)
        y, timings = run_stages(made, lambda: meshfft.shard(source, made.mesh, spec), report)
        report.begin("write")
        begun = time.perf_counter()
        write_array(job.target, y, made.out_layout, overwrite=job.overwrite)
    return [*timings, Timing("write", None, time.perf_counter() - begun)]


class _Counted:
    """An array whose slices are counted in bytes as they are read."""

    def __init__(self, array: Any, advance: Callable[[int], None]) -> None:
        self.array, self.advance, self.shape, self.dtype = array, advance, array.shape, array.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        block = self.array[index]
        self.advance(block.nbytes)
        return block


def _reporting(job: Job, made: Any) -> contextlib.AbstractContextManager[Report]:
    """What tells how far it is: lines of JSON, or on process 0 a bar."""
    import jax

    total = _bytes_to_do(made)
    if job.log_json:
        return log(total, jax.process_index())
    return bar(total, in_bytes=True, shown=jax.process_index() == 0)


def _bytes_to_do(made: Any) -> int:
    """Bytes that this process reads, takes through every step, and writes."""
    from .devices import local_devices

    blocks = [math.prod(stage.in_layout.block) * stage.in_dtype.itemsize for stage in made.stages]
    read = math.prod(made.in_layout.block) * made.in_dtype.itemsize
    written = math.prod(made.out_layout.block) * made.out_dtype.itemsize
    return (read + sum(blocks) + written) * len(local_devices(made.mesh))


def _draw(job: Job, plot: Path) -> None:
    """The picture, from slices of the file just written."""
    from ..files import open_array
    from ..picture import central_planes, save_spectrum

    with open_array(job.target) as spectrum:
        planes = central_planes(spectrum.shape, job.options["axes"])
        found = [np.abs(spectrum[plane.at]) for plane in planes]
        save_spectrum(plot, found, planes, overwrite=job.overwrite)


def _report(job: Job, made: Any, timings: list[Timing]) -> None:
    if job.as_json:
        files = {"input": str(job.source), "output": str(job.target), "plot": str(job.plot) if job.plot else None}
        print_json({**made.to_dict(), **files, "measured": [timing._asdict() for timing in timings]})
        return
    print_timings(timings)
    typer.echo(f"Wrote {job.target}: {made.out_dtype} {' x '.join(map(str, made.out_shape))}.")
    if job.plot is not None:
        typer.echo(f"Drew {job.plot}.")
