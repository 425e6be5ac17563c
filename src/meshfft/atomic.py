"""Replaces a file or folder in one move: a reader finds the old one or all of the new one, never a part.

The new one has a hidden name until it is complete. An error removes it; a kill leaves it for `unfinished`.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yields a free temporary path beside `path`, and renames it to `path` if the block succeeds.

    Raises:
        FileExistsError: `path` exists and may not be overwritten, before the block or after.
        OSError: the block's; if it names no file, with this one's name.
    """
    refuse_existing(path, overwrite)
    with naming(path), scratch(path) as temporary:
        yield temporary
        _sync(temporary)
        put(temporary, path, overwrite)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Names the file in an error of the system that names none."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """Yields a free temporary path beside `path`, and removes it in the end."""
    temporary = _beside(path.resolve(), "partial")  # a symbolic link stays, its file is replaced
    try:
        yield temporary
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def put(new: Path, path: Path, overwrite: bool = False) -> None:
    """Moves a complete, synced file or folder onto `path`; see `refuse_existing`."""
    refuse_existing(path, overwrite)
    final = path.resolve()
    if final.is_dir():
        old = _beside(final, "old")  # a rename cannot replace a folder with files
        os.rename(final, old)
        try:
            os.rename(new, final)
        except BaseException:
            os.rename(old, final)
            raise
        shutil.rmtree(old)
    else:
        os.replace(new, final)
    synced(final.parent)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raises FileExistsError if `path` exists, or is a link to what does not, and may not be overwritten."""
    if not overwrite and path.exists():
        raise FileExistsError(f"{path} exists: overwrite it, or name another output")
    final = os.path.realpath(path)
    if os.path.islink(final):
        raise FileExistsError(f"{path} is a link that leads back to itself: remove it")
    if not overwrite and path.is_symlink():
        away = f"{path} is a link to {final}, which does not exist"
        raise FileExistsError(f"{away}: overwrite it, or name another output")


def unfinished(path: Path) -> list[Path]:
    """Temporary files and folders beside `path` of writers that were killed, or still run."""
    final = path.resolve()
    if not final.parent.is_dir():
        return []
    left = re.compile(rf"\.{re.escape(final.name)}\.\d+-[0-9a-f]{{8}}\.(partial|old)")
    return sorted(entry for entry in final.parent.iterdir() if left.fullmatch(entry.name))


def files_in(path: Path) -> list[Path]:
    return [file for file in (path, *path.rglob("*")) if file.is_file()]


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.{suffix}")


def _sync(path: Path) -> None:
    for file in files_in(path):
        synced(file)


@contextlib.contextmanager
def opened(path: Path, mode: int) -> Iterator[int]:
    file = os.open(path, mode)
    try:
        yield file
    finally:
        os.close(file)


def synced(path: Path) -> None:
    """Waits until a file, or a folder's names, are on the disk; some file systems cannot sync folders."""
    with opened(path, os.O_RDONLY) as file:
        try:
            os.fsync(file)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
