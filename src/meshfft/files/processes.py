"""Several processes that run one program: what each has to say, heard by all.

Every process must make the same calls in the same order. With a single process they cost nothing and touch no device.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

T = TypeVar("T")
LEAST = 1024  # bytes of a message, padded to a power of two: each length is a program of its own


class PeerError(RuntimeError):
    """Another process failed; the text names it and says why."""


def exchange(value: Any) -> list[Any]:
    """Every process's value, in the order of the processes: plain values, as JSON has them.

    A device of each holds what all have to say, so keep it short. It may be of another length in each.
    """
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    most = max(int(_heard(np.array([len(text)], np.int32)).max()), LEAST)
    room = 1 << (most - 1).bit_length()
    return [json.loads(row.tobytes()) for row in _heard(np.pad(text, (0, room - len(text)), constant_values=ord(" ")))]


def together(work: Callable[[], T]) -> T:
    """The result of `work`, run in every process at once; where it fails in one, it fails in all.

    Raises:
        PeerError: it failed in another process; what fails here is raised as it is.
    """
    if jax.process_count() == 1:
        return work()
    failed: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failed = error
    said = exchange(None if failed is None else (" ".join(str(failed).split()) or type(failed).__name__)[:1000])
    if failed is not None:
        raise failed
    for index, text in enumerate(said):
        if text is not None:
            raise PeerError(f"process {index} failed: {text}")
    return result


def check_alike(facts: dict[str, Any]) -> None:
    """Raises ValueError in every process unless all of them give the same plain values; `facts` are those, by name."""
    first, *others = exchange(facts)
    for index, other in enumerate(others, 1):
        for name in first:
            said = f"process 0 has {name} {first[name]}, process {index} has {other[name]}"
            if other[name] != first[name]:
                raise ValueError(f"{said}: give every process the same files and arguments")


def _heard(row: np.ndarray) -> np.ndarray:
    """The row of every process, one below the other: sent by its first device, so that they may have any number."""
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[process] for process in sorted(firsts)]), ("process",))
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("process")), row[None])
    return np.asarray(jax.jit(_same, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows))


def _same(rows: jax.Array) -> jax.Array:
    return rows
