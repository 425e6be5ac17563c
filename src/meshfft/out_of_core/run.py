"""Out of core: passes run over the store, from an array that is read by slices to a file, a piece at a time.

    for each pass, for each of its pieces:   read, transform on the devices, write, flush, note in the journal

Invariant: the output gets its name when all of it is on the disk; until then what is done lies beside it, in a working
folder, and a run that was ended is resumed after the last piece that its journal has. Where several processes run, each
takes every n-th piece on its own devices, and they meet between passes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding

from ..atomic import put
from ..files.processes import check_alike, together
from ..files.stores import Store, ZarrStore, create_store, open_store
from ..files.writing import Report, check_output, check_room
from ..formats.grid import LEAST_BYTES, grid_of_pieces
from ..formats.record import Record
from ..layout.layout import AnyMesh
from ..layout.padded_array import padded
from ..layout.storage import Sliceable
from ..plans.plan import Plan
from .budget import given_dtype, transfer_bytes
from .journal import AGAIN, BETWEEN, Journal, begin_journal, clear, described, described_source, held, working_folder
from .pieces import Pass, Passes, Piece
from .scratch import Blocks, blocks_of
from .transfer import read_piece, read_plain
from .transfer import write_piece as fill

Begin = Callable[[str], None]


def run_passes(
    made: Passes,
    source: Sliceable,
    target: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    record: Record | None = None,
    report: Report = lambda nbytes: None,
    begin: Begin = lambda part: None,
) -> None:
    """Transforms an array of any size into a file, in passes that hold one piece of it at a time.

    Args:
        made: the passes, planned for a mesh of the devices of one process, or for as many that are described.
        source: the array: a `Source` of `open_array`, or anything with a shape, a dtype and slices.
        target: the file to write; its suffix, .npy or .zarr, chooses the format.
        overwrite: whether a file already there may be replaced, and a run that was not finished forgotten.
        resume: whether such a run is resumed, if there is one.
        record: what is kept beside a Zarr array.
        report, begin: called with bytes, as they have been read and written; and with "compile", when all programs are
            made, and with each pass as it begins.

    Raises:
        ValueError: the source is not what was planned for; the run to be resumed was another, or had another source.
        FileExistsError: the output exists, or a run to it was not finished, and no argument says what to do.
        OSError: a file cannot be read or written, or the disk is full; what is done is kept for `resume`.
        PeerError: another process failed.

    Reads `made.read_bytes`, writes `made.written_bytes`, needs `made.extra_bytes` of disk besides the output.
    """
    target, first = Path(target), jax.process_index() == 0
    run, counts = _agreed(made, source), tuple(len(step.pieces) for step in made.steps)
    journal = Journal(working_folder(target), counts, jax.process_index())
    with contextlib.ExitStack() as stack:

        def prepare() -> None:
            if not (resume and journal.moved(target)):
                _check_target(made, target, journal, overwrite)
            stack.enter_context(held(journal.folder))
            begin_journal(journal.folder, run, resume=resume, overwrite=overwrite)

        steps = together(lambda: _local(made))
        together(lambda: prepare() if first else None)
        most = max(LEAST_BYTES, transfer_bytes(made.budget))
        _Run(steps, source, run, journal, target.suffix, most, record, report, begin).passes()
        together(lambda: _finish(journal, len(steps) - 1, target, overwrite) if first else None)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run as one process sees it; `steps` are on its own devices, and `most` bytes are read or written at a time."""

    steps: tuple[Pass, ...]
    source: Sliceable
    run: dict[str, Any]
    journal: Journal
    kind: str
    most: int
    record: Record | None
    report: Report
    begin: Begin

    def passes(self) -> None:
        """What is missing of each pass; a store is removed once all that was made of it is there."""
        done = together(self.journal.finished)
        together(self.journal.open)
        self.begin("compile")
        together(self._compile)
        for number, step in enumerate(self.steps):
            missing = sorted(set(range(len(step.pieces))) - done[number])
            self.begin(f"pass {number + 1}")
            if missing:
                together(functools.partial(self._make, number, missing) if self._first else lambda: None)
                together(functools.partial(self._pieces, number, missing[jax.process_index() :: jax.process_count()]))
            if number == 0 and missing:
                together(self._check_source)
            if number > 0 and self._first:
                clear(self._store(number - 1))

    @property
    def _first(self) -> bool:
        return self.journal.process == 0

    def _check_source(self) -> None:
        """Refuses a source of which some files were written to while others were read."""
        now = described_source(self.source)
        same = all(self.run[f"source {name}"] == value for name, value in now.items())
        if not same:
            raise ValueError(f"{now['path']} was written to while it was read: {AGAIN} when nothing writes to it")

    def _compile(self) -> None:
        """All programs, before any piece is in memory."""
        for step in self.steps:
            for plan in step.plans:
                _program(plan, given_dtype(plan, step.dtype))

    def _store(self, number: int) -> Path:
        return self.journal.store(number, self.kind if number == len(self.steps) - 1 else BETWEEN)

    def _between(self, number: int) -> Blocks:
        """What a pass writes for the next one."""
        layouts = (self.steps[number].after, self.steps[number + 1].before)
        return blocks_of(self._store(number), layouts, self.steps[number].out_dtype)

    def _make(self, number: int, missing: list[int]) -> None:
        """The store that a pass writes to, cut along its pieces and those of the next pass."""
        step, path = self.steps[number], self._store(number)
        if len(missing) < len(step.pieces):
            self._check_begun(number)
            return
        clear(path)
        if number < len(self.steps) - 1:
            self._between(number).create()
            return
        grid = grid_of_pieces(step.after, step.out_dtype.itemsize, self.most)
        create_store(path, step.after.shape, step.out_dtype, grid, self.record, kind=self.kind)

    def _check_begun(self, number: int) -> None:
        """Refuses a store that is gone or cut short, and that the journal has pieces of."""
        path = self._store(number)
        if not path.exists():
            raise ValueError(f"{path} is gone, and the journal has pieces of it: {AGAIN}")
        if number < len(self.steps) - 1:
            self._between(number).check_whole()
        else:
            open_store(path, self.kind)

    def _pieces(self, number: int, mine: list[int]) -> None:
        """This process's share of the pieces of a pass."""
        step, path = self.steps[number], self._store(number)
        shared = f"{path} is not there: the output must be on a file system that all processes share"
        if not path.exists():
            raise FileNotFoundError(shared)
        store: Store = self._between(number) if number < len(self.steps) - 1 else open_store(path, self.kind)
        array = self._input(number)
        with ThreadPoolExecutor(1) as writer:
            going: list[Future[None]] = []
            for index in mine:
                y = self._transformed(step, step.pieces[index], array)
                while going:
                    going.pop().result()
                going.append(writer.submit(self._keep, number, index, y, store))
                del y
            for last in going:
                last.result()

    def _input(self, number: int) -> Sliceable | Blocks:
        if number == 0:
            return self.source
        found = self._between(number - 1)
        if not found.path.exists():
            raise ValueError(f"{found.path} is gone, and what was to be made of it is not finished: {AGAIN}")
        return found

    def _transformed(self, step: Pass, piece: Piece, array: Sliceable | Blocks) -> Array | np.ndarray:
        if step.copies:
            block = read_plain(array, piece.source, step.dtype, self.most)
            self.report(step.bytes_of(piece)[0])
            return block
        plan = step.plan_of(piece)
        x = read_piece(array, plan, piece.source, step.dtype, self.most)
        y = jax.block_until_ready(_program(plan, x.dtype)(x))
        self.report(step.bytes_of(piece)[0])
        return y

    def _keep(self, number: int, index: int, y: Array | np.ndarray, store: Store) -> None:
        """Writes a piece, while the next one is read and transformed, and notes it when it is there for good."""
        step = self.steps[number]
        piece = step.pieces[index]
        layout = None if step.copies else step.plan_of(piece).out_layout
        fill(store, y, layout, piece.target, self.most, self.report)
        self.journal.add(number, index)


