"""`meshfft transform`: an array file in, its transform out, with every device holding only its own block.

Whatever can be refused is refused before anything is computed, and the output gets its name when it is complete. Where
there are several processes every one runs this; what one refuses, all do, and only process 0 prints.
"""

import contextlib
import dataclasses
import functools
import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import numpy as np
import typer
from jax.sharding import Mesh

import meshfft

from ..io import Record, Source, identity, labelled, open_array, record_of, write_array
from ..io.formats.hdf5_writer import nameable
from ..io.formats.source import Box
from ..io.picture import central_planes, save_spectrum
from ..io.processes import exchange, together
from ..io.writing import check_room
from ..layout.layout import Layout
from ..layout.padded_array import stored_of
from ..numerics.dtypes import is_wide
from ..numerics.units import quantity
from ..out_of_core import chunk_of, left_of, recorded_budgets, run_passes
from ..out_of_core.partition import TRANSFER_BYTES, given_dtype
from ..out_of_core.tiles import Passes
from ..plans.plan import Plan
from .points import check_alone, read_sampling, solution_facts, solution_words
from .request import Flags, agree, check_files, check_plot, deciding, device_count, everywhere, mesh_sizes, plan_options
from .terminal import flags as read
from .terminal.cluster import cluster_of, run_in
from .terminal.devices import check_memory, device_bytes, give_back_memory, peak_resident, start_mesh
from .terminal.output import Progress, Timing, guarded, print_json, print_timings, progress_of, say, warn

Stored = jax.Array | meshfft.PaddedArray


class Prepared(NamedTuple):
    """A transform with its array open, its devices running, its plan made of these options, and its output's record."""

    flags: Flags
    options: read.Keywords
    array: Source
    plan: Plan
    mesh: Mesh
    record: Record | None

    @property
    def solves(self) -> bool:
        return self.flags.sampling is not None and self.flags.sampling.solve

    @property
    def ends(self) -> tuple[tuple[Layout, np.dtype], tuple[Layout, np.dtype]]:
        """Layout and type of what is read, and of what is written."""
        first, last = (self.plan.in_layout, self.plan.in_dtype), (self.plan.out_layout, self.plan.out_dtype)
        return (last, first) if self.solves else (first, last)


@guarded
def transform(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".npy, .nii, .nii.gz, .h5, .hdf5, .nc or .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".zarr, .h5, .hdf5, .nc or .npy.")],
    mesh: read.Mesh = None,
    spec: read.Spec = None,
    axes: read.Axes = None,
    method: read.Method = None,
    inverse: Annotated[bool, typer.Option("--inverse", help="Transform back, by the record in IN.")] = False,
    order: read.Order = None,
    norm: read.Norm = None,
    kind: read.Kind = None,
    precision: read.Precision = None,
    wire: read.Wire = None,
    points: read.Points = None,
    points_unit: read.PointsUnit = None,
    solve: Annotated[bool, typer.Option("--solve", help="Find the array whose samples are IN.")] = False,
    unknowns: Annotated[str | None, typer.Option(metavar="N,N,...", help="Its sizes, if not those of IN.")] = None,
    tikhonov: Annotated[float | None, typer.Option(metavar="X", help="Keep it small by this weight: 1e-3.")] = None,
    truncation: Annotated[float | None, typer.Option(metavar="X", help="Drop smaller singular values: 1e-3.")] = None,
    dataset: read.Dataset = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the spectrum: .png, .pdf, .svg.")] = None,
    overwrite: read.Overwrite = False,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Per process: 8GB; more goes in passes.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an unfinished run in passes.")] = False,
    distributed: read.Distributed = False,
    coordinator: read.Coordinator = None,
    processes: read.Processes = None,
    process_id: read.ProcessId = None,
    as_json: read.Json = False,
    log_json: read.LogJson = False,
    quiet: read.Quiet = False,
) -> None:
    """Transform the array in a file, and write the result.

    Uses the machine's accelerators where there are enough of them, else CPU devices that share its cores.
    """

    def asked() -> Flags:
        names = {"method": method, "order": order, "norm": norm, "kind": kind, "precision": precision, "wire": wire}
        given = read.read_options(axes, **names)
        if wire is not None and memory is not None:
            raise ValueError("--wire says what devices send, and in passes they send nothing: leave out --wire")
        check_plot(plot, inverse, kind)
        weights = {"tikhonov": tikhonov, "truncation": truncation}
        sampling = read_sampling(points, points_unit, solve, unknowns, weights)
        check_alone(sampling, inverse=inverse, kind=kind, plot=plot, memory=memory, resume=resume, order=order)
        how = (plot, overwrite, _memory(target, memory, resume), resume, as_json, log_json, sampling, quiet)
        return Flags(source, target, dataset, mesh, spec, inverse, given, *how)

    run_in(cluster_of(distributed, coordinator, processes, process_id), asked, device_count, _run)


