"""The worker of one process: joins the others, works, and reports its end to its supervisor."""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ..processes import PeerError, exchange
from .guard import REFUSALS, describe

CRASHED, REFUSED, PEER, INTERRUPTED = 1, 2, 3, 130  # exit codes; a crash may be the fault of another process


class Joined(NamedTuple):
    """What the workers of a run tell each other, and then their supervisors.

    Attributes:
        process: which of them this is.
        hosts: the machine of every process.
        first: the process number of the worker of process 0.
        addresses: names by which process 0 may be reached, the best first.
        port: where its supervisor listens.
        token: what a supervisor says to be let in.
    """

    process: int
    hosts: list[str]
    first: int
    addresses: list[str]
    port: int
    token: str


def run_worker(
    work: Callable[[], None],
    join: Callable[[], list[str]],
    report: Callable[[dict[str, Any]], None],
    alive: int,
    port: int,
    token: str,
) -> NoReturn:
    """Joins, works, reports how it ended, and ends; never returns, for what follows is the supervisor's.

    Args:
        work, join: see `supervised`.
        report: sends a line to the supervisor.
        alive: the reading end of a pipe that is closed when the supervisor ends.
        port, token: the supervisor's, where this becomes process 0.
    """
    os.setpgid(0, 0)  # so that an interrupt from the terminal comes once, from the supervisor
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for what they run in the background
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    _keep_stdout()
    code, text = 0, None
    try:
        report({"joined": _meet(join(), port, token)._asdict()})
        work()
        _leave()
    except BaseException as error:
        code, text = _ending(error)
    report({"ended": code, "text": text})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _meet(addresses: list[str], port: int, token: str) -> Joined:
    """What the workers, which have joined, tell each other."""
    import jax

    own = {"host": socket.gethostname(), "worker": os.getpid(), "names": addresses, "port": port, "token": token}
    heard = exchange(own)
    first = heard[0]
    hosts = [one["host"] for one in heard]
    return Joined(jax.process_index(), hosts, first["worker"], first["names"], first["port"], first["token"])


def _leave() -> None:
    """Waits until all processes are here, for the service of process 0 ends with it."""
    import jax

    jax.distributed.shutdown()


def _ending(error: BaseException) -> tuple[int, str]:
    """The exit code for an error, and a line for it."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted by the user"
    if isinstance(error, SystemExit):
        return int(error.code or 0), "terminated"
    if isinstance(error, PeerError):
        return PEER, describe(error)
    if isinstance(error, REFUSALS) and not isinstance(error, RuntimeError):
        return REFUSED, describe(error)
    if not isinstance(error, RuntimeError):
        traceback.print_exc()
    return CRASHED, describe(error) if isinstance(error, Exception) else type(error).__name__


def _end_with(alive: int) -> None:
    os.read(alive, 1)
    os._exit(PEER)


def _keep_stdout() -> None:
    """Leaves stdout to Python alone: communication libraries write to it what no reader of tables or JSON expects."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