@functools.lru_cache(maxsize=64)
def _program(plan: Plan, dtype: np.dtype) -> Any:
    """A plan compiled, for an array of that type as it is given."""
    sharding = NamedSharding(plan.mesh, plan.in_layout.spec) if isinstance(plan.mesh, Mesh) else None
    stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, dtype, sharding=sharding)
    given = padded(stored, plan.in_layout, plan.mesh)
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, dtype == plan.dtype)
    return jax.jit(plan, compiler_options=dict(options) or None).lower(given).compile()


def _agreed(made: Passes, source: Sliceable) -> dict[str, Any]:
    """What the journal has to say of the run, once the source fits and all processes have the same."""
    found = f"the source is {source.dtype} of shape {tuple(source.shape)}, the passes take {made.dtype} of {made.shape}"
    if tuple(source.shape) != made.shape or source.dtype != made.dtype:
        raise ValueError(f"{found}: plan for this source")
    run = described(made, source)
    check_alike({"the run": hashlib.sha256(json.dumps(run).encode()).hexdigest()})
    return run


def _local(made: Passes) -> tuple[Pass, ...]:
    """The passes on devices of this process."""
    mesh = _local_mesh(made.steps[-1].plans[0].mesh)

    def on(step: Pass) -> Pass:
        return dataclasses.replace(step, plans=tuple(dataclasses.replace(plan, mesh=mesh) for plan in step.plans))

    return tuple(map(on, made.steps))


def _local_mesh(mesh: AnyMesh | None) -> Mesh | None:
    """The mesh itself, or one of this process's devices like the one that is described."""
    own = jax.local_devices()
    if mesh is None:
        return None
    if isinstance(mesh, Mesh):
        far = "the mesh has devices of other processes: give each process a mesh of its own, jax.local_devices()"
        if not set(mesh.devices.flat) <= set(own):
            raise ValueError(far)
        return mesh
    many = math.prod(mesh.axis_sizes)
    if many > len(own):
        raise ValueError(f"the passes take {many} devices and a process has {len(own)}: plan for a smaller mesh")
    return Mesh(np.array(own[:many]).reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)


def _check_target(made: Passes, target: Path, journal: Journal, overwrite: bool) -> None:
    """Refuses an output that could not be written, before anything is done for it."""
    check_output(target, overwrite, 0)
    check_room(target, max(0, max(made.disk_bytes) - journal.used_bytes()))


def _finish(journal: Journal, last: int, target: Path, overwrite: bool) -> None:
    """Gives the result its name, and removes the working folder."""
    store = journal.store(last, target.suffix)
    if not journal.moved(target):
        if not store.exists():
            raise ValueError(f"{store} is gone, and the journal has pieces of it: {AGAIN}")
        _check_files(open_store(store, target.suffix))
        journal.move(store)
        put(store, target, overwrite)
    clear(journal.folder)


def _check_files(store: Store) -> None:
    """Raises OSError where files are gone of a Zarr array all of which was written; another was seen to be whole."""
    if isinstance(store, ZarrStore):
        needed = sum(1 for _ in store.boxes(tuple(slice(0, n) for n in store.shape), 1))
        have = sum(entry.name.startswith("c.") for entry in os.scandir(store.path))
        if not have >= needed:
            raise OSError(f"{store.path} has {have} chunks of {needed}, the others are gone: {AGAIN}")
