"""`meshfft transform`: an array file in, its transform out, with every device holding only its own block.

Refuses before the work, in all processes. Process 0 prints.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import meshfft

from ..collectives.processes import together
from ..io import Record, Source, check_disjoint, identity, labelled, left_out, open_array, record_of, write_array
from ..io.writing import check_room, header_of
from ..layout.layout import Layout
from ..layout.memory import device_bytes, give_back_memory, peak_resident
from ..layout.padded_array import stored_of
from ..nufft.grid.window import LEAST_TOL
from ..nufft.points import Scattered
from ..numerics.dtypes import complex_dtype, is_wide
from ..numerics.units import quantity
from ..out_of_core import chunk_of, left_of, recorded_budgets, run_passes
from ..out_of_core.run import compiled
from ..out_of_core.tiles import TRANSFER_BYTES, Passes, given_dtype
from ..plans.inverse_solve import Solution
from ..plans.plan import Plan
from ..spectral.picture import central_planes, check_picture, save_spectrum
from . import flags as read
from .cluster import agree, check_files, check_run, everywhere, run_in, start_mesh
from .output import PartTime, Progress, guarded, warn
from .request import OF_ONE, UNKNOWN, Flags, SamplingFlags, check_alone, read_sampling

Stored = jax.Array | meshfft.PaddedArray
Made = tuple[Mapping[str, object], list[PartTime]]  # facts for JSON, seconds of every part


class Prepared(NamedTuple):
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
        first, last = (self.plan.in_layout, self.plan.in_dtype), (self.plan.out_layout, self.plan.out_dtype)
        return (last, first) if self.solves else (first, last)

    def say(self, text: str) -> None:
        self.flags.files.say(text)


@guarded
@read.with_flags
def transform(
    source: read.Input,
    target: read.Output,
    *,
    mesh: read.MeshFlag = None,
    spec: read.SpecFlag = None,
    axes: read.AxesFlag = None,
    inverse: Annotated[bool, read.switch("--inverse", "Transform back, by the record in IN.")] = False,
    how: read.TransformFlags,
    sampled: SamplingFlags,
    plot: Annotated[Path | None, read.option("PNG", "Draw the spectrum: .png, .pdf, .svg.")] = None,
    memory: Annotated[str | None, read.option("SIZE", "Per process: 8GB; more goes in passes.")] = None,
    resume: Annotated[bool, read.switch("--resume", "Resume an unfinished run in passes.")] = False,
    files: read.Files,
    joining: read.Joining,
) -> None:
    """Transform the array in a file, and write the result.

    Uses the machine's accelerators if there are enough of them, else CPU devices that share its cores.
    """

    def asked() -> Flags:
        given, kind = read.read_options(axes, **how._asdict()), how.kind
        for name in read.SENT:
            if given[name] is not None and memory is not None:
                sent = f"--{name} is for what devices send, and in passes they send nothing"
                raise ValueError(f"{sent}: leave out --{name}")
        if plot is not None and inverse:
            raise ValueError("--plot draws a spectrum and --inverse leaves none: plot the forward transform")
        if plot is not None and kind not in (None, "fft"):
            raise ValueError(f"--plot draws a full spectrum, and --kind {kind} has none: leave one out")
        sampling = read_sampling(sampled)
        check_alone(sampling, inverse=inverse, kind=kind, plot=plot, memory=memory, resume=resume, order=how.order)
        budget = _memory(target, memory, resume)
        return Flags(source, target, files, mesh, spec, inverse, given, plot, budget, resume, sampling)

    run_in(joining, asked, Flags.device_count, _run)


def _memory(target: Path, memory: str | None, resume: bool) -> int | None:
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
        read.read_mesh(flags.mesh)  # refuses a wrong one early
    agree(flags.deciding())
    everywhere(lambda: _check(flags))
    if flags.memory is not None:
        give_back_memory()
    with contextlib.ExitStack() as stack:
        array = everywhere(lambda: stack.enter_context(open_array(flags.source, flags.files.dataset)))
        agree(everywhere(lambda: identity(array)))
        job = _prepared(flags, array)
        limited = flags.memory is not None and _needed_bytes(job) > flags.memory
        facts, timings = (_in_passes if limited else _in_core)(job)
        if jax.process_index() == 0:
            _finish(job, facts, timings)


def _check(flags: Flags) -> None:
    points = [flags.sampling.path] if flags.sampling else []
    check_files(flags.target, flags.files.overwrite, [flags.source, *points])
    if flags.plot is not None:
        check_picture(flags.plot, flags.files.overwrite)
        check_disjoint(flags.source, flags.plot)


def _prepared(flags: Flags, array: Source) -> Prepared:
    options, mesh = flags.plan_options(array), start_mesh(flags.mesh_sizes(array))
    precision = options.get("precision") or "default"
    wide = array.dtype.itemsize >= (16 if array.dtype.kind == "c" else 8)
    if is_wide(precision) or (precision == "default" and wide):
        jax.config.update("jax_enable_x64", True)
    plan = _planned(flags, options, mesh, array.dtype)
    agree({"this plan": str(plan)})
    if plan.walk.real and array.dtype.kind == "c":
        takes = f"this {plan.transform.name} transforms real numbers"
        raise ValueError(f"{flags.source} holds {array.dtype}, and {takes}: use --kind fft")
    record = None  # frequencies at points have no spacing
    if flags.sampling is None:
        record = labelled(record_of(plan, array.units, array.spacing), array.labels)
    job = Prepared(flags, options, array, plan, mesh, record)
    layout, dtype = job.ends[1]
    header_of(flags.target, layout.shape, dtype, record)
    return job


def _planned(flags: Flags, options: read.Keywords, mesh: Mesh, dtype: np.dtype) -> Plan:
    """Samples at scattered points on the unit circle are solved by FFTs."""
    points = options.get("points")
    scattered = isinstance(points, Scattered) and points.log_radius is None
    if not (flags.sampling and flags.sampling.solve and scattered and options.get("method") != "kdft"):
        return meshfft.plan(mesh=mesh, **options)
    if useless := next((name for name in read.SENT if name in options), None):
        raise ValueError(f"--{useless} is for the sum itself, and FFTs solve here: leave it out, or add --method kdft")
    how: read.Keywords = {name: value for name, value in options.items() if name not in ("inverse", "kind")}
    tol = LEAST_TOL[complex_dtype(dtype, options.get("precision")).name]
    return meshfft.scattered_plan(mesh=mesh, tol=tol, **how)


def _needed_bytes(job: Prepared) -> int:
    """Bytes to transform all blocks of this process at once, and to read and write them."""
    plan, count = job.plan, len(job.mesh.local_devices)
    loaded = math.prod(plan.in_layout.block) * plan.in_dtype.itemsize * count
    stored = math.prod(plan.out_layout.block) * plan.out_dtype.itemsize * count
    return plan.peak_bytes * count + loaded + min(6 * TRANSFER_BYTES, 3 * stored)


def _in_core(job: Prepared) -> Made:
    flags, plan, devices = job.flags, job.plan, job.mesh.local_devices
    (comes, _), (leaves, dtype) = job.ends
    job.say(f"Solves the {plan}\n{OF_ONE}\n" if job.solves else f"{plan}\n")
    check_run(plan.peak_bytes, devices)
    together(lambda: check_room(flags.target, math.prod(leaves.shape) * dtype.itemsize))
    parts = [job.ends[0]] if job.solves else [(one.in_layout, one.in_dtype) for one in (plan, *plan.stages)]
    nbytes = sum(math.prod(layout.block) * kind.itemsize for layout, kind in (*parts, (leaves, dtype)))
    with flags.files.progress(nbytes * len(devices)) as progress:
        source = progress.counting(job.array).astype(given_dtype(plan, job.array.dtype))
        load = functools.partial(meshfft.shard, source, job.mesh, comes.spec)
        y, found = _solved(job, load, progress) if job.solves else (run_stages(plan, load, progress), {})
        progress.begin("write")
        write_array(flags.target, y, overwrite=flags.files.overwrite, record=job.record, report=progress.advance)
    return {**plan.to_dict(), **found}, progress.timings


def _solved(job: Prepared, load: Callable[[], Stored], progress: Progress) -> tuple[Stored, read.Keywords]:
    progress.begin("read")
    y = jax.block_until_ready(load())
    progress.begin("solve")
    found: Solution = jax.block_until_ready(
        job.plan.solve(y, **job.flags.sampling.weights if job.flags.sampling else {})
    )
    residual, methods = float(found.residual), list(found.methods)
    least = "at least " * found.bounded
    job.say(f"Solved by {', '.join(methods)}: condition {least}{found.condition:.3g}, residual {residual:.2g}.")
    numbers: read.Keywords = {"residual": residual if math.isfinite(residual) else None, "bounded": found.bounded}
    numbers |= {"condition": found.condition, "iterations": [int(count) for count in found.iterations]}
    return found.value, {**UNKNOWN, "solution": {**numbers, "conditions": list(found.conditions), "methods": methods}}


def run_stages(plan: Plan, load: Callable[[], Stored], progress: Progress) -> Stored:
    """Takes `load`, because a caller that passed the array would keep it alive."""
    progress.begin("read")
    x: Stored = jax.block_until_ready(load())
    for stage in plan.stages:
        held = sum(shard.data.nbytes for shard in stored_of(x).addressable_shards)
        x = _run_stage(stage, x, progress)
        progress.advance(held)
    return x


def _run_stage(stage: Plan, x: Stored, progress: Progress) -> Stored:
    progress.begin(f"compile {stage.name}")
    program = compiled(stage, x)
    progress.begin(stage.name)
    y: Stored = jax.block_until_ready(program(x))
    return y


def _in_passes(job: Prepared) -> Made:
    flags, passes, baseline = job.flags, _passes(job), 0
    job.say(f"{passes}\n")
    left = left_of(passes, flags.target, job.array) if flags.resume else None
    if left is not None:
        sizes = f"{quantity(left.read_bytes, 'B')} to read and {quantity(left.written_bytes, 'B')} to write"
        job.say(f"{left.done} of {left.tiles} tiles are done; {sizes} remain.")

    def begin(part: str) -> None:
        nonlocal baseline
        if part == "pass 1":  # all is in memory but the array
            baseline = peak_resident()
            job.say(f"Python, JAX and the compiled programs take {quantity(baseline, 'B')} besides.")
        progress.begin(part)

    todo = left or passes
    how: read.Keywords = {"overwrite": flags.files.overwrite, "resume": flags.resume, "record": job.record}
    with flags.files.progress((todo.read_bytes + todo.written_bytes) // jax.process_count()) as progress:
        try:
            run_passes(passes, job.array, flags.target, report=progress.advance, begin=begin, **how)
        except (KeyboardInterrupt, OSError) as error:
            by_user = isinstance(error, KeyboardInterrupt)
            if jax.process_index() == 0 and (by_user or baseline):  # an earlier error left all as it was
                left, what = left_of(passes, flags.target), "interrupted" if by_user else "stopped"
                kept = f"{left.done} of {left.tiles} tiles kept beside {flags.target}"
                warn(f"meshfft: {what}: {kept}: the same command with --resume continues")
            raise
    peak = peak_resident()
    job.say(f"Peak memory {quantity(peak, 'B')}, {quantity(peak - baseline, 'B')} more than at the start.")
    measured = {"baseline_resident_bytes": baseline, "peak_resident_bytes": peak}
    return {**passes.to_dict(), **measured, **({"left": left._asdict()} if left else {})}, progress.timings


def _passes(job: Prepared) -> Passes:
    """A resumed run keeps its own budgets."""
    flags, devices = job.flags, job.mesh.local_devices
    device = None if devices[0].platform == "cpu" else device_bytes(devices[0])
    limits: read.Keywords = {"budget": flags.memory, "device_budget": device}
    if flags.resume:
        limits |= recorded_budgets(flags.target) or {}
    options = {name: value for name, value in job.options.items() if name not in ("shape", "order", "spec")}
    mesh = Mesh(np.array(devices), ("x",))
    stored: read.Keywords = {"chunk": chunk_of(job.array), "fortran": job.array.fortran}
    return meshfft.passes(job.array.shape, mesh=mesh, **stored, **limits, **options)


def _finish(job: Prepared, facts: Mapping[str, object], timings: list[PartTime]) -> None:
    flags, (layout, dtype) = job.flags, job.ends[1]
    wrote = f"Wrote {flags.target}: {dtype} {' x '.join(map(str, layout.shape))}."
    if names := left_out(job.array.labels, job.record):
        wrote += f"\nIt leaves out coordinates without a regular spacing: {', '.join(names)}."
    if flags.plot is not None:
        with open_array(flags.target) as spectrum:
            planes = central_planes(spectrum.shape, job.plan.transform.dims)
            magnitudes = [np.abs(spectrum[plane.at]) for plane in planes]
            save_spectrum(flags.plot, magnitudes, planes, overwrite=flags.files.overwrite)
        wrote += f"\nDrew {flags.plot}."
    files = {"input": str(flags.source), "output": str(flags.target), "plot": flags.plot and str(flags.plot)}
    files |= {"points": str(flags.sampling.path)} if flags.sampling else {}
    flags.files.finish({**facts, **files}, timings, wrote)
