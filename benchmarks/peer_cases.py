"""The cases of `peers.py`: how meshfft and each peer is set up and called once on the same input.

A case prepares lazily, and returns a timer (seconds of one call, output ready, inputs left where they are) and the
relative L2 error of its first result. A peer that cannot be prepared raises, and `peers.py` notes why.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HERE = Path(__file__).resolve().parent
SLOW = 3  # a slow case joins one round in three
LAYOUTS = {
    "slab": ((8,), ("x",), P("x", None, None)),
    "pencil": ((2, 4), ("x", "y"), P("x", "y", None)),
    "block": ((2, 2, 2), ("x", "y", "z"), P("x", "y", "z")),
}

Gather = Callable[[Any], np.ndarray]
Timer = Callable[[], float]


@dataclass(frozen=True)
class Data:
    """The input (complex64), its transform (complex128), and the folder where both lie as .npy files."""

    x: np.ndarray
    truth: np.ndarray
    folder: Path

    def error(self, y: np.ndarray) -> float:
        return float(np.linalg.norm((y - self.truth).ravel()) / np.linalg.norm(self.truth.ravel()))


@dataclass
class Case:
    """One row.

    `prepare` compiles, and returns the timer of one call and the relative error; `every` thins the rounds.
    """

    name: str
    mesh: str
    prepare: Callable[[], tuple[Timer, float]]
    every: int = 1
    timer: Timer | None = None
    error: float | None = None
    absent: str | None = None
    seconds: list[float] = field(default_factory=list)


# ---- JAX cases


def make_mesh(shape: tuple[int, ...], names: tuple[str, ...]) -> Mesh:
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))


def prepare_jax(data: Data, function: Callable[[Any], Any], x: jax.Array, gather: Gather) -> tuple[Timer, float]:
    """Compiles ahead of time, so that no timed call can compile; the first call gives the error."""
    compiled = jax.jit(function).lower(x).compile()

    def timer() -> float:
        start = time.perf_counter()
        jax.block_until_ready(compiled(x))
        return time.perf_counter() - start

    return timer, data.error(gather(compiled(x)))


def meshfft_cases(data: Data) -> Iterator[Case]:
    def prepare(layout: str, method: str, order: str) -> tuple[Timer, float]:
        import meshfft as mf

        shape, names, spec = LAYOUTS[layout]
        mesh = make_mesh(shape, names)
        plan = mf.plan(data.x.shape, mesh=mesh, spec=spec, dtype="complex64", method=method, order=order)
        return prepare_jax(data, plan, mf.shard(data.x, mesh, spec), lambda y: mf.gather(y, data.x.shape))

    kinds = [
        ("transpose", "natural", 1),
        ("transpose", "any", 1),
        ("auto", "any", 1),
        ("cooley-tukey", "natural", 1),
        ("kdft", "natural", SLOW),
    ]
    for layout, (shape, _, _) in LAYOUTS.items():
        for method, order, every in kinds:
            call = partial(prepare, layout, method, order)
            yield Case(f"meshfft {method} {order}", f"{layout} {shape}", call, every)


def jnp_cases(data: Data) -> Iterator[Case]:
    def prepare(layout: str) -> tuple[Timer, float]:
        shape, names, spec = LAYOUTS[layout]
        x = jax.device_put(data.x, NamedSharding(make_mesh(shape, names), spec))
        return prepare_jax(data, jnp.fft.fftn, x, np.asarray)

    for layout, (shape, _, _) in LAYOUTS.items():
        yield Case("jnp.fft.fftn", f"{layout} {shape}", partial(prepare, layout), SLOW)
    single = jax.device_put(data.x, jax.devices()[0])
    yield Case("jnp.fft.fftn", "one device", partial(prepare_jax, data, jnp.fft.fftn, single, np.asarray))


def jaxdecomp_cases(data: Data) -> Iterator[Case]:
    """Its output stays transposed: array dimensions (Y, Z, X), or with contiguous=False only the layout."""

    def prepare(shape: tuple[int, int], contiguous: bool) -> tuple[Timer, float]:
        import jaxdecomp

        jax.clear_caches()  # the setting is read while tracing and is no part of jit's key
        jaxdecomp.config.update("transpose_axis_contiguous", contiguous)
        x = jax.device_put(data.x, NamedSharding(make_mesh(shape, ("x", "y")), P("x", "y")))
        order = (2, 0, 1) if contiguous else (0, 1, 2)
        return prepare_jax(data, jaxdecomp.fft.pfft3d, x, lambda y: np.asarray(y).transpose(order))

    for shape, layout in (((8, 1), "slab"), ((1, 8), "slab"), ((2, 4), "pencil"), ((4, 2), "pencil")):
        for contiguous in (True, False):
            name = "jaxDecomp pfft3d" + ("" if contiguous else " not contiguous")
            yield Case(name, f"{layout} {shape}", partial(prepare, shape, contiguous))


# ---- mpi4py-fft, in a child process


class MpiChild:
    """`mpirun` with the workers of mpi_worker.py: one request a line in, one JSON answer a line out."""

    def __init__(self, folder: Path, ranks: int = 2) -> None:
        self.folder, self.ranks = folder, ranks
        self.process: subprocess.Popen[str] | None = None
        self.versions: dict[str, Any] = {}

    def start(self) -> None:
        """Starts the ranks and waits for their plans;

        raises RuntimeError with the last line they wrote if they fail.
        """
        if shutil.which("mpirun") is None:
            raise RuntimeError("mpirun is not installed")
        options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        command = [
            "mpirun",
            "-n",
            str(self.ranks),
            *options,
            sys.executable,
            str(HERE / "mpi_worker.py"),
            str(self.folder),
        ]
        with open(self.folder / "mpi.log", "w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.versions = self.read()["versions"]

    def read(self) -> dict[str, Any]:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(timeout=30)
            errors = re.findall(r"^\w*Error: .*$", (self.folder / "mpi.log").read_text(), re.MULTILINE)
            raise RuntimeError(errors[-1] if errors else "the MPI ranks ended early")
        return json.loads(line)

    def ask(self, request: str) -> dict[str, Any]:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return self.read()

    def prepare(self, name: str) -> tuple[Timer, float]:
        if self.process is None or self.process.poll() is not None:
            self.start()
        return lambda: self.ask(f"run {name}")["seconds"], self.ask(f"error {name}")["error"]

    def stop(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=30)


def mpi_cases(child: MpiChild) -> Iterator[Case]:
    """On two ranks a pencil is a slab along the second dimension, transformed one dimension at a time."""
    for name, grid in (("slab", (2, 1, 1)), ("pencil", (1, 2, 1))):
        yield Case("mpi4py-fft PFFT", f"{name} {grid}", partial(child.prepare, name))


def all_cases(data: Data, child: MpiChild) -> list[Case]:
    return [*meshfft_cases(data), *jnp_cases(data), *jaxdecomp_cases(data), *mpi_cases(child)]
