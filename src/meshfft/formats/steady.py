"""A file that must stay what it is from the moment it is opened until its last number is read.

    identity = device, inode, size, time of the last change

Invariant: numbers of a file that was replaced, rewritten or cut meanwhile are refused, never handed on.
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import check
from .grid import Box
from .source import Read, Refused


class Identity(NamedTuple):
    """What tells a file from another one, and from itself once it is written to."""

    device: int
    inode: int
    size: int
    modified: int


class Steady:
    """Looks at a file when it is made, to be made before the file is opened, and after every read.

    Args:
        path: what the user named.
        file: the file that is looked at, where that is another: the metadata of a store.
    """

    def __init__(self, path: Path, file: Path | None = None) -> None:
        self.path, self.file = path, file or path
        self.before = _identity(self.file)

    def check(self) -> None:
        """Raises Refused where it is not the file that it was."""
        changed = f"{self.path} was replaced or written to while it was read: begin again when nothing writes to it"
        check(_identity(self.file) == self.before, changed, Refused)

    def reading(self, read: Read) -> Read:
        """Reads as `read` does, and looks at the file afterwards, also where that failed."""

        def checked(box: Box, out: np.ndarray) -> None:
            try:
                read(box, out)
            except Exception:
                self.check()
                raise
            self.check()

        return checked


def _identity(file: Path) -> Identity | None:
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
