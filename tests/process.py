"""One of several processes that transform one array together, and prints what it found as JSON."""

import json
import sys
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_cpu_collectives_implementation", "gloo")

import numpy as np  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402

SHAPE, SPEC = (16, 12, 8), P("x", "y")


def main(address: str, index: int, count: int) -> None:
    jax.distributed.initialize(address, count, index)
    mesh = jax.make_mesh((2 * count, 2), ("x", "y"))
    values = np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")  # the same in every process
    x = jax.make_array_from_callback(SHAPE, NamedSharding(mesh, SPEC), lambda at: values[at])
    found: dict[str, Any] = {"addressable": x.is_fully_addressable, "shards": len(x.addressable_shards)}
    truths: dict[str, np.ndarray] = {
        "fftn": np.fft.fftn(values),
        "rfftn": np.fft.rfftn(values),
        "ifftn": np.fft.ifftn(values),
        "fftshift": np.fft.fftshift(values),
    }
    for name, truth in truths.items():
        found[name] = _error(getattr(mf, name)(x), truth)
    found["back"] = _error(mf.irfftn(mf.rfftn(x)), values)
    plan = mf.plan((15, 12, 7), mesh=mesh, spec=SPEC, kind="rfft")
    uneven = values[:15, :, :7]
    y = plan(mf.shard(uneven, mesh, SPEC))
    found["uneven"] = _error(y, np.fft.rfftn(uneven), plan.out_shape)
    try:
        mf.gather(x, SHAPE)
    except RuntimeError as refused:
        found["gather"] = str(refused)
    print(json.dumps(found))


def _error(y: jax.Array, truth: np.ndarray, shape: tuple[int, ...] | None = None) -> float:
    """The largest error of the shards of this process, relative to the largest number; padding counts as zeros."""
    stored = np.zeros(y.shape, truth.dtype)
    stored[tuple(slice(0, n) for n in shape or truth.shape)] = truth
    parts = (np.abs(np.asarray(shard.data) - stored[shard.index]).max() for shard in y.addressable_shards)
    return float(max(parts) / np.abs(truth).max())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