def _memory(target: Path, memory: str | None, resume: bool) -> int | None:
    """How many bytes a process may hold: as it is said, or as it was where a run is resumed."""
    given = None if memory is None else read.read_bytes(memory, "--memory")
    recorded = recorded_budgets(target) if resume else None
    had = recorded["budget"] if recorded else given
    if resume and had is None:
        raise ValueError(f"no run to {target} is unfinished: leave out --resume")
    if given not in (None, had):
        both = f"the unfinished run has --memory {had}, this one has {given}"
        raise ValueError(f"{both}: leave out --memory, or start again with --overwrite")
    return had


def _run(flags: Flags) -> None:
    if flags.mesh is not None:
        read.read_mesh(flags.mesh)  # or refuses it
    agree(deciding(flags))
    everywhere(lambda: check_files(flags))
    if flags.memory is not None:
        give_back_memory()
    with contextlib.ExitStack() as stack:
        array = everywhere(lambda: stack.enter_context(open_array(flags.source, flags.dataset)))
        agree(everywhere(lambda: identity(array)))
        job = _prepared(flags, array)
        limited = flags.memory is not None and _needed_bytes(job) > flags.memory
        facts, timings = (_in_passes if limited else _in_core)(job)
        if jax.process_index() == 0:
            _finish(job, facts, timings)


def _prepared(flags: Flags, array: Source) -> Prepared:
    options, mesh = plan_options(flags, array), start_mesh(mesh_sizes(flags, array))
    precision = options.get("precision") or "default"
    if is_wide(precision) or (precision == "default" and array.dtype in (np.float64, np.complex128)):
        jax.config.update("jax_enable_x64", True)
    plan = meshfft.plan(mesh=mesh, **options)
    agree({"this plan": str(plan)})
    if plan.walk.real and array.dtype.kind == "c":
        takes = f"this {plan.transform.name} transforms real numbers"
        raise ValueError(f"{flags.source} holds {array.dtype}, and {takes}: use --kind fft")
    record = None  # of points there is none: frequencies that are not uniform have no spacing
    if flags.sampling is None:
        record = nameable(labelled(record_of(plan, array.units, array.spacing), array.labels), flags.target)
    return Prepared(flags, options, array, plan, mesh, record)


def _needed_bytes(job: Prepared) -> int:
    """Bytes that this process takes to transform all its blocks at once, and to read and write them."""
    plan, count = job.plan, len(job.mesh.local_devices)
    loaded = math.prod(plan.in_layout.block) * plan.in_dtype.itemsize * count
    stored = math.prod(plan.out_layout.block) * plan.out_dtype.itemsize * count
    return plan.peak_bytes * count + loaded + min(6 * TRANSFER_BYTES, 3 * stored)


def _in_core(job: Prepared) -> tuple[dict[str, object], list[Timing]]:
    """Every device holds its block: reads, transforms and writes; returns what there is to report."""
    flags, plan, array, devices = job.flags, job.plan, job.array, job.mesh.local_devices
    (comes, _), (leaves, dtype) = job.ends
    _say(job, f"{'Solves the ' * job.solves}{plan}\n")
    processes = exchange(socket.gethostname()).count(socket.gethostname())  # on this machine
    together(lambda: check_memory(plan.peak_bytes, devices, processes))
    together(lambda: check_room(flags.target, math.prod(leaves.shape) * dtype.itemsize))
    parts = [job.ends[0]] if job.solves else [(one.in_layout, one.in_dtype) for one in (plan, *plan.stages)]
    nbytes = sum(math.prod(layout.block) * kind.itemsize for layout, kind in (*parts, (leaves, dtype)))
    with _progress(job, nbytes * len(devices)) as progress:

        def read_box(box: Box, out: np.ndarray) -> None:
            array.read(box, out)
            progress.advance(out.nbytes)

        source = dataclasses.replace(array, read=read_box, dtype=given_dtype(plan, array.dtype))
        load = functools.partial(meshfft.shard, source, job.mesh, comes.spec)
        y, found = _solved(job, load, progress) if job.solves else (run_stages(plan, load, progress), {})
        progress.begin("write")
        write_array(flags.target, y, overwrite=flags.overwrite, record=job.record, report=progress.advance)
    return {**plan.to_dict(), **found}, progress.timings


def _solved(job: Prepared, load: Callable[[], Stored], progress: Progress) -> tuple[Stored, read.Keywords]:
    """The array whose samples `load` reads, and what it is worth."""
    progress.begin("read")
    y = jax.block_until_ready(load())
    progress.begin("solve")
    found = jax.block_until_ready(job.plan.solve(y, **job.flags.sampling.weights if job.flags.sampling else {}))
    _say(job, solution_words(found))
    return found.value, solution_facts(found)


