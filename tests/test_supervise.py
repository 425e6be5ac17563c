"""Supervisors of one run: what they tell each other, whom they believe, and how each of them ends."""

import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from meshfft.cli import supervise
from meshfft.cli.supervise import Outcome, _Supervisor
from meshfft.cli.wire import Lines, connected, listener, send
from meshfft.cli.worker import Joined

HOSTS = ["alpha", "beta", "gamma"]


class Process:
    """A supervisor with a worker that only sleeps; the test speaks for the worker."""

    def __init__(self, process: int, port: int, token: str, listening: socket.socket | None = None) -> None:
        self.listening = listening or listener()
        self.joined = Joined(process, HOSTS, 1, ["127.0.0.1"], port or self.listening.getsockname()[1], token)
        self.worker = subprocess.Popen(["sleep", "60"])
        reports, self.reporting = os.pipe()
        self.cleaned: list[int] = []
        self.supervisor = _Supervisor(self.worker.pid, reports, self.listening, self.cleaned.append)
        self.found: list[Outcome] = []
        self.thread = threading.Thread(target=lambda: self.found.append(self.supervisor.outcome()))
        self.thread.start()

    def join(self) -> "Process":
        send(self.reporting, {"joined": self.joined._asdict()})
        return self

    def end(self, code: int | None = None, text: str | None = None) -> None:
        """The worker says how it ends, if it can, and ends."""
        if code is not None:
            send(self.reporting, {"ended": code, "text": text})
        self.worker.kill()
        os.close(self.reporting)
        self.reporting = -1

    def outcome(self) -> Outcome:
        """How it ended, which it has to within seconds."""
        deadline = time.monotonic() + 60
        while self.thread.is_alive() and time.monotonic() < deadline:
            if self.worker.returncode is None and self.reporting >= 0 and _is_gone(self.worker.pid):
                os.close(self.reporting)  # the system does so for a worker that was killed
                self.reporting = -1
            time.sleep(0.01)
        assert not self.thread.is_alive()
        self.worker.returncode = 0  # the supervisor has waited for it
        return self.found[0]

    def close(self) -> None:
        """Leaves nothing behind where a test has failed."""
        if self.thread.is_alive():
            self.supervisor.deadline = 0.0
            self.outcome()
        self.worker.returncode = 0


def _is_gone(process: int) -> bool:
    with open(f"/proc/{process}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    """Three processes of one run that have joined, in a hurry."""
    monkeypatch.setattr(supervise, "GRACE", 0.3)
    monkeypatch.setattr(supervise, "LINGER", 15.0)
    token = secrets.token_hex(8)
    first = Process(0, 0, token)
    others = [Process(index, first.joined.port, token) for index in (1, 2)]
    yield [first, *others]
    for process in (first, *others):
        process.close()


def _met(run: list[Process]) -> None:
    """Joins all, and waits until process 0 knows the others."""
    for process in run:
        process.join()
    _wait(run)


def _wait(run: list[Process]) -> None:
    while len(run[0].supervisor.peers) < len(run) - 1:
        time.sleep(0.01)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_end_well(run: list[Process], order: tuple[int, ...]) -> None:
    """Catches a process 0 that ends before the others, and an end that is taken for a loss by those still at work."""
    _met(run)
    for index in order:
        run[index].end(0)
        time.sleep(0.5)
    assert [process.outcome() for process in run] == [Outcome(0)] * 3
    assert not any(process.cleaned for process in run)


def test_a_killed_worker_ends_all(run: list[Process]) -> None:
    """Catches a loss that only process 0 hears of, and one that is not named."""
    _met(run)
    run[2].end()
    found = [process.outcome() for process in run]
    assert [one.code for one in found] == [3, 3, 3]
    assert all("process 2 on gamma was killed by signal 9" in (one.text or "") for one in found)
    assert all(process.cleaned == [1] for process in run)


def test_a_lost_supervisor_ends_all(run: list[Process]) -> None:
    """Catches a machine that is gone without a word: its connection ends."""
    _met(run)
    run[0].supervisor.peers[2].shutdown(socket.SHUT_RDWR)
    assert "process 2 on gamma was lost" in (run[1].outcome().text or "")
    assert "process 2 on gamma was lost" in (run[0].outcome().text or "")
    assert "process 0 on alpha was lost" in (run[2].outcome().text or "")


@pytest.mark.parametrize("index", [0, 1])
def test_what_one_refuses_the_others_are_told(run: list[Process], index: int) -> None:
    """Catches a reason that stays with the process that found it, or its own exit code lost."""
    _met(run)
    run[index].end(2, "disk full")
    found = [process.outcome() for process in run]
    assert found.pop(index) == Outcome(2, "disk full")
    for other in found:
        assert other.code == 3
        assert f"process {index} on {HOSTS[index]} stopped (disk full)" in (other.text or "")


def test_what_all_refuse_is_each_ones_own(run: list[Process]) -> None:
    """Catches exit code 3 where every process was asked for what cannot be."""
    _met(run)
    for process in run:
        process.end(2, "no such file")
    assert [process.outcome() for process in run] == [Outcome(2, "no such file")] * 3


def test_a_crash_is_laid_at_the_door_it_came_from(run: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a process blamed for failing because another was gone before it."""
    monkeypatch.setattr(supervise, "GRACE", 3.0)  # time to hear of it on a machine that is busy
    _met(run)
    run[0].end(1, "collective failed")
    run[2].end()
    assert "process 2 on gamma was killed" in (run[0].outcome().text or "")
    for process in run[1:]:
        process.outcome()


def test_who_comes_early_is_let_in_later(run: list[Process]) -> None:
    """Catches a process taken for lost because it was quicker to join than process 0."""
    run[1].join()
    run[2].join()
    time.sleep(0.3)
    run[0].join()
    _wait(run)
    for process in run:
        process.end(0)
    assert [process.outcome() for process in run] == [Outcome(0)] * 3


SAID: list[Any] = [
    b"GET / HTTP/1.1\r\n\r\n",
    b'{"token": "guess", "process": 1}\n',
    b'{"process": 1, "ended": "all of you"}\n',
    b"[1, 2]\n",
    b"x" * 100_000,
    b"",
]


@pytest.mark.parametrize("said", SAID)
def test_strangers_are_sent_away(run: list[Process], said: bytes) -> None:
    """Catches anybody who can reach the port ending a run, taking a process's place, or filling memory."""
    with socket.create_connection(("127.0.0.1", run[0].joined.port)) as stranger:
        stranger.sendall(said)
        _met(run)
        with socket.create_connection(("127.0.0.1", run[0].joined.port)) as second:
            second.sendall(said)
        time.sleep(0.5)  # longer than a run goes on that has failed
    for process in run:
        process.end(0)
    assert [process.outcome() for process in run] == [Outcome(0)] * 3


def test_lines_come_whole() -> None:
    """Catches a line cut in two by the network, two lines that come as one, and an end that is not heard."""
    reading, writing = os.pipe()
    lines = Lines(reading)
    os.write(writing, b'{"a": 1}\n{"b"')
    assert list(lines.read()) == [{"a": 1}]
    os.write(writing, b": 2}\n")
    assert list(lines.read()) == [{"b": 2}]
    os.close(writing)
    assert list(lines.read()) == [None]
    os.close(reading)


def test_nobody_answers() -> None:
    """Catches a supervisor that waits for ever for a host that is not there."""
    with listener() as free:
        port = free.getsockname()[1]
    assert connected(["127.0.0.1", "no-such-host.invalid"], port) is None
