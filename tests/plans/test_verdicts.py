"""Kernels are tried before their first use on TPU devices, and where one fails XLA's engine is taken.

CPU devices stand for TPUs here, and Pallas interprets the kernels.
"""

import dataclasses
import functools
import importlib.util
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.experimental import pallas as pl
from jax.sharding import AbstractDevice, AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import at_points, error, mesh, noise

import meshfft as mf
from meshfft import kept
from meshfft.collectives.all_to_all import Came, Ports, Rows
from meshfft.collectives.wires import Int16, Tiled, form_of
from meshfft.functions import calls
from meshfft.kept import Trial, failing
from meshfft.machine import topology as topologies
from meshfft.machine.chips import CHIPS
from meshfft.machine.topology import device_of, machine_of, placed, topology
from meshfft.nufft.grid.form import chosen
from meshfft.nufft.grid.window import window
from meshfft.plans import execute, request
from meshfft.tpu import gridding
from meshfft.tpu.engines import VectorFFT
from meshfft.tpu.lines import short
from meshfft.tpu.trials import RealTrial, of_lines, of_points

POD, SHAPE = "v5e:2x4", (16, 8, 8)  # eight devices; kernels of 8 and 16 points
ROOM = 15 * 2**20
PLANS: dict[str, Any] = {"method": "transpose", "axes": (0,), "order": "any"}


@dataclasses.dataclass(frozen=True)
class Doubling:
    """A kernel of one line, and its defect."""

    name: str = "doubling"
    fault: str = ""
    bound: float = 1e-7

    def given(self) -> list[np.ndarray]:
        return [np.arange(8, dtype=np.float32)]

    def found(self, *arrays: Array, interpret: bool) -> Sequence[Array]:
        def kernel(source: Any, target: Any) -> None:
            if self.fault == "raises":
                raise NotImplementedError("no such instruction\nand more")
            target[...] = source[...] * (
                np.float32("nan") if self.fault == "nan" else 2 + (self.fault == "wrong") * 1e-5
            )

        return [pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8,), np.float32), interpret=interpret)(*arrays)]

    def exact(self, *arrays: Array) -> Sequence[Any]:
        if self.fault == "no memory":
            raise RuntimeError("RESOURCE_EXHAUSTED")
        return [np.asarray(x, float) * 2 for x in arrays]


def forget() -> None:
    """As in another process."""
    for cache in (kept._verdict, execute._check_kernels, request._by_sharding, calls._plans):
        cache.cache_clear()
    jax.clear_caches()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No verdict is known, and none is left."""
    forget()
    yield
    forget()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for compiled programs."""
    wanted = {"jax_compilation_cache_dir": str(tmp_path), "jax_enable_compilation_cache": True}
    before = {name: jax.config.values[name] for name in wanted}
    for name, value in wanted.items():  # a command that another test ran may have disabled the cache
        jax.config.update(name, value)
    yield tmp_path / "meshfft-kernels"
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture
def tpus() -> Iterator[None]:
    """Plans for a pod, with the first CPU device in place of a TPU."""
    here = jax.devices()[0]

    def machine(mesh: Any, platform: str | None = None) -> Any:
        sizes = tuple(mesh.shape.values())
        return dataclasses.replace(placed(topology(POD), sizes, tuple(mesh.shape)), device=here)

    with (
        mock.patch.object(topologies, "device_of", lambda chip, mesh, platform=None: here),
        mock.patch.object(execute, "device_of", lambda chip, mesh, platform=None: here),
        mock.patch.object(request, "machine_of", machine),
    ):
        yield


def wrong(transform: Callable[..., None]) -> Callable[..., None]:
    """The body of a kernel whose real parts are off by 1e-5."""

    def body(job: Any, tables: Any, source: Any, scratch: Any, target: Any) -> None:
        transform(job, tables, source, scratch, target)
        target[0][...] = target[0][...] * np.float32(1 + 1e-5)

    return body


def raising(*_: Any) -> None:
    raise NotImplementedError("no such instruction")


