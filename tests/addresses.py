"""Address at which the processes of one run connect."""

import socket


def free_address() -> str:
    """A free port of this machine, as HOST:PORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
