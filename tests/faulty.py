"""`meshfft transform` with one fault in one of its processes:   faulty.py FAULT PROCESS transform IN OUT ..."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import jax

import meshfft.cli.cluster
import meshfft.cli.transform
import meshfft.io.zarr
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


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def patch(module: Any, name: str, act: Callable[[], None]) -> Callable[[], None]:
    return lambda: setattr(module, name, first(act)(getattr(module, name)))


STEP = (meshfft.cli.transform, "_run_stage")
COMPILE = (jax.stages.Lowered, "compile")
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job would ignore

WRITE = (meshfft.io.zarr.ZarrSink, "write")
FAULTS = {
    "none": lambda: None,
    "killed": patch(*STEP, send(signal.SIGKILL)),
    "killed compiling": patch(*COMPILE, send(signal.SIGKILL)),
    "killed writing": patch(*WRITE, send(signal.SIGKILL)),
    "frozen": patch(*STEP, send(signal.SIGSTOP)),
    "interrupted": patch(*STEP, send(signal.SIGINT)),
    "terminated": patch(*STEP, send(signal.SIGTERM)),
    "crashed": patch(*STEP, os.abort),
    "disk full": patch(*WRITE, fail(OSError(28, "No space left on device"))),
    "no memory": patch(meshfft.cli.cluster, "check_memory", fail(MemoryError("3 GB"))),
}

if __name__ == "__main__":
    fault, victim = sys.argv[1:3]
    if fault not in ("killed", "killed writing"):
        meshfft.cli.cluster.HEARTBEAT = 4  # so that the tests wait less; two take the real one
    sys.argv[1:] = sys.argv[3:]
    if sys.argv[sys.argv.index("--process-id") + 1] == victim:
        FAULTS[fault]()
    main()
