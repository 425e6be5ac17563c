"""The working folder of a run: held against other programs, and small files in it that are whole or not there.

Invariant: nothing that no run puts there is removed or followed; what is read back is of a size and a form that a run
can have written, or refused in one line.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..atomic import synced
from ..errors import check
from ..files.stores import KINDS

BETWEEN = ".blocks"  # what one pass writes and the next one reads
RUN, MOVING, NEW = "run.json", "moving.json", "new.json"
NAMES = re.compile(rf"{RUN}|{MOVING}|{NEW}|done-\d+\.jsonl|pass-\d+({'|'.join((*KINDS, BETWEEN))})")
ANEW = "begin anew with --overwrite"
MOST_BYTES = 2**26  # of a journal: a run of millions of pieces


def working_folder(target: Path) -> Path:
    """Where the passes to an output keep what they need."""
    final = target.resolve()
    return final.with_name(f".{final.name}.passes")


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes a working folder where there is none, and holds it against other programs, where the system has locks.

    Raises:
        ValueError: it is a link, or holds what no run puts there.
        FileExistsError: another program holds it.
    """
    other = f"{folder} is not the working folder of a run: move it away"
    check(not folder.is_symlink() and (folder.is_dir() or not folder.exists()), other)
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        check(NAMES.fullmatch(entry.name) is not None and not entry.is_symlink(), f"{other}, it has {entry.name}")
    with _locked(folder):
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        yield
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileExistsError(f"another program works in {folder}: wait for it, or end it") from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(file)


def write(path: Path, value: Any) -> None:
    """Writes a small JSON file, whole or not at all."""
    new = path.with_name(NEW)
    with open(new, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
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
    for folder, _, names in os.walk(path) if path.is_dir() else ():
        yield from (Path(folder) / name for name in names)


def text_of(path: Path) -> str:
    """What a file of a journal says.

    Raises:
        ValueError: it is larger than any.
    """
    check(path.stat().st_size <= MOST_BYTES, f"{path} has {path.stat().st_size} bytes, no journal has so many: {ANEW}")
    return path.read_text(encoding="utf-8", errors="replace")


def parsed(path: Path, text: str) -> Any:
    """A JSON value that was read from a file.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {ANEW}") from error
