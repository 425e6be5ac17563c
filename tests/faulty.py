"""`meshfft transform` with one fault in one of its processes:   faulty.py FAULT PROCESS transform IN OUT ..."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import meshfft.cli.execute
import meshfft.cli.memory
import meshfft.files.stores
from meshfft.cli.app import main


def first(act: Callable[[], None]) -> Callable[[Any], Any]:
    """A decorator: the function does this before it does its own work."""

    def decorate(work: Callable[..., Any]) -> Callable[..., Any]:
        def both(*args: Any, **options: Any) -> Any:
            act()
            return work(*args, **options)

        return both

    return decorate


def fail(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def send(number: int, process: Callable[[], int]) -> Callable[[], None]:
    return lambda: os.kill(process(), number)


def patch(module: Any, name: str, act: Callable[[], None]) -> Callable[[], None]:
    return lambda: setattr(module, name, first(act)(getattr(module, name)))


def both() -> None:
    """Ends the supervisor, and at once the worker: as if the machine had lost its power."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


STEP = (meshfft.cli.execute, "_run_stage")
WRITE = (meshfft.files.stores.ZarrStore, "write")
FAULTS = {
    "none": lambda: None,
    "killed": patch(*STEP, send(signal.SIGKILL, os.getpid)),
    "supervisor killed": patch(*STEP, send(signal.SIGKILL, os.getppid)),
    "interrupted": patch(*STEP, send(signal.SIGINT, os.getppid)),
    "crashed": patch(*STEP, os.abort),
    "lost while writing": patch(*WRITE, both),
    "disk full": patch(*WRITE, fail(OSError(28, "No space left on device"))),
    "no memory": patch(meshfft.cli.memory, "check_memory", fail(MemoryError("3 GB"))),
}

if __name__ == "__main__":
    fault, victim = sys.argv[1:3]
    sys.argv[1:] = sys.argv[3:]
    if sys.argv[sys.argv.index("--process-id") + 1] == victim:
        FAULTS[fault]()
    main()