def tried() -> Any:
    """Counts trials."""
    return mock.patch.object(kept, "_tried", wraps=kept._tried)


def _plan(**options: Any) -> mf.Plan:
    return mf.plan(SHAPE, mesh=mesh((8,)), topology=POD, **{**PLANS, **options})


@pytest.mark.quick(1, 2, 3)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong", "is wrong: relative error"),
        ("nan", "is wrong: relative error nan"),
        ("raises", "does not compile (NotImplementedError no such instruction)"),
        ("no memory", "cannot be run (RuntimeError RESOURCE_EXHAUSTED)"),
    ],
)
def test_a_kernel_that_fails_is_named_once(fault: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """Catches a NaN that no comparison finds, an error that ends the user's program, and a warning at every call."""
    device = jax.devices()[0]
    for _ in range(3):
        assert failing([Doubling(), Doubling("bad", fault)], device) == ("bad",)
    (record,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    text = record.getMessage()
    assert record.name == "meshfft" and "bad" in text and said in text and "mf.cache()" in text and "more" not in text


def test_a_verdict_is_kept_beside_compiled_programs(folder: Path) -> None:
    """Catches a second trial in a later process, the verdict on another kernel, one from a damaged file, and one that
    only this moment's memory explains.
    """
    device, many = jax.devices()[0], [Doubling(), Doubling("bad", "wrong"), Doubling("large", "no memory")]
    with tried() as trials:
        for count in (3, 4):
            kept._verdict.cache_clear()  # as in a later process
            assert failing(many, device) == ("bad", "large")
            assert trials.call_count == count, "only what could not be run is tried again"
        files = sorted(folder.glob("*.json"))
        facts = [json.loads(file.read_text()) for file in files]
        assert sorted(one["kernel"] for one in facts) == ["bad", "doubling"]
        assert all(one["device"] == device.device_kind and one["jax"] == jax.__version__ for one in facts)
        files[0].write_text("{")
        kept._verdict.cache_clear()
        assert failing(many[:2], device) == ("bad",) and trials.call_count == 5
        kept._verdict.cache_clear()
        with mock.patch.object(kept, "__version__", "another"):
            assert failing(many[:2], device) == ("bad",) and trials.call_count == 7


@pytest.mark.more
def test_another_process_takes_a_kept_verdict(folder: Path) -> None:
    """Catches a key that differs from process to process, such as one made of hash(). The child tries nothing: there
    the same kernel is a good one, and still fails.
    """
    assert failing([Doubling("bad", "wrong")], jax.devices()[0]) == ("bad",)
    here = Path(__file__).parent
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]; import jax\n"
        "from test_verdicts import Doubling, failing; print(failing([Doubling('bad')], jax.devices()[0]))"
    )
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder.parent), "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [sys.executable, "-c", program, str(here), str(here.parent)], env=environment, capture_output=True, text=True
    )
    assert run.stdout.strip() == "('bad',)", run.stderr


def test_where_nobody_can_write_it_is_kept_for_the_process(folder: Path) -> None:
    """Catches a full disk, or a bucket, that ends the user's program."""
    device = jax.devices()[0]
    for place in ("gs://bucket/programs", "/proc/nowhere"):
        jax.config.update("jax_compilation_cache_dir", place)
        kept._verdict.cache_clear()
        with tried() as trials, warnings.catch_warnings(action="ignore"):  # JAX's own, of such folders
            assert [failing([Doubling()], device), failing([Doubling()], device)] == [(), ()]
        assert trials.call_count == 1 and not Path("gs:").exists()


def test_good_kernels_stay(tpus: None, caplog: pytest.LogCaptureFixture) -> None:
    """Catches trials that good kernels fail, and a second trial for a second plan."""
    with tried() as trials:
        plan = _plan()
        count = trials.call_count
        assert count and "(vector)" in plan.name and not plan.machine.failed
        assert _plan(inverse=True).machine.failed == () and trials.call_count == count, "the way back is tried at once"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING] and "failed" not in str(plan)


