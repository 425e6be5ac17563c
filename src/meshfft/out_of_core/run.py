"""Out of core: passes run over the disk, from a sliceable array to a file, one tile at a time.

    for each pass, for each of its tiles:   read, transform on the devices, write, flush, note in the journal

Invariant: the output gets its name once all of it is on the disk. Until then finished tiles are in a working folder
(journal.py). Of n processes each takes every n-th tile on its own devices, and all wait for each other between passes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from ..atomic import files_in, naming, put
from ..collectives.processes import check_alike, on_first, together
from ..io.grid import LEAST_BYTES, grid_of_tiles
from ..io.record import Record
from ..io.refusals import Refused
from ..io.source import Sink
from ..io.writing import ReportBytes, check_output, check_room, create_sink, header_of, open_sink
from ..layout.padded_array import AnyStored, padded
from ..layout.storage import Sliceable
from ..plans.plan import Plan
from .journal import AGAIN, Journal, clear, described, described_source, held, journal_of
from .tiles import Passes, given_dtype, transfer_bytes
from .transfer import Scratch, Values, read_tile, scratch_of, write_tile

LOG = logging.getLogger("meshfft")


def run_passes(
    made: Passes,
    source: Sliceable,
    target: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    record: Record | None = None,
    report: ReportBytes = lambda nbytes: None,
    begin: Callable[[str], None] = lambda part: None,
) -> None:
    """Transforms an array of any size into a file, in passes that hold one tile at a time.

    Reads `made.read_bytes`, writes `made.written_bytes`, needs `made.extra_bytes` of disk besides the output.

    Args:
        made: the passes, for a described mesh, or a mesh of one process's devices.
        source: a `Source` of `open_array`, or anything with a shape, a dtype and slices.
        target: the file to write; its suffix, .npy, .zarr, .h5 or .nc, chooses the format.
        overwrite: replaces an existing file, and discards an unfinished run.
        resume: resumes an unfinished run, if there is one.
        record: stored with the array, except in .npy.
        report: called with the bytes of each read or write.
        begin: called with "compile", then with each pass's name as it starts.

    Raises:
        ValueError: the source does not match the plan, or the unfinished run differs.
        FileExistsError: the output or an unfinished run exists, and no argument allows that.
        OSError: a file cannot be read or written, or the disk is full; finished tiles are kept for `resume`.
        PeerError: another process failed.
    """
    agreed, most = _agreed(made, source), max(LEAST_BYTES, transfer_bytes(made.budget))
    run = _Run(together(lambda: _local(made)), source, agreed, journal_of(made, target), most, record, report)
    with contextlib.ExitStack() as stack:
        on_first(lambda: stack.enter_context(run.begun(resume=resume, overwrite=overwrite)))
        run.passes(begin)
        on_first(lambda: run.finish(overwrite))


@dataclasses.dataclass(frozen=True)
class _Run:
    """`most` bytes are read or written at a time."""

    made: Passes
    source: Sliceable
    described: Mapping[str, object]
    journal: Journal
    most: int
    record: Record | None
    report: ReportBytes

    @contextlib.contextmanager
    def begun(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        if not (resume and self.journal.moved()):
            check_output(self.journal.target, overwrite, 0)
            header_of(self.journal.target, self.made.out_shape, self.made.out_dtype, self.record)
            used = sum(file.lstat().st_size for file in files_in(self.journal.folder))
            check_room(self.journal.target, max(0, max(self.made.disk_bytes) - used))
        with held(self.journal.folder):
            self.journal.begin(self.described, resume=resume, overwrite=overwrite)
            yield

    def passes(self, begin: Callable[[str], None]) -> None:
        """Removes a store once the pass that reads it is complete."""
        finished = together(self.journal.finished)
        begin("compile")
        programs = ((plan, given_dtype(plan, step.dtype)) for step in self.made.steps for plan in step.plans)
        together(lambda: [_program(plan, dtype) for plan, dtype in programs])  # before any tile is in memory
        for number, done in enumerate(finished):
            begin(f"pass {number + 1}")
            LOG.info("pass %d of %d: %d of %d tiles are done", number + 1, len(finished), done.sum(), done.size)
            if not done.all():
                if not done.any():
                    on_first(functools.partial(self._create, number))
                mine = np.flatnonzero(~done)[jax.process_index() :: jax.process_count()].tolist()
                try:
                    together(functools.partial(self._tiles, number, mine))
                except Refused:
                    if number == 0:  # the source has to change, and then nothing resumes
                        clear(self.journal.folder)
                    raise
                if number == 0:
                    together(self._check_source)
            if number > 0:
                on_first(functools.partial(clear, self._path(number - 1)))

    def finish(self, overwrite: bool) -> None:
        if not self.journal.moved():
            last = len(self.made.steps) - 1
            store = self._opened(last)
            if missing := store.missing():
                raise OSError(f"{store.path} has {missing}, the others are gone: {AGAIN}")
            self.journal.move(self._path(last))
            put(self._path(last), self.journal.target, overwrite)
        clear(self.journal.folder)

    def _check_source(self) -> None:
        now = described_source(self.source)
        if any(self.described[f"source {name}"] != value for name, value in now.items()):
            raise ValueError(f"{now['path']} was written to while it was read: {AGAIN} when nothing writes to it")

    def _path(self, number: int) -> Path:
        kind = ".npy" if number < len(self.made.steps) - 1 else self.journal.target.suffix
        return self.journal.folder / f"pass-{number}{kind}"

    def _create(self, number: int) -> None:
        step, path = self.made.steps[number], self._path(number)
        shape, grid = step.after.shape, grid_of_tiles(step.after, step.out_dtype.itemsize, self.most)
        last = number == len(self.made.steps) - 1
        clear(path)
        record = self.record if last else None
        with naming(self.journal.target):
            create_sink(path, shape if last else (math.prod(shape),), step.out_dtype, grid, record)

    def _opened(self, number: int) -> Sink:
        path = self._path(number)
        if not path.exists():
            raise FileNotFoundError(f"{path} is gone, or not on a file system that all processes share: {AGAIN}")
        return open_sink(path)

    def _scratch(self, number: int) -> Scratch:
        return scratch_of(self._opened(number), self.made.steps[number].after, self.made.steps[number + 1].before)

    def _tiles(self, number: int, mine: list[int]) -> None:
        """A tile is written while the next is read and transformed."""
        step = self.made.steps[number]
        array = self._scratch(number - 1) if number > 0 else self.source
        store = self._scratch(number) if number < len(self.made.steps) - 1 else self._opened(number)

        def keep(index: int, y: Values) -> None:
            tile = step.tiles[index]
            with naming(self.journal.target):
                write_tile(store, y, step.plan_of(tile), tile.target, self.most, self.report)
                self.journal.add(number, index)

        with ThreadPoolExecutor(1) as writer:
            writing = writer.submit(lambda: None)
            for index in mine:
                tile = step.tiles[index]
                plan = step.plan_of(tile)
                y = read_tile(array, plan, tile.source, step.dtype, self.most)
                if plan is not None:
                    y = jax.block_until_ready(_program(plan, y.dtype)(y))
                self.report(step.bytes_of(tile)[0])
                writing.result()
                writing = writer.submit(keep, index, y)
                del y
            writing.result()


@functools.lru_cache(maxsize=64)
def _program(plan: Plan, dtype: np.dtype) -> jax.stages.Compiled:
    sharding = NamedSharding(plan.mesh, plan.in_layout.spec) if isinstance(plan.mesh, Mesh) else None
    stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, dtype, sharding=sharding)
    return compiled(plan, padded(stored, plan.in_layout, plan.mesh))


def compiled(plan: Plan, x: AnyStored) -> jax.stages.Compiled:
    """The plan for such arrays as one program, which JAX would compile without the chip's options."""
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, np.dtype(x.dtype) == plan.dtype)
    return jax.jit(plan, compiler_options=dict(options) or None).lower(x).compile()


