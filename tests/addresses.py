"""Where processes of one run meet."""

import socket


def free_address() -> str:
    """A port of this machine that nobody listens on, as HOST:PORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
