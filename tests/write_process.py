"""One of several processes that write one array together, and prints what became of it as JSON."""

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_cpu_collectives_implementation", "gloo")

import numpy as np  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from meshfft.io import (  # noqa: E402
    flat,
    open_array,
    record_of,
    write_array,
    zarr,
)
from meshfft.layout.layout import Cut, Layout  # noqa: E402
from meshfft.layout.padded_array import PaddedArray  # noqa: E402

SHAPE = (15, 12, 7)


def main(address: str, index: int, count: int, folder: Path) -> None:
    jax.distributed.initialize(address, count, index)
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    values = np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")  # the same in every process
    x = mf.shard(values, mesh, P("x", "y"))
    plan = mf.plan(SHAPE, mesh=mesh, kind="rfft", order="any")
    y = plan(x)
    os.chdir(folder)
    found: dict[str, Any] = {}
    wrote = counted(index)
    for suffix in (".npy", ".zarr", ".h5", ".nii.gz"):
        whole = functools.partial(write_array, f"x{suffix}", x)
        half = functools.partial(write_array, f"y{suffix}", y, record=record_of(plan))
        found |= {suffix: said(whole), f"any{suffix}": said(half)}
    found["wrote"] = sum(wrote)
    with open_array("x.zarr") as source:
        found["read"] = bool((np.asarray(source[...]) == values).all())
    found["exists"] = said(lambda: write_array("x.npy", x))
    long = Layout((4 * 10**6,), ((Cut("x", 4, 1_000_003), Cut("y", 2, 500_003)),))
    ones = jax.make_array_from_callback(long.storage, NamedSharding(mesh, long.spec), lambda at: np.ones(500_003, "f4"))
    found["tiny"] = said(lambda: write_array("long.zarr", PaddedArray(ones, long, mesh)))
    found["alone"] = said(lambda: alone(index))
    failing(index)
    found["failed"] = said(lambda: write_array("x.zarr", x, overwrite=True))
    if index == 1:
        os.chdir(folder / "elsewhere")
    found["unseen"] = said(lambda: write_array("z.npy", x))
    print(json.dumps(found))


def said(work: Callable[[], Any]) -> str | None:
    """The words with which it was refused."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def counted(index: int) -> list[int]:
    """The numbers this process writes, from now on."""
    wrote: list[int] = []
    for kind in (flat.FlatSink, zarr.ZarrSink):

        def write(self: Any, at: Any, block: np.ndarray, real: Any = kind.write) -> None:
            wrote.append(block.size)
            real(self, at, block)

        setattr(kind, "write", write)  # noqa: B010
    return wrote


def alone(index: int) -> None:
    """An array on the last process's devices: the other processes have no work and do not wait."""
    own = [device for device in jax.devices() if device.process_index == 1]
    mesh = jax.sharding.Mesh(np.array(own), ("x",))
    x = jax.make_array_from_callback((8,), NamedSharding(mesh, P("x")), lambda at: np.arange(8.0)[at], dtype="float32")
    if index == 1:
        write_array("alone.npy", x)
    else:
        write_array("never.npy", x)


def failing(index: int) -> None:
    """From now on process 1 has no room in stores."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    if index == 1:
        setattr(zarr.ZarrSink, "write", full)  # noqa: B010


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
