"""Programs on virtual CPU devices run one at a time, so that no eager loop locks up XLA's collectives."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import PartitionSpec as P

import meshfft as mf

ROOT = Path(__file__).parents[2]
BIG = (96, 96, 96)  # a program of some milliseconds, a hundred times its launch


def _array(mesh: jax.sharding.Mesh) -> Any:
    rng = np.random.default_rng(0)
    return mf.shard(rng.standard_normal(BIG).astype("c8"), mesh, P("x", "y"))


@pytest.fixture
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("x", "y"))


CALLS: dict[str, Callable[[Any], Any]] = {
    "functions": mf.fftn,
    "out_spec": lambda x: mf.fftn(x, out_spec=P(None, "x", "y")),
    "shifts": mf.fftshift,
    "finer grids": lambda x: mf.truncate_spectrum(x, (48, 48, 48), kind="fft"),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_waits_for_the_one_before(name: str, mesh: jax.sharding.Mesh) -> None:
    """Catches calls that are only queued: XLA aborts the process after some thirty of them."""
    x = _array(mesh)
    jax.block_until_ready(CALLS[name](x))
    before = CALLS[name](x)
    jax.block_until_ready(x)
    after = CALLS[name](x)
    assert before.is_ready()
    np.testing.assert_array_equal(before, after)


def test_a_call_waits_for_its_input(mesh: jax.sharding.Mesh) -> None:
    """Catches a launch on top of the caller's own queued operations, which count against XLA's limit too."""
    y = _array(mesh)
    jax.block_until_ready(mf.fftn(y * 2))
    for _ in range(20):
        y = jnp.sin(y)
    mf.fftn(y)
    assert y.is_ready()


def test_eager_gradients_wait(mesh: jax.sharding.Mesh) -> None:
    """Catches a wait that sees only arrays, not those that `grad` has wrapped."""
    x, seen = _array(mesh), list[bool]()

    def loss(x: Array) -> Array:
        y = x
        for _ in range(10):
            y = jnp.sin(y)
        z = mf.fftn(y, spec=P("x", "y"))
        seen.append(y.primal.is_ready())  # type: ignore[attr-defined]
        return jnp.sum(jnp.abs(z))

    with jax.set_mesh(mesh):
        jax.grad(loss)(x)
        jax.block_until_ready(x)
        jax.grad(loss)(x)
    assert seen[1]


def test_results_may_be_deleted_or_donated(mesh: jax.sharding.Mesh) -> None:
    """Catches a wait for an array that its owner has given away."""
    x = _array(mesh)
    mf.fftn(x).delete()
    y = jax.jit(lambda y: y * 2, donate_argnums=0)(mf.fftn(x))
    z = mf.ifftn(mf.fftn(x), donate=True)
    np.testing.assert_array_equal(y, 2 * mf.fftn(x))
    np.testing.assert_allclose(z, x, atol=1e-5)


@pytest.mark.parametrize("axes", [None, ()])
def test_a_call_on_a_numpy_array_is_over_when_it_returns(axes: tuple[int, ...] | None) -> None:
    """Catches a result that changes when the caller writes to the array, whose memory the program reads."""
    size = 8 * np.prod(BIG)
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64  # as XLA wants memory that it does not copy
    x = memory[start : start + size].view("c8").reshape(BIG)
    x[:] = 1
    y = mf.fftn(x, axes=axes)
    x[:] = 2
    assert np.sum(np.abs(y)) == np.prod(BIG)


def test_a_new_shape_compiles_one_program(caplog: pytest.LogCaptureFixture) -> None:
    """Catches a separate program that only copies a NumPy array: it doubles the time of a first call."""
    with jax.log_compiles(), caplog.at_level("WARNING"):
        mf.ifft(np.ones((3, 37)))
    assert sum("Finished XLA compilation" in record.message for record in caplog.records) == 1, caplog.text


def test_programs_of_the_caller_have_no_token(mesh: jax.sharding.Mesh) -> None:
    """Catches a second result in programs that are not ours to launch."""
    assert "s8[0]" not in str(jax.jit(mf.fftn).lower(_array(mesh)).compile().as_text())


@pytest.mark.more
@pytest.mark.parametrize("only", ["a plan, there and back"])
def test_loops_end(only: str) -> None:
    """Catches the abort itself: results dropped, deleted, donated, fed back, in gradients and in threads."""
    _loops("1", "60", only)


@pytest.mark.slow
def test_loops_of_every_function_end() -> None:
    """As above, for all functions."""
    _loops("60", "40")


def _loops(*options: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name("loops_process.py")), *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "no abort" in ended.stdout
