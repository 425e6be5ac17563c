"""Out of core: passes run over the store, from an array that is read by slices to a file, a piece at a time.

    for each pass, for each of its pieces:   read, transform on the devices, write, flush, note in the journal

Invariant: the output gets its name when all of it is on the disk; until then what is done lies beside it, in a working
folder, and a run that was ended goes on from the last piece that its journal has. Where several processes run, each
takes every so many-th piece on its own devices, and they meet between passes.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from ..atomic import put
from ..cutting import run_length
from ..errors import check
from ..layout import AnyMesh
from ..pieces import Pass, Passes, Piece, given_dtype
from ..plan import Plan
from ..processes import check_alike, together
from ..storage import Sliceable, shard
from .grid import Box, grid_of
from .journal import Journal, begin_journal, described
from .reading import open_array
from .record import Record
from .source import Source
from .stores import Store, create_store, open_store
from .working import ANEW, clear, held, working_folder
from .writing import Report, check_output, check_room, fill

RUN_BYTES = 2**15  # a few pages of memory: of shorter runs, many would be read again to be written
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
        resume: go on with such a run, if there is one.
        record: what is kept beside a Zarr array.
        report, begin: are told of bytes, as they have been read and written, and of each pass as it begins.

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
        _Run(steps, source, journal, target.suffix, record, report, begin).passes()
        together(lambda: _finish(journal, len(steps) - 1, target, overwrite) if first else None)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run as one process sees it; `steps` are on its own devices."""

    steps: tuple[Pass, ...]
    source: Sliceable
    journal: Journal
    kind: str
    record: Record | None
    report: Report
    begin: Begin

    def passes(self) -> None:
        """What is missing of each pass; a store is removed once all that was made of it is there."""
        done = together(self.journal.finished)
        together(self.journal.mend)
        for place, step in enumerate(self.steps):
            missing = sorted(set(range(len(step.pieces))) - done[place])
            self.begin(f"pass {place + 1}")
            if missing:
                together(functools.partial(self._make, place, missing) if self._first else lambda: None)
                together(functools.partial(self._pieces, place, missing[jax.process_index() :: jax.process_count()]))
            if place > 0 and self._first:
                clear(self._store(place - 1))

    @property
    def _first(self) -> bool:
        return self.journal.process == 0

    def _kind(self, place: int) -> str:
        """A plain file between passes where pieces lie in long runs, which is faster; else chunks that fit both."""
        if place == len(self.steps) - 1:
            return self.kind
        step, size = self.steps[place], self.steps[place].out_dtype.itemsize
        long = min(run_length(step.after), run_length(self.steps[place + 1].before)) * size >= RUN_BYTES
        return ".npy" if long else ".zarr"

    def _store(self, place: int) -> Path:
        return self.journal.store(place, self._kind(place))

    def _make(self, place: int, missing: list[int]) -> None:
        """The store that a pass writes to, cut along its pieces and those of the next pass."""
        step, path = self.steps[place], self._store(place)
        if len(missing) < len(step.pieces):
            check(path.exists(), f"{path} is gone, and the journal has pieces of it: {ANEW}")
            return
        clear(path)
        last = place == len(self.steps) - 1
        layouts = [step.after] if last else [step.after, self.steps[place + 1].before]
        grid = grid_of(layouts, step.out_dtype.itemsize)
        told = self.record.to_dict() if last and self.record is not None else None
        create_store(path, step.after.shape, step.out_dtype, grid, told, kind=self._kind(place))

    def _pieces(self, place: int, mine: list[int]) -> None:
        """This process's share of the pieces of a pass."""
        step, path = self.steps[place], self._store(place)
        shared = f"{path} is not there: the output must be on a file system that all processes share"
        check(path.exists(), shared, FileNotFoundError)
        store = open_store(path, self._kind(place))
        with self._input(place) as array, ThreadPoolExecutor(1) as writer:
            going: list[Future[None]] = []
            for index in mine:
                y = self._transformed(step, step.pieces[index], array)
                while going:
                    going.pop().result()
                going.append(writer.submit(self._keep, place, index, y, store))
            for last in going:
                last.result()

    @contextlib.contextmanager
    def _input(self, place: int) -> Iterator[Sliceable]:
        if place == 0:
            yield self.source
            return
        path = self._store(place - 1)
        check(path.exists(), f"{path} is gone, and what was to be made of it is not finished: {ANEW}")
        with open_array(path) as array:
            yield array

    def _transformed(self, step: Pass, piece: Piece, array: Sliceable) -> Array:
        plan = step.plan_of(piece)
        y = plan(_placed(plan, _Part(array, piece.source, given_dtype(plan, step.dtype))))
        jax.block_until_ready(y)
        self.report(step.bytes_of(piece)[0])
        return y

    def _keep(self, place: int, index: int, y: Array, store: Store) -> None:
        """Writes a piece, while the next one is read and transformed, and notes it when it is there for good."""
        step = self.steps[place]
        piece = step.pieces[index]
        fill(store, y, step.plan_of(piece).out_layout, [at.start for at in piece.target], self.report)
        self.journal.add(place, index)


