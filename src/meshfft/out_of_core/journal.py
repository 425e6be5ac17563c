"""The working folder of a run in passes: which run it is, and which pieces of which pass are on the disk for good.

    .NAME.passes/run.json     what must be the same for a run to be resumed
    .NAME.passes/done-I       a byte for each piece of all passes: 1 where process I has finished it
    .NAME.passes/moving.json  the inode of the store that becomes the result
    .NAME.passes/pass-J.zarr  what pass J writes

beside the output NAME. Invariant: a byte is set when its piece would outlast a loss of power. Nothing that is read back
is trusted: it names no path, and what no run can have written is refused; nothing that no run wrote is removed.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..atomic import opened, synced
from ..files.stores import KINDS
from ..formats.record import versions_of
from ..layout.storage import Sliceable
from .pieces import Passes

BETWEEN = ".blocks"  # what one pass writes and the next one reads
RUN, MOVING = "run.json", "moving.json"
NAMES = re.compile(rf"({RUN}|{MOVING}|done-\d+)(\.new)?|pass-\d+({'|'.join((*KINDS, BETWEEN))})")
PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")
BUDGETS = ("budget", "device_budget")
AGAIN = "overwrite=True starts again"
MOST_BYTES = 2**20  # of a JSON file


class Left(NamedTuple):
    """How far a run is: pieces that are done, and all of them; bytes that are still to be read, and to be written."""

    done: int
    pieces: int
    read_bytes: int
    written_bytes: int


@dataclasses.dataclass(frozen=True)
class Journal:
    """The working folder of one run.

    Attributes:
        folder: the folder.
        pieces: how many pieces each pass has.
        process: which process writes to it here.
    """

    folder: Path
    pieces: tuple[int, ...]
    process: int = 0

    def store(self, step: int, kind: str) -> Path:
        """What a pass writes."""
        return self.folder / f"pass-{step}{kind}"

    def finished(self) -> list[set[int]]:
        """The pieces of each pass that some process finished.

        Raises:
            ValueError: a file that no run of these passes writes.
        """
        done = np.zeros(sum(self.pieces), np.uint8)
        for path in _done_files(self.folder):
            own = np.fromfile(path, np.uint8, done.size + 1)
            right = own.size == done.size and own.max() <= 1
            if not right:
                raise ValueError(f"{path} is damaged, it is not of {done.size} pieces: {AGAIN}")
            done |= own
        parts = np.split(done, np.cumsum(self.pieces)[:-1])
        return [set(np.flatnonzero(part).tolist()) for part in parts]

    def open(self) -> None:
        """Makes the file of what this process finishes."""
        if not self._own.exists():
            _write_bytes(self._own, bytes(sum(self.pieces)))

    def add(self, step: int, piece: int) -> None:
        """Notes a piece whose data are durable."""
        with opened(self._own, os.O_WRONLY) as file:
            os.pwrite(file, b"\1", sum(self.pieces[:step]) + piece)
            os.fsync(file)

    def move(self, store: Path) -> None:
        """Notes which store is about to become the result."""
        write(self.folder / MOVING, store.stat().st_ino)

    def moved(self, target: Path) -> bool:
        """Whether the result has its name already: the run was ended after that."""
        path = self.folder / MOVING
        return path.is_file() and target.exists() and target.stat().st_ino == _json_of(path)

    def used_bytes(self) -> int:
        """What it takes of the disk."""
        return sum(file.lstat().st_size for file in files_in(self.folder)) if self.folder.is_dir() else 0

    @property
    def _own(self) -> Path:
        return self.folder / f"done-{self.process}"


def working_folder(target: Path) -> Path:
    """Where the passes to an output keep what they need."""
    final = target.resolve()
    return final.with_name(f".{final.name}.passes")


def recorded_budgets(target: str | Path) -> dict[str, int | None] | None:
    """The `budget` and `device_budget` of an unfinished run to an output, as `passes` takes them; None without one.

    Raises:
        ValueError: the journal is damaged.
    """
    path = working_folder(Path(target)) / RUN
    if not path.is_file():
        return None
    budget, device = map(_run_of(path).get, BUDGETS)
    right = type(budget) is int and budget > 0 and (device is None or (type(device) is int and device > 0))
    if not right:
        raise ValueError(f"{path} is damaged, it has no budget: {AGAIN}")
    return {"budget": budget, "device_budget": device}


def left_of(made: Passes, target: str | Path) -> Left:
    """What is left to be done of passes to an output, whose journal is of these.

    Raises:
        ValueError: the journal is damaged.
    """
    counts = tuple(len(step.pieces) for step in made.steps)
    done = Journal(working_folder(Path(target)), counts).finished()
    bytes_of = [
        step.bytes_of(piece)
        for step, have in zip(made.steps, done, strict=True)
        for index, piece in enumerate(step.pieces)
        if index not in have
    ]
    read, written = sum(there for there, _ in bytes_of), sum(back for _, back in bytes_of)
    return Left(sum(map(len, done)), sum(counts), read, written)


def described(made: Passes, source: Sliceable) -> dict[str, Any]:
    """A run as plain values by name: its passes, the source with what shows that it changed, versions, budgets."""
    parts = {"transform": made.identity(), "source": described_source(source), "versions": versions_of(PACKAGES)}
    run = {"budget": made.budget, "device_budget": made.device_budget, **_flat(parts)}
    return json.loads(json.dumps(run))  # as it will be read back


def described_source(source: Sliceable) -> dict[str, Any]:
    """A source as plain values, other ones where any of its files is another or was written to."""
    path = getattr(source, "path", None)
    files = [] if path is None else [(str(file), file.stat()) for file in sorted(files_in(Path(path)))]
    each = [(name, found.st_size, found.st_mtime_ns) for name, found in files]
    return {
        "path": None if path is None else str(Path(path).resolve()),
        "modified": max((found.st_mtime_ns for _, found in files), default=0),
        "dataset": getattr(source, "name", ""),
        "files": hashlib.sha256(json.dumps(each).encode()).hexdigest(),
    }


def begin_journal(folder: Path, run: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
    """Finds the journal of the same run in a working folder, or begins one.

    Raises:
        FileExistsError: a run was not finished, and neither `resume` nor `overwrite` is given.
        ValueError: it was another run, or its journal is damaged.
    """
    begun = (folder / RUN).is_file() and any(path.read_bytes().strip(b"\0") for path in _done_files(folder))
    if begun and not resume and not overwrite:
        raise FileExistsError(f"{folder} holds an unfinished run: resume=True continues it, {AGAIN}")
    if begun and resume:
        check_same(folder / RUN, run)
        return
    for entry in folder.iterdir():
        clear(entry)
    write(folder / RUN, run)
    synced(folder.parent)


def check_same(path: Path, run: dict[str, Any]) -> None:
    """Raises ValueError where a journal is of another run, with what it has and what this one has.

    Budgets may differ: what they led to must be the same.
    """
    old = _run_of(path)
    for name in (name for name in {**run, **old} if name not in BUDGETS):
        had, has = old.get(name), run.get(name)
        both = f"{name} {str(had)[:100]}, this one has {str(has)[:100]}"
        if had != has:
            raise ValueError(f"the unfinished run has {both}: give the same, or {AGAIN}")


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes a working folder where there is none, and holds it against other programs, where the system has locks.

    Raises:
        ValueError: it is a link, or holds what no run puts there.
        FileExistsError: another program holds it.
    """
    other = f"{folder} is not the working folder of a run: move it away"
    if folder.is_symlink() or (not folder.is_dir() and folder.exists()):
        raise ValueError(other)
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if NAMES.fullmatch(entry.name) is None or entry.is_symlink():
            raise ValueError(f"{other}, it has {entry.name}")
    with opened(folder, os.O_RDONLY) as file:
        _lock(file, folder)
        yield


