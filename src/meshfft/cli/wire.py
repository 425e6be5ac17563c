"""Lines of JSON over sockets and pipes: what supervisors say to each other, and workers to their supervisor."""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

LINE_BYTES = 2**16
IDLE, INTERVAL, PROBES = 5, 2, 3  # seconds without a word, between questions, and how many remain unanswered
CONNECT_SECONDS = 5.0


class Lines:
    """The receiving end of a socket or pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.rest = descriptor, b""

    def fileno(self) -> int:
        return self.descriptor

    def read(self) -> Iterator[dict[str, Any] | None]:
        """What has arrived; None where the other end is closed, or says what it should not."""
        try:
            data = os.read(self.descriptor, LINE_BYTES)
        except OSError:  # the machine of the other end is gone
            data = b""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            yield _record(line)
        if not data:
            yield None


def send(descriptor: int, record: dict[str, Any]) -> None:
    """Writes one line; where nobody reads any more, nothing."""
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")
    except OSError:
        return


def listener() -> socket.socket:
    """A socket on a free port of every interface."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", 0), family=family, dualstack_ipv6=both)


def connected(hosts: Sequence[str], port: int) -> socket.socket | None:
    """A connection to the first of the hosts that answers."""
    for host in hosts:
        try:
            return watched(socket.create_connection((host, port), CONNECT_SECONDS))
        except OSError:
            continue
    return None


def watched(connection: socket.socket) -> socket.socket:
    """The connection, which from now on ends some ten seconds after the other machine is gone without a word."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", INTERVAL), ("TCP_KEEPCNT", PROBES)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
