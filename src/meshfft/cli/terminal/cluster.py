"""The processes of one run: how one finds the others, how many devices it brings, and how all of them end.

Nothing of ours listens on the network: JAX's coordination service, which process 0 keeps, is all there is. It notices
a process that is gone within HEARTBEAT seconds, writes its number to stderr, and aborts the others (SIGABRT, which
shells show as exit code 134). A process whose collective fails before that says so, and waits to learn which it was.
"""

import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

import jax

from ...io.processes import PeerError, together
from .devices import check_virtual
from .flags import check_count
from .output import REFUSALS, Lost, describe, ended, warn

T = TypeVar("T")
CRASHED = 1  # the exit code for a collective that failed, a RuntimeError: it may be the fault of another process
CODES = ((KeyboardInterrupt, 130), (PeerError, 3), (RuntimeError, CRASHED), (REFUSALS, 2))
STATUS = re.compile("[A-Z_]+: ")  # so XLA's errors begin, of which some are ValueErrors
SIGNALLED = {KeyboardInterrupt: "interrupted by the user", SystemExit: "terminated"}
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
    """The cluster that flags describe, or None where this process is alone; refuses flags that do not go together."""
    by_hand = coordinator is not None or index is not None
    if not by_hand and not distributed:
        if processes is not None:
            raise ValueError("--processes needs --coordinator HOST:PORT and --process-id I, or --distributed")
        return None
    if processes is not None:
        check_count(processes, "--processes", "processes")
    if by_hand:
        if distributed:
            raise ValueError("--distributed finds the processes by itself: leave out --coordinator and --process-id")
        if coordinator is None or processes is None or index is None:
            raise ValueError("--coordinator HOST:PORT, --processes N and --process-id I go together: give all three")
        address = re.fullmatch(".+:([0-9]{1,5})", coordinator)
        if not address or not 0 < int(address[1]) < 2**16:
            raise ValueError(f"--coordinator {coordinator!r} is no HOST:PORT: give one, as 10.0.0.1:8476")
        if not 0 <= index < processes:
            raise ValueError(f"--process-id {index} is none of {processes} processes: give 0 to {processes - 1}")
    return Cluster(coordinator, processes, index)


def run_in(cluster: Cluster | None, ask: Callable[[], T], count: Callable[[T], int], run: Callable[[T], None]) -> None:
    """Asks what is to be done, counts the devices it takes in all, and does it, here or as one of several processes.

    What one process refuses all refuse, once they have met.
    """
    if cluster is None:
        run(ask())
        return
    try:
        if not isinstance(sys.stdout, Lost):  # communication libraries write to it what no reader of tables expects
            sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        refusal: Exception | None = None
        own: int | None = 1
        try:
            asked = ask()
            own = _share(cluster, count(asked))
        except REFUSALS as error:
            refusal = error

        def agreed() -> T:
            if refusal is not None:
                raise refusal
            return asked

        _join(cluster, own)
        run(together(agreed))
        jax.distributed.shutdown()  # when all are here: the service of process 0 ends with it
    except BaseException as error:
        _fail(error)
    os._exit(ended(0))  # Python's own way would have JAX wait for the others again


def _share(cluster: Cluster, count: int) -> int | None:
    """The CPU devices that this process is to bring; None where the environment says how many."""
    if cluster.processes is None:
        return None
    own, rest = divmod(count, cluster.processes)
    if rest:
        remedy = f"give a multiple of {cluster.processes}"
        raise ValueError(f"the mesh has {count} devices for {cluster.processes} processes: {remedy}")
    check_virtual(own, "--mesh")
    return own


def _join(cluster: Cluster, own: int | None) -> None:
    """Makes this process, with its own CPU devices, one of several."""
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


def _fail(error: BaseException) -> NoReturn:
    """Says why this process ends, gives the others time to end as it does, and ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # asked a second time, it ends at once
    code = next((code for kind, code in CODES if isinstance(error, kind)), CRASHED)
    if isinstance(error, ValueError) and STATUS.match(str(error)):
        code = CRASHED
    if isinstance(error, SystemExit):
        code = int(error.code or 0)
    elif not isinstance(error, (KeyboardInterrupt, *REFUSALS)):
        traceback.print_exception(error)
    text = describe(error) if isinstance(error, REFUSALS) else SIGNALLED.get(type(error), type(error).__name__)
    warn(f"meshfft: error: {text}")
    if code == CRASHED:
        warn("meshfft: waiting for JAX to tell whether a process was lost, and which")
        time.sleep(PATIENCE)
    else:  # what one refuses the others refuse too, or stop for
        waiting = threading.Thread(target=jax.distributed.shutdown, daemon=True)
        waiting.start()
        waiting.join(FAREWELL)
    os._exit(code)
