"""Exchange of small values between processes that run one program.

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
LEAST = 1024  # bytes of a message, padded to a power of two, as each length compiles a program


class PeerError(RuntimeError):
    """Another process failed; the text has its number and the reason."""


def exchange(value: object) -> list[Any]:
    """Every process's value, in the order of the processes: plain JSON values of any length.

    A device of each process holds all values, so keep them short.
    """
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    most = max(int(_heard(np.array([len(text)], np.int32)).max()), LEAST)
    room = 1 << (most - 1).bit_length()
    return [json.loads(row.tobytes()) for row in _heard(np.pad(text, (0, room - len(text)), constant_values=ord(" ")))]


def together(work: Callable[[], T]) -> T:
    """Runs `work` in every process at once; if it fails in one, it fails in all.

    Raises PeerError if it failed in another process; a failure here is raised unchanged.
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
    """Raises ValueError in every process unless all give the same plain values, by name."""
    first, *others = exchange(facts)
    for index, other in enumerate(others, 1):
        for name in first:
            if other[name] != first[name]:
                said = f"process 0 has {name} {first[name]}, process {index} has {other[name]}"
                raise ValueError(f"{said}: give every process the same files and arguments")


def identity(source: Source) -> dict[str, object]:
    """Identity of a file, compared between processes: size, time of change and first bytes, as plain values.

    A copy of a file with the same time is the same. Only the header and first values of a file are read, or the
    metadata of
    a Zarr store.
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
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([firsts[process] for process in sorted(firsts)]), ("process",))
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("process")), row[None])
    return np.asarray(jax.jit(_same, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows))


def _same(rows: jax.Array) -> jax.Array:
    return rows
