"""One of several processes that make every call of everywhere.py together. It saves its part of each result.

    python process.py HOST:PORT INDEX COUNT FOLDER

leaves FOLDER/INDEX.npz, blocks by row, leaf and place on the mesh, and FOLDER/INDEX.json, everything else it found. A
single process, which holds every array whole, is not part of a cluster, and finds the errors.
"""

import functools
import hashlib
import json
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from everywhere import rows
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, noise

import meshfft as mf
from meshfft.collectives.processes import check_alike, from_all, together
from meshfft.layout import placement
from meshfft.plans.execute import check_steps

DEVICES = 8
LAID = ("order any",)  # laid out by prices, which differ between hosts and one host


class Recorder:
    """meshfft, and which of its names were asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(mf, name)


def blocks(name: str, value: Any, devices: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """This process's part of an array, by place on the mesh; "here" for an array without a mesh."""
    places = {device: place for place, device in enumerate(devices)}
    for leaf, array in enumerate(jax.tree.leaves(value)):
        if isinstance(array, jax.Array) and len(array.sharding.device_set) == len(places):
            for shard in array.addressable_shards:
                yield f"{name}|{leaf}|{places[shard.device]}", np.asarray(shard.data)
        else:
            yield f"{name}|{leaf}|here", np.asarray(array)


def main(address: str, index: int, count: int, folder: Path) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES // count)
    if count > 1:
        jax.distributed.initialize(address, count, index)
    placement.RUN = 400  # bytes: small arrays too are gathered in several runs, and the last run overlaps
    devices, recorder = np.array(jax.devices()), Recorder()
    found: dict[str, np.ndarray] = {}
    said: dict[str, Any] = {"errors": {}}
    by_name = count < 4  # they take long to compile, and longest in four
    for name, value, truth in rows(recorder, devices, by_name):
        assert f"{name}|0|here" not in found and f"{name}|0|0" not in found, f"two rows are called {name}"
        value = jax.tree.map(mf.gather, value) if name in LAID else value
        found |= dict(blocks(name, value, devices))
        if count == 1:
            pairs = zip(jax.tree.leaves(value), jax.tree.leaves(truth), strict=True)
            said["errors"][name] = [(str(y.dtype), error(_wide(y), _wide(truth))) for y, truth in pairs]
    np.savez(folder / f"{index}.npz", allow_pickle=False, **found)
    said |= {"asked": sorted(recorder.asked), "public": sorted(public()), "texts": _texts(devices)}
    if count > 1:
        said |= {"alone": _alone(index), "some": _some(devices), "own": _own(devices), "peers": _peers(index)}
    (folder / f"{index}.json").write_text(json.dumps(said))


def _wide(x: Any) -> np.ndarray:
    """In the double precision of its kind: norms of narrow types overflow."""
    return np.asarray(x).astype(complex if np.iscomplexobj(x) else float)


def _texts(devices: np.ndarray) -> list[str]:
    """Programs that sum over several mesh axes, as the compiler reads them."""
    mesh, cut = Mesh(devices.reshape(2, 2, 2), ("x", "y", "z")), P("x", "y", "z")
    x, points = jax.ShapeDtypeStruct((8, 8, 8), "complex64", sharding=NamedSharding(mesh, cut)), mf.Points.uniform(8)

    def solved(block: jax.Array) -> Any:
        return mf.ikdftn(block, points, axes=(0,), spec=cut).residual

    def loss(matrix: jax.Array, x: jax.Array) -> Any:
        return jnp.sum(jnp.abs(mf.apply_separable([matrix], x, axes=(0,), spec=cut)) ** 2)

    residual = jax.jit(jax.shard_map(solved, mesh=mesh, in_specs=cut, out_specs=P()))
    slope = jax.jit(jax.grad(loss))
    texts = residual.lower(x), slope.lower(jax.ShapeDtypeStruct((8, 8), "float32"), x)
    return [hashlib.sha256(text.as_text().encode()).hexdigest() for text in texts]


