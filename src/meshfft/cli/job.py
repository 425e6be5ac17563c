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

from .memory import Watch, give_back_memory
from .progress import Clock, Report, bar, log
from .request import Job, Request, agree, check_files, check_kind, deciding, everywhere, request
from .say import say, warn
from .show import Timing, print_json, print_timings

BESIDES = "are taken by Python, JAX and the compiled programs besides"


class Work(NamedTuple):
    """A job with its array open, its plan made and its devices running.

    Attributes:
        job: the flags.
        asked: what they ask for.
        array: the source.
        plan: of the whole transform.
        local: the devices of this process.
        process: which of the processes this is.
        neighbours: how many of them are on this machine.
    """

    job: Job
    asked: Request
    array: Any
    plan: Any
    local: list[Any]
    process: int
    neighbours: int


def run(job: Job) -> None:
    """The whole of it."""
    agree(deciding(job))
    everywhere(lambda: check_files(job))
    if job.memory is not None:
        give_back_memory()
    with _working(job) as work:
        limited = job.memory is not None and _needed(work) > job.memory
        facts, timings = (_in_passes if limited else _in_core)(work)
        if work.process == 0:
            if job.plot is not None:
                _draw(job.target, job.plot, work.plan.transform.dims, job.overwrite)
            _report(work, facts, timings)


@contextlib.contextmanager
def _working(job: Job) -> Iterator[Work]:
    """Opens the source and starts the devices; every process has to find the same."""
    import jax

    from ..files import identity, open_array
    from ..files.processes import exchange
    from .devices import local_devices, start_mesh

    with contextlib.ExitStack() as stack:
        array = everywhere(lambda: stack.enter_context(open_array(job.source, job.dataset)))
        agree(everywhere(lambda: identity(array)))
        asked = request(job, array)
        mesh = start_mesh(asked.mesh)
        made = _plan(asked, array, mesh)
        agree({"this plan": str(made)})
        check_kind(made, array, job)
        neighbours = exchange(socket.gethostname()).count(socket.gethostname())
        yield Work(job, asked, array, made, local_devices(mesh), jax.process_index(), neighbours)


def _plan(asked: Request, array: Any, mesh: Any) -> Any:
    """The plan for an array, on a mesh of running devices."""
    import meshfft

    from .devices import use_float64

    precision = asked.options["precision"]
    if precision == "float64" or (precision == "default" and array.dtype in (np.float64, np.complex128)):
        use_float64()
    return meshfft.plan(array.shape, mesh=mesh, spec=asked.spec, **asked.options)


def _in_core(work: Work) -> tuple[dict[str, Any], list[Timing]]:
    """Every device holds its block: reads, transforms and writes; returns what to tell of it."""
    import meshfft

    from ..files import labelled, record_of, write_array
    from ..files.processes import together
    from .execute import run_stages

    job, made, array = work.job, work.plan, work.array
    _announce(work, made)
    together(lambda: _check_core(work))
    numbers = array.astype(made.in_dtype if array.dtype.kind == "c" else np.finfo(made.dtype).dtype)
    with _reporting(work, _bytes_to_do(work)) as report:
        source = _Counted(numbers, report.advance)
        y, timings = run_stages(made, lambda: meshfft.shard(source, made.mesh, made.in_layout.spec), report)
        report.begin("write")
        begun = time.perf_counter()
        record = labelled(record_of(made, array.units, array.spacing), array.labels)
        write_array(job.target, y, overwrite=job.overwrite, record=record, report=report.advance)
    return made.to_dict(), [*timings, Timing("write", None, time.perf_counter() - begun)]


