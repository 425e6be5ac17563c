"""Refusals: files are not trusted, and anything but an array of numbers is refused in one line.

Invariant: any reader's error on a damaged file becomes one ValueError that names the file.
"""

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

DTYPES = tuple(np.dtype(code) for code in "?bBhHiIlLqQefdFD")
MOST_BYTES = 2**60  # no file system holds a larger array
CHUNK_LIMIT = 2**30  # a chunk is decoded whole
CHUNK_BEYOND = 2**26  # up to here a chunk may be larger than its array
CHUNK_LEAST, MANY_CHUNKS = 2**12, 2**17  # smaller chunks, if more than that, take seconds to look up
UNREAD = re.compile("not supported|not registered")  # in texts on codecs
SYSTEM = re.compile(r"(?:os_error_code='|OS error |errno = )(\d+)")  # in texts of tensorstore and HDF5


class Refused(ValueError):
    """A complete message, passed on unchanged."""


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (Refused, ImportError):
        raise
    except Exception as error:  # readers of other packages, on untrusted bytes
        if isinstance(error, OSError) and error.errno:  # no permission, no space, a failing disk
            raise
        reason = " ".join(str(error).split(" [")[0].split())[:300] or type(error).__name__
        if UNREAD.search(reason):
            unread = f"{path} is stored in a way that is not read ({reason})"
            raise Refused(f"{unread}: store it without filters, with zstd or gzip") from error
        unreadable = f"{path} cannot be read, it is damaged or cut short ({reason})"
        raise ValueError(f"{unreadable}: make or copy it again") from error


@contextlib.contextmanager
def system_errors() -> Iterator[None]:
    """Turns a library's error into an OSError if its text has a system error number."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        code = SYSTEM.search(str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), f"{os.strerror(int(code[1]))} ({str(error).split(' [')[0][:300]})") from error


def unchanged(path: Path, file: Path | None = None) -> Callable[[], None]:
    """A check that a file (`file` if given) has kept its device, inode, size and time of change.

    Make it before opening, and call it after every read.
    """

    def state() -> tuple[int, ...] | None:
        try:
            found = os.stat(file or path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    before = state()

    def check() -> None:
        if state() != before:
            changed = f"{path} was replaced or written to while it was read"
            raise Refused(f"{changed}: begin again when nothing writes to it")

    return check


def check_numbers(path: Path, shape: tuple[int, ...] | None, dtype: np.dtype) -> None:
    wanted = "give an array of integers, or of real or complex numbers of at most 64 bits a part"
    if dtype.hasobject:
        raise Refused(f"{path} holds Python objects or strings, which are not loaded: {wanted}")
    if dtype.newbyteorder("=") not in DTYPES:
        raise Refused(f"{path} holds values of dtype {dtype}: {wanted}")
    if not shape:
        raise Refused(f"{path} holds no array but a single value: give an array of at least one dimension")
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize > MOST_BYTES:
        raise Refused(f"{path} says that its shape is {shape}, which no array has: it is damaged, make it again")
    if 0 in shape:
        raise Refused(f"{path} holds an empty array of shape {shape}: give one that has values")


def check_chunk(path: Path, chunk: tuple[int, ...], itemsize: int, shape: tuple[int, ...]) -> None:
    nbytes, rewrite = itemsize * math.prod(chunk), "rewrite it with chunks of"
    has = f"{path} has chunks of shape {chunk}, {nbytes / 1e9:.3g} GB"
    if min(chunk) <= 0 or nbytes > CHUNK_LIMIT:
        raise Refused(f"{has}: {rewrite} at most {CHUNK_LIMIT / 1e9:.2g} GB")
    if nbytes > max(CHUNK_BEYOND, 8 * itemsize * math.prod(shape)):
        raise Refused(f"{has}, for an array of shape {shape}: {rewrite} at most its shape")
    many = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=False))
    if nbytes < CHUNK_LEAST and many > MANY_CHUNKS:
        raise Refused(f"{path} has {many} chunks of shape {chunk}, {nbytes} bytes: {rewrite} some 100 kB or more")