def _alone(index: int) -> list[float]:
    """Errors on a mesh of this process' own devices, where every process does something else."""
    mesh, values = Mesh(np.array(jax.local_devices()), ("x",)), noise((8, 8), "complex64", index)
    x, name = mf.shard(values, mesh, P("x")), ("fftn", "ifftn", "fft", "ifft")[index]
    found = [error(mf.gather(getattr(mf, name)(x)), getattr(np.fft, name)(values))]
    for _ in range(index):
        y = mf.convolve(x, jnp.asarray(values))
        found.append(error(y, np.fft.ifftn(np.fft.fftn(values) ** 2)))
    return found


def _own(devices: np.ndarray) -> float:
    """The error of an array that every process knows only where its own blocks are, and takes from JAX's."""
    mesh, values = Mesh(devices, ("x",)), noise((8, 4), "float32")
    known = np.full(values.shape, np.nan, "float32")
    for at in NamedSharding(mesh, P("x")).addressable_devices_indices_map(values.shape).values():
        known[at] = values[at]
    return _off(mf.shard(jnp.asarray(known), mesh, P("x")), values)


def _some(devices: np.ndarray) -> dict[str, Any]:
    """Errors and refusals on a mesh that leaves the second half of the processes without a device."""
    mesh, values = Mesh(devices[: DEVICES // 2], ("x",)), noise((8, 8), "float32")
    x = mf.shard(values, mesh, P("x"))
    plan = mf.plan((7, 6), mesh=mesh, spec=P("x"), kind="rfft")
    results = {
        "fftn": (mf.fftn(x), np.fft.fftn(values)),
        "plan": (plan(values[:7, :6]), np.fft.rfftn(values[:7, :6])),
        "fftfreq": (mf.fftfreq(8, device=NamedSharding(mesh, P("x"))), np.fft.fftfreq(8)),
        "wavenumbers": (mf.wavenumbers(plan)[1], 2 * np.pi * np.arange(4)[None] / 6),
        "convolve": (
            mf.convolve(x, values[:2, :2]),
            np.fft.ifftn(np.fft.fftn(values) * np.fft.fftn(values[:2, :2], x.shape)),
        ),
        "shard": (mf.shard(jnp.asarray(values), mesh, P("x")), values),
    }
    return {name: _said(functools.partial(_off, y, truth)) for name, (y, truth) in results.items()}


def _off(y: jax.Array | mf.PaddedArray, truth: np.ndarray) -> float:
    return error(mf.gather(y), truth)


def _peers(index: int) -> dict[str, Any]:
    """Messages between processes: values, and failures of one or two of them."""

    def fail(those: tuple[int, ...], text: str) -> str:
        if index in those:
            raise ValueError(text)
        return "done"

    told = "é" * 3000
    return {
        "exchange": from_all({"process": index, "text": "é" * 5000 * index})
        == {i: {"process": i, "text": "é" * 5000 * i} for i in range(jax.process_count())},
        "all well": together(lambda: fail((), "")),
        "last fails": _said(lambda: together(lambda: fail((jax.process_count() - 1,), "no such\nfile"))),
        "two fail": _said(lambda: together(lambda: fail((0, 1), told))),
        "nameless": _said(lambda: together(lambda: fail((0,), ""))),
        "alike": _said(lambda: check_alike({"shape": [index // 9, None, "mesh"]})),
        "different": _said(lambda: check_alike({"shape": 3, "mesh": [2, index]})),
        "other names": _said(lambda: check_alike({f"at {index}": 3} if index else {})),
        "same steps": _said(lambda: check_steps("fft X", jax.devices())),
        "other steps": _said(lambda: check_steps(f"fft X, {index}", jax.devices())),
        "after": [*from_all(index).values()],
    }


def _said(work: Callable[[], Any]) -> Any:
    """The result, or the error as text."""
    try:
        return work()
    except (ValueError, RuntimeError) as refused:
        return f"{type(refused).__name__}: {refused}"


def public() -> set[str]:
    """The names that `import meshfft` offers, except its modules."""
    names = {name for name in dir(mf) if not name.startswith("_")}
    return {name for name in names if not isinstance(getattr(mf, name), types.ModuleType)}


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # else JAX would wait for its peers, which wait for it