def run_stages(plan: Plan, load: Callable[[], Stored], progress: Progress) -> Stored:
    """The transform of the array that `load` makes, step by step; a caller that passed it would keep it alive."""
    progress.begin("read")
    x = jax.block_until_ready(load())
    for stage in plan.stages:
        held = sum(shard.data.nbytes for shard in stored_of(x).addressable_shards)
        x = _run_stage(stage, x, progress)
        progress.advance(held)
    return x


def _run_stage(stage: Plan, x: Stored, progress: Progress) -> Stored:
    progress.begin(f"compile {stage.name}")
    compiled = jax.jit(stage).lower(x).compile()
    progress.begin(stage.name)
    return jax.block_until_ready(compiled(x))


def _in_passes(job: Prepared) -> tuple[dict[str, object], list[Timing]]:
    """Every process holds a part of the array at a time; returns what there is to report."""
    flags, passes, baseline = job.flags, _passes(job), 0
    _say(job, f"{passes}\n")
    left = left_of(passes, flags.target, job.array) if flags.resume else None
    if left is not None:
        sizes = f"{quantity(left.read_bytes, 'B')} to read and {quantity(left.written_bytes, 'B')} to write"
        _say(job, f"{left.done} of {left.tiles} tiles are done; {sizes} remain.")

    def begin(part: str) -> None:
        nonlocal baseline
        if part == "pass 1":  # Python, JAX and the compiled programs are there, and nothing of the array is
            baseline = peak_resident()
            _say(job, f"Python, JAX and the compiled programs take {quantity(baseline, 'B')} besides.")
        progress.begin(part)

    todo = left or passes
    how: read.Keywords = {"overwrite": flags.overwrite, "resume": flags.resume, "record": job.record}
    with _progress(job, (todo.read_bytes + todo.written_bytes) // jax.process_count()) as progress:
        try:
            run_passes(passes, job.array, flags.target, report=progress.advance, begin=begin, **how)
        except KeyboardInterrupt:
            left = left_of(passes, flags.target)
            kept = f"{left.done} of {left.tiles} tiles kept beside {flags.target}"
            if jax.process_index() == 0:
                warn(f"meshfft: interrupted: {kept}: the same command with --resume continues")
            raise
    peak = peak_resident()
    _say(job, f"Peak memory {quantity(peak, 'B')}, {quantity(peak - baseline, 'B')} more than at the start.")
    measured = {"baseline_resident_bytes": baseline, "peak_resident_bytes": peak}
    return {**passes.to_dict(), **measured, **({"left": left._asdict()} if left else {})}, progress.timings


def _passes(job: Prepared) -> Passes:
    """The passes on the devices of this process; those of a run that is resumed, whatever is free now."""
    flags, devices = job.flags, job.mesh.local_devices
    device = None if devices[0].platform == "cpu" else device_bytes(devices[0])
    limits: read.Keywords = {"budget": flags.memory, "device_budget": device}
    if flags.resume:
        limits |= recorded_budgets(flags.target) or {}
    options = {name: value for name, value in job.options.items() if name not in ("shape", "order", "spec")}
    mesh = Mesh(np.array(devices), ("x",))
    stored: read.Keywords = {"chunk": chunk_of(job.array), "fortran": job.array.fortran}
    return meshfft.passes(job.array.shape, mesh=mesh, **stored, **limits, **options)


def _say(job: Prepared, text: str) -> None:
    if jax.process_index() == 0 and not (job.flags.as_json or job.flags.quiet):
        say(text)


def _progress(job: Prepared, total: int) -> contextlib.AbstractContextManager[Progress]:
    return progress_of(total, in_bytes=True, log_json=job.flags.log_json, quiet=job.flags.quiet)


def _finish(job: Prepared, facts: dict[str, object], timings: list[Timing]) -> None:
    """Draws the picture, from slices of the file just written, and reports."""
    flags, plan = job.flags, job.plan
    if flags.plot is not None:
        with open_array(flags.target) as spectrum:
            planes = central_planes(spectrum.shape, plan.transform.dims)
            magnitudes = [np.abs(spectrum[plane.at]) for plane in planes]
            save_spectrum(flags.plot, magnitudes, planes, overwrite=flags.overwrite)
    if flags.as_json:
        files = {"input": str(flags.source), "output": str(flags.target), "plot": flags.plot and str(flags.plot)}
        files |= {"points": str(flags.sampling.path)} if flags.sampling else {}
        print_json({**facts, **files, "measured": [timing._asdict() for timing in timings]})
        return
    if flags.quiet:
        return
    print_timings(timings)
    say(f"Wrote {flags.target}: {job.ends[1][1]} {' x '.join(map(str, job.ends[1][0].shape))}.")
    if flags.plot is not None:
        say(f"Drew {flags.plot}.")
