"""Runs a worker as one of several processes, so that all of them end together, in bounded time, and say why.

Each process of a run is two: a worker, which computes, and its parent, a supervisor, which never touches JAX. JAX
itself ends a process by abort() once another is lost (at once where that was process 0, which keeps its service, else
when heartbeats have failed for long) and collectives fail or hang meanwhile; so it takes another process to tell, to
clean up, and to choose the exit code. The supervisors of processes 1, 2, ... each hold a connection to that of
process 0.

    worker --pipe--> supervisor i --connection--> supervisor 0:   ended, and how; a closed end means: lost
    supervisor 0 --connection--> every supervisor:                stop, and why
"""

import contextlib
import math
import os
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .wire import Lines, connected, listener, send, watched
from .worker import CRASHED, PEER, Joined, run_worker

GRACE = 4.0  # seconds in which a worker may end by itself, or its end be explained, once a run has failed
LINGER = 8.0  # seconds that process 0 waits for the others to have heard
STOPS: dict[int, str] = {signal.SIGINT: "interrupted by the user", signal.SIGTERM: "terminated"}


class Outcome(NamedTuple):
    """How a process ended: the exit code, and a line that says why, if there is a reason."""

    code: int
    text: str | None = None


def supervised(work: Callable[[], None], join: Callable[[], list[str]], clean: Callable[[int], None]) -> Outcome:
    """Runs `work` in a worker that has joined the others, until all of them have ended.

    Args:
        work: what the worker does.
        join: makes the worker one of several processes; returns the names by which process 0 may be reached.
        clean: removes what the worker of process 0, whose process number it is given, left unfinished.
    """
    listening = listener()
    reports, reporting = os.pipe()
    alive, living = os.pipe()  # closed by the system when this process ends, however it does
    worker = os.fork()
    if worker == 0:
        os.close(reports)
        os.close(living)
        port, token = listening.getsockname()[1], secrets.token_hex(16)
        run_worker(work, join, lambda record: send(reporting, record), alive, port, token)
    os.close(reporting)
    os.close(alive)
    supervisor = _Supervisor(worker, reports, listening, clean)
    for number in STOPS:
        signal.signal(number, supervisor.stop)
    return supervisor.outcome()


