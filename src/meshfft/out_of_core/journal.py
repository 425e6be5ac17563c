"""The journal of a run in passes: which run it is, and which pieces of which pass are on the disk for good.

    .NAME.passes/run.json       what must be the same for a run to be gone on with
    .NAME.passes/done-I.jsonl   a line [pass, piece] for each piece that process I finished
    .NAME.passes/moving.json    which store was to become the result
    .NAME.passes/pass-J.zarr    what pass J writes

beside the output NAME. Invariant: a line is written when what it tells of would outlast a loss of power. Nothing that
is read back is trusted: it names no path, and what no run can have written is refused.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..atomic import synced
from ..errors import check
from ..layout.storage import Sliceable
from .pieces import Passes
from .work_folder import ANEW, MOVING, RUN, clear, files_in, parsed, text_of, working_folder, write

FORMAT = 1
PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")
BUDGETS = ("budget", "device_budget")


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

    def store(self, place: int, kind: str) -> Path:
        """What a pass writes."""
        return self.folder / f"pass-{place}{kind}"

    def finished(self) -> list[set[int]]:
        """The pieces of each pass that some process finished.

        Raises:
            ValueError: a line that no run of these passes writes.
        """
        done: list[set[int]] = [set() for _ in self.pieces]
        for path in sorted(self.folder.glob("done-*.jsonl")):
            for line in text_of(path).split("\n")[:-1]:  # what stands behind the last newline was cut short
                place, piece = self._entry(path, line)
                done[place].add(piece)
        return done

    def add(self, place: int, piece: int) -> None:
        """Notes a piece whose data are durable."""
        with open(self._own, "ab") as file:
            file.write(json.dumps([place, piece]).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def mend(self) -> None:
        """Drops what was cut short of this process's last line, and makes the name of its file durable."""
        own = self._own
        own.touch()
        os.truncate(own, own.read_bytes().rfind(b"\n") + 1)
        synced(self.folder)

    def move(self, store: Path) -> None:
        """Notes which store is about to become the result."""
        write(self.folder / MOVING, store.stat().st_ino)

    def moved(self, target: Path) -> bool:
        """Whether the result has its name already: the run was ended after that."""
        path = self.folder / MOVING
        node = parsed(path, text_of(path)) if path.is_file() else None
        return type(node) is int and target.exists() and target.stat().st_ino == node

    def used_bytes(self) -> int:
        """What it takes of the disk."""
        return sum(file.lstat().st_size for file in files_in(self.folder)) if self.folder.is_dir() else 0

    @property
    def _own(self) -> Path:
        return self.folder / f"done-{self.process}.jsonl"

    def _entry(self, path: Path, line: str) -> tuple[int, int]:
        entry = parsed(path, line)
        right = isinstance(entry, list) and len(entry) == 2 and all(type(number) is int for number in entry)
        right = right and 0 <= entry[0] < len(self.pieces) and 0 <= entry[1] < self.pieces[entry[0]]
        check(right, f"{path} has a line {line[:40]!r} that names no piece of this run: {ANEW}")
        return entry[0], entry[1]


def recorded_budgets(target: str | Path) -> dict[str, int | None] | None:
    """The `budget` and `device_budget` of the run to an output that was not finished, as `passes` takes them.

    Raises:
        ValueError: the journal is damaged.
    """
    path = working_folder(Path(target)) / RUN
    if not path.is_file():
        return None
    run = _run_of(path)
    budget, device = (run.get(name) for name in BUDGETS)
    right = type(budget) is int and budget > 0 and (device is None or (type(device) is int and device > 0))
    check(right, f"{path} is damaged, it has no budget: {ANEW}")
    return dict(zip(BUDGETS, (budget, device), strict=True))


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
    """A run as plain values: its passes, the source with what shows that it changed, the versions, and the budget."""
    versions = {name: _version(name) for name in PACKAGES}
    budgets = dict(zip(BUDGETS, (made.budget, made.device_budget), strict=True))
    about = described_source(source)
    run = {"format": FORMAT, **budgets, "transform": made.identity(), "source": about, "versions": versions}
    return json.loads(json.dumps(run))  # as it will be read back


def described_source(source: Sliceable) -> dict[str, Any]:
    """A source as plain values, other ones where any of its files is another or was written to."""
    path = getattr(source, "path", None)
    files = [] if path is None else sorted(files_in(Path(path)))
    parts = [file.stat() for file in files]
    names = [str(file.relative_to(path or "")) for file in files]
    each = [(name, part.st_size, part.st_mtime_ns) for name, part in zip(names, parts, strict=True)]
    return {
        "path": None if path is None else str(Path(path).resolve()),
        "bytes": sum(part.st_size for part in parts),
        "modified": max((part.st_mtime_ns for part in parts), default=0),
        "dataset": getattr(source, "name", ""),
        "files": hashlib.sha256(json.dumps(each).encode()).hexdigest(),
        "shape": list(source.shape),
        "dtype": np.dtype(source.dtype).name,
    }


def begin_journal(folder: Path, run: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
    """Finds the journal of the same run in a working folder, or begins one.

    Raises:
        FileExistsError: a run was not finished, and neither `resume` nor `overwrite` is given.
        ValueError: it was another run, or its journal is damaged.
    """
    begun = (folder / RUN).is_file() and any(path.stat().st_size > 0 for path in folder.glob("done-*.jsonl"))
    lost = f"{folder} holds a run that was not finished: go on with --resume, or {ANEW}"
    check(not begun or resume or overwrite, lost, FileExistsError)
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
    free = dict.fromkeys(BUDGETS)
    where = _difference({**_run_of(path), **free}, {**run, **free})
    if where is not None:
        what, had, has = where
        both = f"{what} {str(had)[:100]}, this one has {str(has)[:100]}"
        raise ValueError(f"the run that was not finished has {both}: give the same, or {ANEW}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _run_of(path: Path) -> dict[str, Any]:
    run = parsed(path, text_of(path))
    check(_is_dict(run), f"{path} is damaged, it describes no run: {ANEW}")
    return run


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _difference(old: Any, new: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first value that is not the same: what it is called, and both."""
    if _is_dict(old) and _is_dict(new):
        pairs: Sequence[tuple[str, Any, Any]] = [(key, old.get(key), new.get(key)) for key in {**new, **old}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and _is_dict((new or [None])[0]):
        pairs = [(str(j), *both) for j, both in enumerate(zip(old, new, strict=True))]
    else:
        return None if old == new else (name, old, new)
    found = (_difference(a, b, f"{name} {key}".strip()) for key, a, b in pairs)
    return next((one for one in found if one is not None), None)