class _Part:
    """A part of an array that is read by slices, converted as it is read."""

    def __init__(self, array: Sliceable, box: Box, dtype: np.dtype) -> None:
        self.array, self.box, self.dtype = array, box, dtype
        self.shape = tuple(at.stop - at.start for at in box)

    def __getitem__(self, index: Any) -> np.ndarray:
        found = np.empty([len(range(*at.indices(n))) for at, n in zip(index, self.shape, strict=True)], self.dtype)
        self.into(found, index)
        return found

    def into(self, out: np.ndarray, index: Any) -> None:
        """Reads the positions at `index`, slices, into an array that takes them."""
        inside = (at.indices(n) for at, n in zip(index, self.shape, strict=True))
        place = tuple(slice(at.start + a, at.start + b) for at, (a, b, _) in zip(self.box, inside, strict=True))
        if isinstance(self.array, Source):
            self.array.into(out, place)
        else:
            out[...] = self.array[place]


def _placed(plan: Plan, part: _Part) -> Array:
    """A piece on the devices, every block read by itself."""
    if isinstance(plan.mesh, Mesh):
        return shard(part, plan.mesh, plan.in_layout.spec)
    return jnp.asarray(part[tuple(slice(n) for n in part.shape)])


def _agreed(made: Passes, source: Sliceable) -> dict[str, Any]:
    """What the journal has to say of the run, once the source fits and all processes have the same."""
    found = f"the source is {source.dtype} of shape {tuple(source.shape)}, the passes take {made.dtype} of {made.shape}"
    check(tuple(source.shape) == made.shape and source.dtype == made.dtype, f"{found}: plan for this source")
    run = described(made, source)
    check_alike({"the run": hashlib.sha256(json.dumps(run).encode()).hexdigest()})
    return run


def _local(made: Passes) -> tuple[Pass, ...]:
    """The passes on devices of this process."""
    mesh = _local_mesh(made.steps[0].plans[0].mesh)

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
        check(set(mesh.devices.flat) <= set(own), far)
        return mesh
    many = math.prod(mesh.axis_sizes)
    check(many <= len(own), f"the passes take {many} devices and a process has {len(own)}: plan for a smaller mesh")
    return Mesh(np.array(own[:many]).reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types)


def _check_target(made: Passes, target: Path, journal: Journal, overwrite: bool) -> None:
    """Refuses an output that could not be written, before anything is done for it."""
    check_output(target, overwrite, 0)
    check_room(target, max(0, max(made.disk_bytes) - journal.used_bytes()))


def _finish(journal: Journal, last: int, target: Path, overwrite: bool) -> None:
    """Gives the result its name, and removes the working folder."""
    store = journal.store(last, target.suffix)
    if not journal.moved(target):
        check(store.exists(), f"{store} is gone, and the journal has pieces of it: {ANEW}")
        journal.move(store)
        put(store, target, overwrite)
    clear(journal.folder)
