"""The working folder of a run in passes: the identity of the run, and the finished tiles of each pass.

    .NAME.passes/run.json     values that must agree for a run to be resumed; in the end the inode of its result
    .NAME.passes/done         one byte for each tile of all passes: 1 if it is finished
    .NAME.passes/pass-J.npy   output of pass J; the last one has the suffix of NAME

beside the output NAME. Invariant: a byte is set once its tile would survive a loss of power. The folder is not trusted:
its contents name no path, and a file that no run can have written is refused and never removed.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..atomic import files_in, opened, replacing, synced
from ..extras import all_versions
from ..io.source import results
from ..layout.layout import axis_sizes
from ..layout.storage import Sliceable
from .tiles import Passes

RUN, DONE = "run.json", "done"
_PARTS, _PASSES = ("|".join(map(re.escape, names)) for names in ((RUN, DONE), results()))
NAMES = re.compile(rf"\.?({_PARTS})(\.\d+-\w+\.partial)?|pass-\d+({_PASSES})")  # only such files are deleted
BUDGETS = ("budget", "device_budget")
INODE = "inode"
AGAIN = "overwrite=True starts again"


class Left(NamedTuple):
    done: int
    tiles: int
    read_bytes: int
    written_bytes: int


@dataclasses.dataclass(frozen=True)
class Journal:
    target: Path
    tiles: tuple[int, ...] = ()

    @property
    def folder(self) -> Path:
        final = self.target.resolve()
        return final.with_name(f".{final.name}.passes")

    def begin(self, run: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        path, done = self.folder / RUN, self._done()
        if path.is_file() and (not done or done.strip(b"\0")):
            if resume:
                return _check_same(self.run(), run)
            if not overwrite:
                raise FileExistsError(f"{self.folder} holds an unfinished run: resume=True continues it, {AGAIN}")
        for entry in self.folder.iterdir():
            clear(entry)
        write(self.folder / DONE, bytes(sum(self.tiles)))
        write(path, json.dumps(run).encode())
        synced(self.folder.parent)

    def run(self) -> dict[str, object]:
        """The unfinished run, if any; raises ValueError if damaged."""
        path = self.folder / RUN
        if not path.is_file():
            return {}
        try:
            values = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise ValueError(f"{path} is damaged: {AGAIN}")
        return values

    def finished(self) -> list[np.ndarray]:
        """Whether each tile of each pass is finished; raises ValueError if damaged."""
        done = self._done() if (self.folder / RUN).is_file() else bytes(sum(self.tiles))
        if len(done) != sum(self.tiles) or not set(done) <= {0, 1}:
            raise ValueError(f"{self.folder / DONE} is damaged, it is not of {sum(self.tiles)} tiles: {AGAIN}")
        return np.split(np.frombuffer(done, bool), np.cumsum(self.tiles)[:-1])

    def add(self, step: int, tile: int) -> None:
        """Marks a durable tile. Without O_DSYNC an NFS client may write old bytes around it."""
        with opened(self.folder / DONE, os.O_WRONLY | os.O_DSYNC) as file:
            os.pwrite(file, b"\1", sum(self.tiles[:step]) + tile)

    def move(self, store: Path) -> None:
        write(self.folder / RUN, json.dumps({**self.run(), INODE: store.stat().st_ino}).encode())

    def moved(self) -> bool:
        """Whether the result already has its name: the run ended after the rename."""
        found = self.run().get(INODE)
        return found is not None and self.target.exists() and self.target.stat().st_ino == found

    def _done(self) -> bytes:
        path = self.folder / DONE
        return path.read_bytes() if path.is_file() else b""


def journal_of(made: Passes, target: str | Path) -> Journal:
    return Journal(Path(target), tuple(len(step.tiles) for step in made.steps))


def recorded_budgets(target: str | Path) -> dict[str, int | None] | None:
    """Budgets of an unfinished run, as for `passes`, or None. Raises ValueError if damaged."""
    journal = Journal(Path(target))
    if not (journal.folder / RUN).is_file():
        return None
    budget, device = map(journal.run().get, BUDGETS)
    if type(budget) is not int or budget <= 0 or (device is not None and (type(device) is not int or device <= 0)):
        raise ValueError(f"{journal.folder / RUN} is damaged, it has no budget: {AGAIN}")
    return {"budget": budget, "device_budget": device}


def recorded_devices(target: str | Path) -> int | None:
    """Devices per process of an unfinished run; None if unknown."""
    mesh = Journal(Path(target)).run().get("transform mesh")
    sizes = list(mesh.values()) if isinstance(mesh, dict) else []
    return math.prod(sizes) if sizes and all(type(n) is int and 0 < n < 2**20 for n in sizes) else None


def left_of(made: Passes, target: str | Path, source: Sliceable | None = None) -> Left:
    """Raises ValueError if the journal is damaged, or of another run or source."""
    journal = journal_of(made, target)
    if source is not None and (journal.folder / RUN).is_file():
        _check_same(journal.run(), described(made, source))
    done = np.concatenate(journal.finished())
    tiles = [step.bytes_of(tile) for step in made.steps for tile in step.tiles]
    read, written = (int(nbytes) for nbytes in np.array(tiles)[~done].sum(0))
    return Left(int(done.sum()), len(tiles), read, written)


def described(made: Passes, source: Sliceable) -> dict[str, object]:
    """Values that must agree for tiles of two runs to form one result; and the budgets."""
    transform = {
        "shape": made.shape,
        "kind": made.transform.name,
        "axes": made.transform.dims,
        "lengths": made.transform.lengths,
        "scale": made.transform.scale,
        "precision": made.steps[-1].plans[0].dots[0].tier,
        "mesh": axis_sizes(made.mesh),
        **{f"pass {number} tiles of": step.before.block for number, step in enumerate(made.steps, 1)},
        **{f"pass {number} steps": [plan.name for plan in step.plans] for number, step in enumerate(made.steps, 1)},
        "types": [made.dtype.name, *(step.out_dtype.name for step in made.steps)],
    }
    source_facts, versions = described_source(source), all_versions()
    parts: dict[str, Mapping[str, object]] = {"transform": transform, "source": source_facts, "versions": versions}
    named = {f"{part} {name}": value for part, values in parts.items() for name, value in values.items()}
    run: dict[str, object] = json.loads(json.dumps({name: getattr(made, name) for name in BUDGETS} | named))
    return run


def described_source(source: Sliceable) -> dict[str, object]:
    """A source as plain values, which differ if any of its files was replaced or written to."""
    path = getattr(source, "path", None)
    files = [] if path is None else [(str(file), file.stat()) for file in sorted(files_in(Path(path)))]
    each = [(name, status.st_size, status.st_mtime_ns) for name, status in files]
    return {
        "path": None if path is None else str(Path(path).resolve()),
        "modified": max((status.st_mtime_ns for _, status in files), default=0),
        "dataset": getattr(source, "name", ""),
        "files": hashlib.sha256(json.dumps(each).encode()).hexdigest(),
    }


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Creates a working folder, or opens one with files of runs only; locks it if possible."""
    import fcntl

    other = f"{folder} is not the working folder of a run: move it away"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ValueError(other)
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if NAMES.fullmatch(entry.name) is None or entry.is_symlink():
            raise ValueError(f"{other}, it has {entry.name}")
    with opened(folder, os.O_RDONLY) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(f"another program works in {folder}: wait for it, or end it") from error
        except OSError:
            pass  # a file system without locks
        yield


def write(path: Path, data: bytes) -> None:
    with replacing(path, overwrite=True) as new:
        new.write_bytes(data)


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check_same(old: Mapping[str, object], run: Mapping[str, object]) -> None:
    """Raises ValueError if two runs differ. Budgets may, if the passes are the same."""
    for name in {**run, **old}:
        had, has = old.get(name), run.get(name)
        if name not in (*BUDGETS, INODE) and had != has:
            both = f"{name} {str(had)[:100]}, this one has {str(has)[:100]}"
            raise ValueError(f"the unfinished run has {both}: give the same, or {AGAIN}")