def _agreed(made: Passes, source: Sliceable) -> dict[str, object]:
    if tuple(source.shape) != made.shape or source.dtype != made.dtype:
        both = f"{source.dtype} of shape {tuple(source.shape)}, the passes take {made.dtype} of {made.shape}"
        raise ValueError(f"the source is {both}: plan for this source")
    run = described(made, source)
    check_alike({"the run": hashlib.sha256(json.dumps(run).encode()).hexdigest()})
    return run


def _local(made: Passes) -> Passes:
    """The passes on this process's devices: those of their mesh, or as many."""
    mesh, own = made.mesh, jax.local_devices()
    if isinstance(mesh, Mesh):
        if not set(mesh.devices.flat) <= set(own):
            remedy = "give each process a mesh of its own, jax.local_devices()"
            raise ValueError(f"the mesh has devices of other processes: {remedy}")
    elif mesh is not None:
        many = math.prod(mesh.axis_sizes)
        if many > len(own):
            raise ValueError(f"the passes take {many} devices and a process has {len(own)}: plan for a smaller mesh")
        mesh = Mesh(np.array(own[:many]).reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)
    plans = ([dataclasses.replace(plan, mesh=mesh) for plan in step.plans] for step in made.steps)
    steps = (dataclasses.replace(step, plans=tuple(on)) for step, on in zip(made.steps, plans, strict=True))
    return dataclasses.replace(made, steps=tuple(steps))