def _in_passes(work: Work) -> tuple[dict[str, Any], list[Timing]]:
    """Every process holds a piece at a time; returns what to tell of it."""
    import jax
    from jax.sharding import Mesh

    from ..files import labelled, record_of
    from ..numerics.units import quantity
    from ..out_of_core import chunk_of, left_of, recorded_budgets, run_passes
    from ..out_of_core.passes import passes
    from .memory import device_bytes

    job, made, array = work.job, work.plan, work.array
    options = {name: value for name, value in work.asked.options.items() if name != "order"}
    shared = work.local[0].platform == "cpu"
    mesh = Mesh(np.array(work.local), ("x",))
    limits: dict[str, Any] = {"budget": job.memory, "device_budget": None if shared else device_bytes(work.local[0])}
    if job.resume:  # what was free then finds the same passes again
        limits |= recorded_budgets(job.target) or {}
    found = passes(array.shape, mesh=mesh, chunk=chunk_of(array), **limits, **options)
    _announce(work, found)
    left = left_of(found, job.target) if job.resume else None
    moved = found.read_bytes + found.written_bytes if left is None else left.read_bytes + left.written_bytes
    if left is not None:
        sizes = f"{quantity(left.read_bytes, 'B')} to read and {quantity(left.written_bytes, 'B')} to write"
        _tell(work, f"{left.done} of {left.tiles} tiles are there: {sizes} are left.")
    with _reporting(work, moved // jax.process_count()) as report:
        clock = Clock(report)
        watch = Watch(clock.begin, lambda nbytes: _tell(work, f"{quantity(nbytes, 'B')} {BESIDES}."))
        how: dict[str, Any] = {"overwrite": job.overwrite, "resume": job.resume, "report": report.advance}
        record = labelled(record_of(made, array.units, array.spacing), array.labels)
        with _interruptible(work, found):
            run_passes(found, array, job.target, record=record, begin=watch.begin, **how)
    taken = watch.end()
    sizes = f"{quantity(taken.peak, 'B')} of memory at the most, {quantity(taken.peak - taken.baseline, 'B')} more"
    _tell(work, f"{sizes} than at the start.")
    measured = {"baseline_resident_bytes": taken.baseline, "peak_resident_bytes": taken.peak}
    rest = {} if left is None else {"left": left._asdict()}
    return {**found.to_dict(), **measured, **rest}, clock.end()


@contextlib.contextmanager
def _interruptible(work: Work, made: Any) -> Iterator[None]:
    """Says what is kept where the user ends passes, and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        from ..out_of_core import left_of

        left = left_of(made, work.job.target)
        kept = f"{left.done} of {left.tiles} tiles are kept beside {work.job.target}"
        if work.process == 0:
            warn(f"meshfft: interrupted: {kept}: the same command with --resume continues")
        raise


def _announce(work: Work, plan: Any) -> None:
    _tell(work, f"{plan}\n")


def _tell(work: Work, text: str) -> None:
    if work.process == 0 and not work.job.as_json:
        say(text)


def _check_core(work: Work) -> None:
    """Refuses what the plan shows to be impossible."""
    from ..files.writing import check_room
    from .memory import check_memory

    check_memory(work.plan.peak_bytes, work.local, work.neighbours)
    check_room(work.job.target, math.prod(work.plan.out_shape) * work.plan.out_dtype.itemsize)


def _needed(work: Work) -> int:
    """Bytes that this process takes to transform all its blocks at once, and to read and write them."""
    from ..out_of_core.partition import TRANSFER_BYTES

    made = work.plan
    read, written = _block_bytes(made)
    return (made.peak_bytes + read) * len(work.local) + min(6 * TRANSFER_BYTES, 3 * written * len(work.local))


class _Counted:
    """An array whose slices are counted in bytes as they are read."""

    def __init__(self, array: Any, advance: Callable[[int], None]) -> None:
        self.array, self.advance, self.shape, self.dtype = array, advance, array.shape, array.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        block = self.array[index]
        self.advance(block.nbytes)
        return block


def _reporting(work: Work, total: int) -> contextlib.AbstractContextManager[Report]:
    """What tells how far it is: lines of JSON, or on process 0 a bar."""
    return log(total, work.process) if work.job.log_json else bar(total, in_bytes=True, shown=work.process == 0)


def _bytes_to_do(work: Work) -> int:
    """Bytes that this process reads, takes through every step, and writes."""
    made = work.plan
    blocks = [math.prod(stage.in_layout.block) * stage.in_dtype.itemsize for stage in made.stages]
    read, written = _block_bytes(made)
    return (read + sum(blocks) + written) * len(work.local)


def _block_bytes(made: Any) -> tuple[int, int]:
    """Bytes of a device's block as it is read, and as it is written."""
    read = math.prod(made.in_layout.block) * made.in_dtype.itemsize
    return read, math.prod(made.out_layout.block) * made.out_dtype.itemsize


def _draw(target: Path, plot: Path, axes: tuple[int, ...], overwrite: bool) -> None:
    """The picture, from slices of the file just written."""
    from ..files import open_array
    from ..files.picture import central_planes, save_spectrum

    with open_array(target) as spectrum:
        planes = central_planes(spectrum.shape, axes)
        save_spectrum(plot, [np.abs(spectrum[plane.at]) for plane in planes], planes, overwrite=overwrite)


def _report(work: Work, facts: dict[str, Any], timings: list[Timing]) -> None:
    job, made = work.job, work.plan
    if job.as_json:
        files = {"input": str(job.source), "output": str(job.target), "plot": str(job.plot) if job.plot else None}
        print_json({**facts, **files, "measured": [timing._asdict() for timing in timings]})
        return
    print_timings(timings)
    say(f"Wrote {job.target}: {made.out_dtype} {' x '.join(map(str, made.out_shape))}.")
    if job.plot is not None:
        say(f"Drew {job.plot}.")