class _Supervisor:
    """The state of one supervisor, changed as lines arrive."""

    def __init__(self, worker: int, reports: int, listening: socket.socket, clean: Callable[[int], None]) -> None:
        self.worker, self.clean, self.sockets = worker, clean, [listening]
        self.joined: Joined | None = None
        self.ended: Outcome | None = None  # what the worker said of its end
        self.status: int | None = None  # what the system says of it
        self.stopped: int | None = None  # the signal by which this process was asked to end
        self.verdict: str | None = None  # why the run has failed, as was heard from another process
        self.deadline = math.inf  # when a worker that should end by itself will be made to
        self.peers: dict[int, socket.socket] = {}
        self.strangers: list[tuple[socket.socket, dict[str, Any]]] = []  # who spoke before this process had joined
        self.running: set[int] = set()  # other processes that process 0 has not heard to have ended
        self.selector = selectors.DefaultSelector()
        self.selector.register(Lines(reports), selectors.EVENT_READ, self._on_worker)
        self.selector.register(listening, selectors.EVENT_READ, lambda _: self._on_stranger(listening))

    def stop(self, number: int, _: Any) -> None:
        """What a signal to this process does: the worker is asked to end, and so are the others."""
        self.stopped, self.deadline = number, min(self.deadline, time.monotonic() + GRACE)
        _kill(self.worker, number)

    def outcome(self) -> Outcome:
        while self.status is None and time.monotonic() < self.deadline:
            self._wait(0.5)
        found = self._judge() if self.status is not None else self._end_worker()
        self._tell(found)
        if found.code and self.joined is not None:
            self.clean(self.joined.first)
        for connection in self.sockets:
            connection.close()
        self.selector.close()
        return found

    def _judge(self) -> Outcome:
        """Why the worker ended: by its own word, or because of another process, heard of a little later."""
        if self.ended is not None and self.ended.code not in (CRASHED, PEER):
            return self.ended
        killed = self.ended is None and self.status == -signal.SIGKILL
        until = time.monotonic() + (0.0 if killed else GRACE)
        while self.verdict is None and time.monotonic() < until:
            self._wait(0.2)
        if self.verdict is not None:
            return self._failed()
        if self.ended is not None:
            return self.ended
        if self.joined is None:
            return Outcome(PEER, "the processes did not find each other: start all of them, with the same coordinator")
        return Outcome(PEER, f"{self._name(self.joined.process)} {_words(self.status or 0)}")

    def _end_worker(self) -> Outcome:
        """Makes the worker end: asks it, and then does not ask."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            _kill(self.worker, number)
            until = time.monotonic() + GRACE / 2
            while self.status is None and time.monotonic() < until:
                self._wait(0.1)
        return self._failed() if self.stopped is None else Outcome(128 + self.stopped, STOPS[self.stopped])

    def _failed(self) -> Outcome:
        return Outcome(PEER, f"{self.verdict}: this run has stopped, start all its processes again")

    def _tell(self, found: Outcome) -> None:
        """Lets the others know; process 0 waits until they do."""
        if self.joined is None:
            return
        own = self._name(self.joined.process)
        text = found.text if found.code == PEER and not self.ended else f"{own} stopped ({found.text})"
        text = self.verdict or (text if found.code else None)
        if self.joined.process != 0:
            self._send(0, {"ended": text})
            return
        if self.verdict is None:
            self._broadcast(text)
        until = time.monotonic() + LINGER
        while self.running and time.monotonic() < until:
            self._wait(0.2)

    def _wait(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            key.data(key.fileobj)

    def _on_worker(self, lines: Lines) -> None:
        for record in lines.read():
            if record is None:
                self.selector.unregister(lines)
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.worker, 0)[1])
            elif "joined" in record:
                self._join(Joined(**record["joined"]))
            else:
                self.ended = Outcome(record["ended"], record["text"])

    def _join(self, joined: Joined) -> None:
        self.joined = joined
        if joined.process == 0:
            self.running = set(range(1, len(joined.hosts)))
            for connection, said in self.strangers:
                self._admit(connection, said)
            return
        found = connected(joined.addresses, joined.port)
        if found is not None:  # else a lost process is noticed by JAX alone, and later
            self.sockets.append(found)
            self._keep(0, found)
            self._send(0, {"token": joined.token, "process": joined.process})

    def _on_stranger(self, listening: socket.socket) -> None:
        """Somebody connects, and will say who it is."""
        connection = watched(listening.accept()[0])
        self.sockets.append(connection)
        lines = Lines(connection.fileno())

        def hear(_: Any) -> None:
            self.selector.unregister(lines)
            said = next(lines.read(), None) or {}
            if self.joined is None:
                self.strangers.append((connection, said))
            else:
                self._admit(connection, said)

        self.selector.register(lines, selectors.EVENT_READ, hear)

    def _admit(self, connection: socket.socket, said: dict[str, Any]) -> None:
        """Keeps the connection to another supervisor of this run; who does not know its token is sent away."""
        process, token = said.get("process"), str(said.get("token"))
        known = self.joined is not None and secrets.compare_digest(token, self.joined.token)
        if known and isinstance(process, int) and process in self.running:
            self._keep(process, connection)
        else:
            connection.close()

    def _keep(self, process: int, connection: socket.socket) -> None:
        self.peers[process] = connection
        lines = Lines(connection.fileno())
        self.selector.register(lines, selectors.EVENT_READ, lambda _: self._on_peer(process, lines))
        if self.verdict is not None:
            self._send(process, {"stop": self.verdict})

    def _on_peer(self, process: int, lines: Lines) -> None:
        for record in lines.read():
            if record is None:
                self.selector.unregister(lines)
                self.peers.pop(process).close()
                if process == 0 or process in self.running:
                    self._fail(f"{self._name(process)} was lost")
                self.running.discard(process)
                return
            if "ended" in record:
                self.running.discard(process)
            if text := record.get("stop") or record.get("ended"):
                self._fail(str(text))

    def _fail(self, text: str) -> None:
        """The run has failed elsewhere: the worker here may end by itself, for a while."""
        if self.verdict is None and self.status != 0:
            self.verdict, self.deadline = text, min(self.deadline, time.monotonic() + GRACE)
            self._broadcast(text)

    def _broadcast(self, text: str | None) -> None:
        """Process 0 tells all the others to stop, if there is a reason."""
        if text is not None and self.joined is not None and self.joined.process == 0:
            for process in self.peers:
                self._send(process, {"stop": text})

    def _send(self, process: int, record: dict[str, Any]) -> None:
        if process in self.peers:
            send(self.peers[process].fileno(), record)

    def _name(self, process: int) -> str:
        return f"process {process} on {self.joined.hosts[process]}" if self.joined else f"process {process}"


def _kill(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _words(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit code {status}"
