"""The processes of one run: how one finds the others, how many devices it brings, and how all of them end.

Nothing of ours listens on the network: JAX's coordination service, which process 0 keeps, is all there is. It notices
a process that is gone within HEARTBEAT seconds, writes its number to stderr, and aborts the others (SIGABRT, which
shells show as exit code 134). A process whose collective fails before that says so, and waits to be told which it was.
"""

import functools
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from ..files.processes import PeerError, together
from . import parse
from .devices import check_virtual
from .guard import CRASHED, REFUSALS, describe, ending
from .say import Lost, ended, warn

T = TypeVar("T")
JOIN_SECONDS = 120
HEARTBEAT = 12  # seconds without a word from a process until JAX takes it for lost
PATIENCE = 20.0  # seconds in which JAX says which process was lost, once a collective has failed
FAREWELL = 5.0  # seconds that a process which refuses something waits for the others to have refused it too
FINISH_SECONDS = 3600  # that processes which are done wait for process 0 to draw and print


class Cluster(NamedTuple):
    """How to find the others: what is None, JAX has to detect."""

    coordinator: str | None
    processes: int | None
    process: int | None


def cluster_of(distributed: bool, coordinator: str | None, processes: int | None, index: int | None) -> Cluster | None:
    """The cluster that flags describe; None where this process is alone.

    Raises:
        ValueError: flags that do not go together.
    """
    by_hand = coordinator is not None or index is not None
    if not by_hand and not distributed:
        if processes is not None:
            raise ValueError("--processes needs --coordinator HOST:PORT and --process-id I, or --distributed")
        return None
    many = 1 if processes is None else parse.count(processes, "--processes", "processes")
    if by_hand:
        if distributed:
            raise ValueError("--distributed finds the processes by itself: leave out --coordinator and --process-id")
        whole = coordinator is not None and processes is not None and index is not None
        if not whole:
            raise ValueError("--coordinator HOST:PORT, --processes N and --process-id I go together: give all three")
        host, _, port = (coordinator or "").rpartition(":")
        meant = host and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 2**16
        if not meant:
            raise ValueError(f"--coordinator {coordinator!r} is no HOST:PORT: give one, as 10.0.0.1:8476")
        if not 0 <= (index or 0) < many:
            raise ValueError(f"--process-id {index} is none of {many} processes: give 0 to {many - 1}")
    return Cluster(coordinator, processes, index)


def run_in(
    cluster: Cluster | None, job: Callable[[], T], devices: Callable[[T], int], work: Callable[[T], None]
) -> None:
    """Runs a job here, or as one of several processes.

    Args:
        cluster: how to find the others; None where there are none.
        job: makes the job, or refuses it; what one process refuses all refuse, once they have met.
        devices: how many devices it takes in all processes together.
        work: does it.
    """
    import jax

    if cluster is None:
        work(job())
        return
    try:
        _keep_stdout()
        made, own = _prepared(cluster, job, devices)
        _join(cluster, own)
        work(together(made))
        jax.distributed.shutdown()  # when all are here: the service of process 0 ends with it
    except BaseException as error:
        _fail(error)
    _end(ended(0))


def _join(cluster: Cluster, own: int | None) -> None:
    """Makes this process, with so many CPU devices, one of several.

    Raises:
        ValueError: there is no cluster that JAX knows.
        PeerError: the others did not come.
    """
    import jax

    if own is not None:
        jax.config.update("jax_num_cpu_devices", own)
    jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    try:
        jax.distributed.initialize(
            *cluster,
            initialization_timeout=JOIN_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=FINISH_SECONDS,
        )
    except ValueError as error:
        remedy = "give --coordinator HOST:PORT --processes N --process-id I"
        raise ValueError(f"JAX finds no cluster around this process ({error}): {remedy}") from error
    except RuntimeError as error:
        remedy = "start all of them within two minutes, with the same free port of process 0"
        raise PeerError(f"the processes did not find each other ({describe(error)}): {remedy}") from error


def _prepared(
    cluster: Cluster, job: Callable[[], T], devices: Callable[[T], int]
) -> tuple[Callable[[], T], int | None]:
    """What gives the job, or refuses it, once the processes have met; and the CPU devices to bring, where we choose."""
    many = cluster.processes or 1
    try:
        made = job()
        count = devices(made)
        if count % many != 0:
            raise ValueError(f"the mesh has {count} devices for {many} processes: give a multiple of {many}")
        if cluster.processes is not None:
            check_virtual(count // many, "--mesh")
    except REFUSALS as error:
        return functools.partial(_refuse, error), 1
    return lambda: made, None if cluster.processes is None else count // many


def _refuse(error: Exception) -> NoReturn:
    raise error


def _fail(error: BaseException) -> NoReturn:
    """Says why this process ends, gives the others time to end as it does, and ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # asked a second time, it ends at once
    code, text = ending(error)
    if text is None:
        traceback.print_exception(error)
    warn(f"meshfft: error: {text or type(error).__name__}")
    if code == CRASHED:
        warn("meshfft: waiting for JAX to tell whether a process was lost, and which")
        time.sleep(PATIENCE)
    else:
        _meet()
    _end(code)


def _meet() -> None:
    """Waits until all processes come here, for a while: what one refuses the others refuse too, or stop for."""
    import jax

    waiting = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    waiting.start()
    waiting.join(FAREWELL)


def _end(code: int) -> NoReturn:
    """Ends at once: Python's own way would have JAX wait for the others again."""
    os._exit(code)


def _keep_stdout() -> None:
    """Leaves stdout to Python alone: communication libraries write to it what no reader of tables or JSON expects."""
    if isinstance(sys.stdout, Lost):
        return
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