@pytest.mark.quick(1)
@pytest.mark.parametrize("broken", [wrong(short.transform_columns), raising])
def test_a_broken_kernel_is_left_to_xla(tpus: None, broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Catches a plan with a kernel that is wrong or cannot be compiled, a plan that does not report it, and wrong
    values."""
    x = noise(SHAPE, seed=1)
    with mock.patch.object(short, "transform_columns", broken):
        plan = _plan()
        again = _plan(inverse=True)
    assert "vector" not in plan.name + again.name
    assert [name.split(" ")[0] for name in plan.machine.failed] == ["fft_first_16"]
    words = " ".join(str(plan).split())
    assert "XLA's engine, as kernels failed here: fft_first_16 of" in words
    assert plan.to_dict()["failed_kernels"] == list(plan.machine.failed)
    warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(warnings) == 1 and "fft_first_16" in warnings[0]
    y = mf.gather(jax.jit(plan)(mf.shard(x, mesh((8,)), plan.in_layout.spec)))
    assert error(y, np.fft.fft(x, axis=0)) <= 2e-7


@pytest.mark.more
def test_first_use_while_jax_traces(tpus: None) -> None:
    """Catches a trial that becomes part of the user's program, or that JAX refuses there: in jit, vmap, grad, shard_map
    and under a mesh that is set.
    """
    where, x = mesh((8,)), noise(SHAPE, seed=2)
    spec = P("x")
    xs = jax.device_put(x, NamedSharding(where, spec))
    transform = functools.partial(mf.fft, axis=0, spec=spec, method="transpose")

    def loss(x: Array) -> Array:
        return jnp.sum(jnp.abs(transform(x)) ** 2)

    inside: Any = jax.shard_map(transform, mesh=where, in_specs=spec, out_specs=spec)
    mapped: Any = jax.vmap(transform)

    for traced, given in ((transform, xs), (jax.grad(loss), xs), (inside, xs), (mapped, xs[None])):
        forget()
        with tried() as trials, jax.set_mesh(where):
            text = jax.jit(traced).lower(given).as_text()
        assert trials.call_count and "callback" not in text
    with mock.patch.object(short, "transform_columns", wrong(short.transform_columns)), jax.set_mesh(where):
        forget()
        assert error(jax.jit(transform)(xs), np.fft.fft(x, axis=0)) <= 2e-7
        assert any("fft_first_16" in name for name in _plan().machine.failed)


@pytest.mark.slow
def test_broken_kernels_of_scattered_points_are_left_to_xla(tpus: None) -> None:
    """Catches kernels that no trial knows of, points in the tiles of a kernel that is not used, and values; of points
    that are known or traced, and of type 3.
    """
    where, x, rng = mesh((8,)), noise((16, 16), seed=3), np.random.default_rng(4)
    turns, positions = rng.uniform(-0.5, 0.5, (64, 2)), rng.uniform(-3, 3, (64, 2))
    points, xs = mf.Scattered.turns(turns), jax.device_put(x, NamedSharding(where, P("x")))
    values = jax.device_put(noise((64,), seed=5), NamedSharding(where, P("x")))

    def at_traced(x: Array, turns: Array) -> Array:
        return mf.nufftn(x, mf.Scattered.turns(turns), tol=1e-3, spec=P("x"))

    with mock.patch.object(short, "transform_columns", raising), mock.patch.object(gridding, "interpolated", raising):
        plan = mf.scattered_plan(x.shape, points, mesh=where, topology=POD, tol=1e-3)
        there = jax.jit(lambda x: mf.nufftn(x, points, tol=1e-3, spec=P("x")))(xs)
        traced = jax.jit(at_traced)(xs, turns)
        third = jax.jit(lambda c: mf.nufftn_type3(c, positions, points, tol=1e-3, spec=P("x")))(values)
    assert "(tiles" in plan.walk.name and "XLA's engine" in str(plan)
    assert any(name.startswith("points_interpolate") for name in plan.machine.failed)
    exact = at_points(x, turns)
    assert error(there, exact) <= 1e-3 and error(traced, exact) <= 1e-3
    assert error(third, np.exp(-2j * np.pi * turns @ positions.T) @ np.asarray(values)) <= 1e-3


def test_a_plan_of_a_described_mesh_is_refused_where_its_kernels_fail(tpus: None) -> None:
    """Catches a plan that was made where nothing could be tried, and runs by a broken kernel."""
    where, spec = mesh((8,)), P("x")
    described = AbstractMesh((8,), ("x",))
    with mock.patch.object(topologies, "device_of", lambda *_: None):
        plan = mf.plan(SHAPE, mesh=described, topology=POD, **PLANS)
    assert "(vector)" in plan.name
    with (
        mock.patch.object(short, "transform_columns", wrong(short.transform_columns)),
        pytest.raises(RuntimeError, match=r"failed their trials on v5e: fft_first_16 .*: plan on a Mesh"),
    ):
        plan(jax.device_put(noise(SHAPE), NamedSharding(where, spec)))


def test_nothing_is_tried_without_tpu_devices() -> None:
    """Catches trials on CPUs, GPUs, and pods that are only described, and a runtime that planning starts."""
    kind = AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    described = AbstractMesh((2, 2), ("x", "y"), abstract_device=kind)
    with tried() as trials:
        mf.fftn(jax.device_put(noise((8, 8)), NamedSharding(mesh((8,)), P("x"))))
        names = ("devices", "local_devices", "default_backend")
        with mock.patch.multiple(jax, **dict.fromkeys(names, mock.Mock(side_effect=AssertionError("started")))):
            plans = [
                mf.plan((64, 64, 64), mesh=described),
                mf.plan((64, 64, 64), topology="v5e:2x2"),
                mf.plan((64, 64, 64), topology="h100:8"),
                mf.plan((64, 64, 64), mesh=described, topology="v5e:2x2"),
            ]
        assert not trials.call_count and all(plan.machine.device is None for plan in plans)
        assert [plan.machine.chip.name for plan in plans] == ["v5e", "v5e", "h100", "v5e"]
    assert [machine_of(mesh((8,))).device, device_of(CHIPS["v5e"], described, "cpu")] == [None, None]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason='needs the TPU compiler: pip install ".[tpu]"')
def test_devices_of_a_described_pod_are_none() -> None:
    """Catches a trial on devices that the TPU compiler describes."""
    program = (
        "import numpy as np; from jax.experimental import topologies; from jax.sharding import Mesh\n"
        "from meshfft.machine.topology import machine_of\n"
        "devices = topologies.get_topology_desc(topology_name='v5e:2x2', platform='tpu').devices\n"
        "machine = machine_of(Mesh(np.array(devices), ('x',))); print(machine.chip.name, machine.device)"
    )
    environment = {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    run = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True)
    assert run.stdout.strip() == "v5e None", run.stderr


WINDOW = window(1e-3, 2.0, 2, np.dtype("complex64"))
TRIALS: dict[str, Callable[[], Sequence[Trial]]] = {
    "first, in another order": lambda: of_lines((16, 12, 128), (1,), ROOM),
    "to parts": lambda: of_lines((2, 8, 16), (1,), ROOM, Ports(Rows(0, 1, 1), None, (1, 2))),
    "from pieces": lambda: of_lines((16, 8, 128), (0,), ROOM, Ports(came=Came(0, 0, 2, 1))),
    "real lines": lambda: [RealTrial((3, 8), 1, ROOM)],
    "wire": lambda: VectorFFT(ROOM).form_trials(cast(Tiled, form_of((2, 32, 8, 128), 1, Int16(room=ROOM)))),
    "points": lambda: of_points(1, (60, 70), chosen(window(1e-3, 2.0, 2, np.dtype("complex64")), 0, (57, 67), "tpu")),
}


@pytest.mark.quick(0)
@pytest.mark.parametrize("name", slow_but(("first, in another order", "from pieces"), TRIALS))
def test_every_kind_of_kernel_passes_its_trial(name: str) -> None:
    """Catches a truth of another layout, sign or scale than the kernel's, by which a good kernel would be left out."""
    trials = TRIALS[name]()
    assert trials and failing(trials, jax.devices()[0]) == ()
