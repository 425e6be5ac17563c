"""Out of core: passes run over the disk, from an array that is read by slices to a file, a tile at a time.

    for each pass, for each of its tiles:   read, transform on the devices, write, flush, note in the journal

Invariant: the output gets its name when all of it is on the disk; until then what is done lies beside it, in a working
folder, and a run that was ended is resumed after the last tile that its journal has. Where several processes run, each
takes every n-th tile on its own devices, and they meet between passes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from ..atomic import put
from ..files.processes import check_alike, together
from ..files.stores import Store, ZarrStore, create_store, open_store
from ..files.writing import Report, check_output, check_room
from ..formats.grid import LEAST_BYTES, Grid, grid_of_pieces
from ..formats.record import Record
from ..layout.layout import AnyMesh
from ..layout.padded_array import padded
from ..layout.storage import Sliceable
from ..plans.plan import Plan
from .journal import AGAIN, Journal, clear, described, described_source, held, journal_of
from .partition import given_dtype, transfer_bytes
from .tiles import Pass, Passes
from .transfer import Scratch, Values, read_tile, scratch_of, write_tile


def run_passes(
    made: Passes,
    source: Sliceable,
    target: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    record: Record | None = None,
    report: Report = lambda nbytes: None,
    begin: Callable[[str], None] = lambda part: None,
) -> None:
    """Transforms an array of any size into a file, in passes that hold one tile of it at a time.

    Reads `made.read_bytes`, writes `made.written_bytes`, needs `made.extra_bytes` of disk besides the output.

    Args:
        made: the passes, planned for a mesh of the devices of one process, or for one that is described.
        source: the array: a `Source` of `open_array`, or anything with a shape, a dtype and slices.
        target: the file to write; its suffix, .npy or .zarr, chooses the format.
        overwrite: whether a file already there may be replaced, and a run that was not finished forgotten.
        resume: whether such a run is resumed, if there is one.
        record: what is kept beside a Zarr array.
        report: called with bytes, as they have been read and written.
        begin: called with "compile", and when all programs are made with each pass as it begins.

    Raises:
        ValueError: the source is not what was planned for; the run to be resumed was another, or had another source.
        FileExistsError: the output exists, or a run to it was not finished, and no argument says what to do.
        OSError: a file cannot be read or written, or the disk is full; what is done is kept for `resume`.
        PeerError: another process failed.
    """
    run, journal, target = _agreed(made, source), journal_of(made, target), Path(target)
    this = _Run(together(lambda: _local(made)), source, run, journal, target, record, report, begin)
    with contextlib.ExitStack() as stack:
        this.on_first(lambda: stack.enter_context(this.begun(resume=resume, overwrite=overwrite)))
        this.passes()
        this.on_first(lambda: this.finish(overwrite))


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run as one process sees it: the passes on its own devices, and what `run_passes` was given."""

    made: Passes
    source: Sliceable
    run: Mapping[str, object]
    journal: Journal
    target: Path
    record: Record | None
    report: Report
    begin: Callable[[str], None]

    def on_first(self, work: Callable[[], object]) -> None:
        """Does what one process does for all."""
        together(lambda: work() if jax.process_index() == 0 else None)

    @contextlib.contextmanager
    def begun(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Holds the working folder, with a journal of this run; refuses an output that could not be written."""
        if not (resume and self.journal.moved(self.target)):
            check_output(self.target, overwrite, 0)
            check_room(self.target, max(0, max(self.made.disk_bytes) - self.journal.used_bytes()))
        with held(self.journal.folder):
            self.journal.begin(self.run, resume=resume, overwrite=overwrite)
            yield

    def passes(self) -> None:
        """What is missing of each pass; a store is removed once all that was made of it is there."""
        finished = together(self.journal.finished)
        self.begin("compile")
        together(self._compile)
        for number, done in enumerate(finished):
            self.begin(f"pass {number + 1}")
            if not done.all():
                self.on_first(functools.partial(self._create, number) if not done.any() else lambda: None)
                mine = np.flatnonzero(~done)[jax.process_index() :: jax.process_count()].tolist()
                together(functools.partial(self._tiles, number, mine))
                together(self._check_source if number == 0 else lambda: None)
            if number > 0:
                self.on_first(functools.partial(clear, self._path(number - 1)))

    def finish(self, overwrite: bool) -> None:
        """Gives the result its name, and removes the working folder."""
        if not self.journal.moved(self.target):
            last = len(self.made.steps) - 1
            _check_files(self._opened(last))
            self.journal.move(self._path(last))
            put(self._path(last), self.target, overwrite)
        clear(self.journal.folder)

    def _compile(self) -> None:
        """All programs, before any tile is in memory."""
        for step in self.made.steps:
            for plan in step.plans:
                _program(plan, given_dtype(plan, step.dtype))

    def _check_source(self) -> None:
        """Refuses a source of which some files were written to while others were read."""
        now = described_source(self.source)
        if any(self.run[f"source {name}"] != value for name, value in now.items()):
            raise ValueError(f"{now['path']} was written to while it was read: {AGAIN} when nothing writes to it")

    @property
    def _most(self) -> int:
        """Bytes that are read or written at a time."""
        return max(LEAST_BYTES, transfer_bytes(self.made.budget))

    def _path(self, number: int) -> Path:
        """What a pass writes."""
        kind = ".npy" if number < len(self.made.steps) - 1 else self.target.suffix
        return self.journal.folder / f"pass-{number}{kind}"

    def _create(self, number: int) -> None:
        """The store that a pass writes to, cut along its tiles; or a plain file of scratch."""
        step, path = self.made.steps[number], self._path(number)
        clear(path)
        if number < len(self.made.steps) - 1:
            size = (math.prod(step.after.shape),)
            create_store(path, size, step.out_dtype, Grid(size), kind=".npy")
        else:
            grid = grid_of_pieces(step.after, step.out_dtype.itemsize, self._most)
            create_store(path, step.after.shape, step.out_dtype, grid, self.record, kind=path.suffix)

    def _opened(self, number: int) -> Store:
        """What a pass writes; OSError where it is gone or cut short."""
        path = self._path(number)
        if not path.exists():
            raise FileNotFoundError(f"{path} is gone, or not on a file system that all processes share: {AGAIN}")
        return open_store(path, path.suffix)

    def _scratch(self, number: int) -> Scratch:
        return scratch_of(self._opened(number), self.made.steps[number].after, self.made.steps[number + 1].before)

    def _tiles(self, number: int, mine: list[int]) -> None:
        """This process's share of the tiles of a pass; one is written while the next is read and transformed."""
        array = self._scratch(number - 1) if number > 0 else self.source
        store = self._scratch(number) if number < len(self.made.steps) - 1 else self._opened(number)
        with ThreadPoolExecutor(1) as writer:
            going: Future[None] | None = None
            for index in mine:
                y = self._transformed(number, index, array)
                if going is not None:
                    going.result()
                going = writer.submit(self._keep, number, index, y, store)
                del y
            if going is not None:
                going.result()

    def _transformed(self, number: int, index: int, array: Sliceable | Scratch) -> Values:
        step = self.made.steps[number]
        tile = step.tiles[index]
        plan = step.plan_of(tile)
        x = read_tile(array, plan, tile.source, step.dtype, self._most)
        y = x if plan is None else jax.block_until_ready(_program(plan, x.dtype)(x))
        self.report(step.bytes_of(tile)[0])
        return y

    def _keep(self, number: int, index: int, y: Values, store: Store) -> None:
        """Writes a tile, and notes it when it is there for good."""
        step = self.made.steps[number]
        tile = step.tiles[index]
        write_tile(store, y, step.plan_of(tile), tile.target, self._most, self.report)
        self.journal.add(number, index)


@functools.lru_cache(maxsize=64)
def _program(plan: Plan, dtype: np.dtype) -> jax.stages.Compiled:
    """A plan compiled, for an array of that type as it is given."""
    sharding = NamedSharding(plan.mesh, plan.in_layout.spec) if isinstance(plan.mesh, Mesh) else None
    stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, dtype, sharding=sharding)
    given = padded(stored, plan.in_layout, plan.mesh)
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, dtype == plan.dtype)
    return jax.jit(plan, compiler_options=dict(options) or None).lower(given).compile()


