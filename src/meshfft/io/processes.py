"""Several processes that run one program: what each has to say, heard by all.

Every process must make the same calls in the same order. With a single process they cost nothing and touch no device.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .source import Source

T = TypeVar("T")
HEAD_BYTES = 2**16
METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs")
LEAST = 1024  # bytes of a message, padded to a power of two: each length is a program of its own


class PeerError(RuntimeError):
    """Another process failed; the text names it and says why."""


def exchange(value: object) -> list[Any]:
    """Every process's value, in the order of the processes: plain values, as JSON has them, of any length.

    A device of each process holds what all have to say, so keep it short.
    """
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    most = max(int(_heard(np.array([len(text)], np.int32)).max()), LEAST)
    room = 1 << (most - 1).bit_length()
    return [json.loads(row.tobytes()) for row in _heard(np.pad(text, (0, room - len(text)), constant_values=ord(" ")))]


def together(work: Callable[[], T]) -> T:
    """The result of `work`, run in every process at once; if it fails in one, it fails in all.

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


def check_alike(facts: Mapping[str, object]) -> None:
    """Raises ValueError in every process unless all of them give the same plain values, by name."""
    first, *others = exchange(facts)
    for index, other in enumerate(others, 1):
        for name in first:
            if other[name] != first[name]:
                said = f"process 0 has {name} {first[name]}, process {index} has {other[name]}"
                raise ValueError(f"{said}: give every process the same files and arguments")


def identity(source: Source) -> dict[str, object]:
    """What shows that processes were given the same file: its size, when it changed, how it begins; plain values.

    A copy of a file is the same if its time was kept. Only beginnings are read: of a file its header and first values,
    of a Zarr store what describes it and the array.
    """
    folders = dict.fromkeys([source.path, source.path / source.name])
    metadata = [folder / name for folder in folders for name in METADATA if (folder / name).is_file()]
    files = [source.path] if source.path.is_file() else metadata
    checksum = 0
    for file in files:
        with open(file, "rb") as opened:
            checksum = zlib.crc32(opened.read(HEAD_BYTES), checksum)
    changed = max((int(file.stat().st_mtime) for file in files), default=0)
    return {
        "an input of": f"{source.dtype} {source.shape}",
        "an input of bytes": sum(file.stat().st_size for file in files),
        "an input that begins with the checksum": f"{checksum:08x}",
        "an input that changed at": datetime.fromtimestamp(changed, UTC).isoformat(),
    }


def _heard(row: np.ndarray) -> np.ndarray:
    """The rows of all processes, sent by the first device of each, as they may have any number."""
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[process] for process in sorted(firsts)]), ("process",))
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("process")), row[None])
    return np.asarray(jax.jit(_same, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows))


def _same(rows: jax.Array) -> jax.Array:
    return rows