def _lock(file: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileExistsError(f"another program works in {folder}: wait for it, or end it") from error
    except OSError:
        pass  # a file system without locks


def write(path: Path, value: Any) -> None:
    """Writes a small JSON file, whole or not at all."""
    _write_bytes(path, json.dumps(value).encode())


def _write_bytes(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    synced(new)
    os.replace(new, path)
    synced(path.parent)


def clear(path: Path) -> None:
    """Removes a file or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def files_in(path: Path) -> Iterator[Path]:
    """A file itself, or all files in a folder."""
    if not path.is_dir():
        yield path
    for folder, _, names in os.walk(path):
        yield from (Path(folder) / name for name in names)


def _done_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("done-*[0-9]"))


def _run_of(path: Path) -> dict[str, Any]:
    run = _json_of(path)
    if not isinstance(run, dict):
        raise ValueError(f"{path} is damaged, it describes no run: {AGAIN}")
    return run


def _json_of(path: Path) -> Any:
    """A JSON value that was read from a file.

    Raises:
        ValueError: it is none, or larger than any of a run.
    """
    try:
        if not path.stat().st_size <= MOST_BYTES:
            raise ValueError("too large")
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {AGAIN}") from error


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Values by the names that lead to them."""
    if not isinstance(value, dict):
        return {name: value}
    parts = (_flat(part, f"{name} {key}".strip()) for key, part in value.items())
    return {key: part for each in parts for key, part in each.items()}
