"""Exchange of small values between processes that run one program.

Every process must make the same calls in the same order. A single process touches no device.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

T = TypeVar("T")
LEAST = 1024  # bytes of a message; lengths are powers of two, as each compiles a program


class PeerError(RuntimeError):
    """Another process failed; the text has its number and the reason."""


def from_all(value: object, devices: Iterable[jax.Device] | None = None) -> dict[int, Any]:
    """The value of every process that has one of the devices (by default all), by process number.

    Values are plain JSON. Keep them short: every process gets all.
    """
    if jax.process_count() == 1:
        return {0: value}
    firsts = {device.process_index: device for device in reversed([*(jax.devices() if devices is None else devices)])}
    if len(firsts) == 1:
        return dict.fromkeys(firsts, value)
    processes = sorted(firsts)
    mesh = Mesh(np.array([firsts[process] for process in processes]), ("process",))
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    most = max(int(_heard(mesh, np.array([len(text)], np.int32)).max()), LEAST)
    room = 1 << (most - 1).bit_length()
    rows = _heard(mesh, np.pad(text, (0, room - len(text)), constant_values=ord(" ")))
    return {process: json.loads(row.tobytes()) for process, row in zip(processes, rows, strict=True)}


def _heard(mesh: Mesh, row: np.ndarray) -> np.ndarray:
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("process")), row[None])
    return np.asarray(jax.jit(_same, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows))


def _same(rows: jax.Array) -> jax.Array:
    return rows


def together(work: Callable[[], T], devices: Iterable[jax.Device] | None = None) -> T:
    """Runs `work` at once in every process that has one of the devices (by default all); one failure fails all.

    Raises PeerError if it failed in another process; a failure here is raised unchanged.
    """
    if jax.process_count() == 1:
        return work()
    failed: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failed = error
    reason = None if failed is None else (" ".join(str(failed).split()) or type(failed).__name__)[:1000]
    said = from_all(reason, devices)
    if failed is not None:
        raise failed
    for index, text in said.items():
        if text is not None:
            raise PeerError(f"process {index} failed: {text}")
    return result


def on_first(work: Callable[[], T]) -> T | None:
    """Runs `work` in process 0; all processes wait for it, and fail if it fails."""
    return together(lambda: work() if jax.process_index() == 0 else None)


def check_alike(facts: Mapping[str, object]) -> None:
    """Raises ValueError in every process unless all give the same plain values, by name."""
    said = from_all(facts)
    for process, other in said.items():
        for name in {**said[0], **other}:
            if said[0].get(name) != other.get(name):
                both = f"process 0 has {name} {said[0].get(name)}, process {process} has {other.get(name)}"
                raise ValueError(f"{both}: give every process the same files and arguments")