def _agreed(made: Passes, source: Sliceable) -> dict[str, object]:
    """What the journal has to say of the run, once the source fits and all processes have the same."""
    if tuple(source.shape) != made.shape or source.dtype != made.dtype:
        raise ValueError(
            f"the source is {source.dtype} of shape {tuple(source.shape)}, the passes take {made.dtype} of "
            f"{made.shape}: plan for this source"
        )
    run = described(made, source)
    check_alike({"the run": hashlib.sha256(json.dumps(run).encode()).hexdigest()})
    return run


def _local(made: Passes) -> Passes:
    """The passes on devices of this process."""
    mesh = _local_mesh(made.steps[-1].plans[0].mesh)

    def on(step: Pass) -> Pass:
        return dataclasses.replace(step, plans=tuple(dataclasses.replace(plan, mesh=mesh) for plan in step.plans))

    return dataclasses.replace(made, steps=tuple(map(on, made.steps)))


def _local_mesh(mesh: AnyMesh | None) -> Mesh | None:
    """The mesh itself, or one of this process's devices like the one that is described."""
    own = jax.local_devices()
    if mesh is None:
        return None
    if isinstance(mesh, Mesh):
        if not set(mesh.devices.flat) <= set(own):
            raise ValueError(
                "the mesh has devices of other processes: give each process a mesh of its own, jax.local_devices()"
            )
        return mesh
    many = math.prod(mesh.axis_sizes)
    if many > len(own):
        raise ValueError(f"the passes take {many} devices and a process has {len(own)}: plan for a smaller mesh")
    return Mesh(np.array(own[:many]).reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)


def _check_files(store: Store) -> None:
    """Raises OSError where files are gone of a Zarr array all of which was written; another was seen to be whole."""
    if isinstance(store, ZarrStore):
        needed = sum(1 for _ in store.boxes(tuple(slice(0, n) for n in store.shape), 1))
        have = sum(entry.name.startswith("c.") for entry in os.scandir(store.path))
        if have < needed:
            raise OSError(f"{store.path} has {have} chunks of {needed}, the others are gone: {AGAIN}")
