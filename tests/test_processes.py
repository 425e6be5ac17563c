"""Arrays of which every process holds a part: several real processes, with several devices each."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "process.py"


def _together(count: int) -> list[dict[str, Any]]:
    """What each of so many processes prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    commands = [[sys.executable, str(SCRIPT), address, str(index), str(count)] for index in range(count)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    started = [subprocess.Popen(command, env=environment, **pipes) for command in commands]
    ended = [process.communicate(timeout=300) for process in started]
    assert not any(process.returncode for process in started), [error[-2000:] for _, error in ended]
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


@pytest.mark.parametrize("count", [2])
def test_arrays_that_no_process_holds_whole(count: int) -> None:
    """Catches anything that asks for shards of other processes: values, padding, shifts; and a gather is refused."""
    for found in _together(count):
        assert not found["addressable"] and found["shards"] == 4
        for name in ("fftn", "rfftn", "ifftn", "fftshift", "back", "uneven"):
            assert found[name] <= 1e-6, name
        assert "addressable" in found["gather"]
