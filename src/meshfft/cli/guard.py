"""What a command says when it cannot do what is asked: one line on stderr and exit code 2, never a traceback."""

import functools
import re
from collections.abc import Callable
from typing import Any

import typer

from ..files.processes import PeerError
from .say import warn

REFUSALS = (ValueError, TypeError, OSError, MemoryError, ImportError, RuntimeError)
CRASHED, REFUSED, PEER, INTERRUPTED = 1, 2, 3, 130  # exit codes
NAMED = re.compile(r"\b(kind|method|order|precision)='([\w-]+)'")  # arguments of the library that are flags here
SWITCH = re.compile(r"\b(resume|overwrite)=True")


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with everything the library refuses turned into one line."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except typer.Exit:
            raise
        except REFUSALS as error:
            warn(f"meshfft: error: {describe(error)}")
            raise typer.Exit(2) from None

    return run


def ending(error: BaseException) -> tuple[int, str | None]:
    """How a process of several ends for an error: its exit code, and a line, where there is more to say than a trace.

    A RuntimeError is a collective that failed, which may be the fault of another process.
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted by the user"
    if isinstance(error, SystemExit):
        return int(error.code or 0), "terminated"
    if isinstance(error, PeerError):
        return PEER, describe(error)
    if isinstance(error, RuntimeError):
        return CRASHED, describe(error)
    return (REFUSED, describe(error)) if isinstance(error, REFUSALS) else (CRASHED, None)


def describe(error: Exception) -> str:
    """One line for an error."""
    if isinstance(error, MemoryError):
        return f"out of memory ({error}): use more devices or --precision float32"
    if isinstance(error, FileExistsError) and "overwrite it" in str(error):
        return str(error).replace("overwrite it", "replace it with --overwrite")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    line, argument = " ".join(str(error).split()), getattr(error, "argument", None)
    if argument is not None:  # the library names its own
        line = line.replace(argument, f"--{argument[:-1]} ")
    line = SWITCH.sub(r"--\1", NAMED.sub(r"--\1 \2", line))
    return line.replace(", budget is", ", --memory is") or type(error).__name__
