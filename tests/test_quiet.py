"""Calls print nothing: the compiler warns of arrays larger than the chunks that it was asked to use."""

import os
import re
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
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import mesh

import meshfft as mf
from meshfft.walks import walk

pytestmark = pytest.mark.optimised

ROOT = Path(__file__).parent.parent
COMMANDS = """
from meshfft.cli.app import app
np.save("field.npy", np.asarray(x, np.complex64))
app(["transform", "field.npy", "out.npy", "--mesh", "2,2,2"], standalone_mode=False)
app(["transform", "field.npy", "passes.npy", "--mesh", "8", "--memory", "100MB"], standalone_mode=False)
app(["plan", "256,256,256", "--mesh", "2,4"], standalone_mode=False)
"""
SHAPE = (128, 128, 64)  # 1 MiB a device, twice the least that chunks hold here


def _put(sizes: tuple[int, ...]) -> Array:
    spec = P(*"xyz"[: len(sizes)])
    return jax.device_put(jnp.ones(SHAPE, jnp.complex64), NamedSharding(mesh(sizes), spec))


def _plan(x: Array, **how: Any) -> mf.Plan:
    assert isinstance(x.sharding, NamedSharding)
    return mf.plan(x.shape, mesh=x.sharding.mesh, spec=x.sharding.spec, **how)


def _in_own_jit(x: Array) -> Any:
    plan = _plan(x)
    return jax.jit(plan, compiler_options=plan.compiler_options)((x.real, x.imag))


def _of_real(name: str) -> Callable[[Array], Any]:
    return lambda x: getattr(mf, name)(x.real)


COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "hfft", "irfft", "hfft2", "irfft2", "hfftn", "irfftn")
REAL = ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")
COSINES = ("dct", "idct", "dctn", "idctn", "dst", "idst", "dstn", "idstn")
OTHERS = ("fftshift", "ifftshift", "poisson", "power_spectrum", "gather")
JITTER = mf.Points.turns((np.arange(SHAPE[2]) + 0.2 * np.sin(np.arange(SHAPE[2]))) / SHAPE[2])
ANYWHERE = mf.Scattered.turns(np.random.default_rng(0).uniform(-0.5, 0.5, (4000, 3)))
FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    **{name: getattr(mf, name) for name in (*COMPLEX, *OTHERS)},
    **{name: _of_real(name) for name in (*REAL, *COSINES)},
    "kdftn": lambda x: mf.kdftn(x, [None, None, JITTER]),
    "ikdftn": lambda x: mf.ikdftn(x, [None, None, JITTER]).value,
    "apply_separable": lambda x: mf.apply_separable([np.ones((32, 128), np.float32), None, None], x),
    "derivative": lambda x: mf.derivative(x, (0, 1)),
    "halo": lambda x: mf.halo(x, 2),
    "add_halo": lambda x: mf.add_halo(x, 1),
    "helmholtz": lambda x: mf.helmholtz(x, -1.0),
    "convolve": lambda x: mf.convolve(x, np.ones((5, 5, 5), np.float32), mode="same"),
    "correlate": lambda x: mf.correlate(x, x),
    "cross_spectrum": lambda x: mf.cross_spectrum(x, x.real),
    "multiply_spectrum": lambda x: mf.multiply_spectrum(x, lambda k, q, p: jnp.exp(-(k**2 + q**2 + p**2))),
    "pad_spectrum": lambda x: mf.pad_spectrum(x, (192, 192, 96), kind="fft"),
    "truncate_spectrum": lambda x: mf.truncate_spectrum(x, (64, 64, 32), kind="fft"),
    "plan": lambda x: (made := _plan(x, order="any")).inverse(made(x)),
    "nufftn": lambda x: mf.nufftn(x, ANYWHERE),
    "nufftn_adjoint": lambda x: mf.nufftn_adjoint(mf.nufftn(x, ANYWHERE), ANYWHERE, x.shape),
    "nufftn_type3": lambda x: mf.nufftn_type3(x.ravel()[:4000], ANYWHERE.coords, ANYWHERE),
    "scattered_plan": lambda x: (made := mf.scattered_plan(x.shape, ANYWHERE, mesh=mesh((8,)), spec=P("x"))).normal(
        made.density()
    )(x),
    "wavenumbers": lambda x: mf.wavenumbers(_plan(x)),
    "shard": lambda x: mf.shard(np.ones((125, 128, 64), np.complex64), mesh((8,)), P("x")),
}
SPARED = (
    *("Passes", "PowerSpectrum", "Solution", "BlockMatrix", "PaddedArray", "Plan", "Points"),  # types
    *("Scattered", "ScatteredPlan", "Reconstruction"),
    *(
        "fftfreq",
        "rfftfreq",
        "next_fast_len",
        "out_spec",
        "passes",
        "one_shuffle",
        "cache",
    ),  # no arrays, or within a program
    "reconstruct",  # plans of scattered points, many times
    *("array_api", "jnp_fft", "scipy_backend"),  # the same functions
)
VARIANTS: dict[str, tuple[tuple[int, ...], Callable[[Array], Any]]] = {
    "planes": ((8,), lambda x: mf.fftn((x.real, x.imag))),
    "scaled": ((2, 2, 2), mf.ifftn),
    "integers": ((8,), lambda x: mf.fftn(x.real.astype(np.int32))),
    "moved": ((8,), lambda x: mf.fftn(x, out_spec=P(None, "x"))),
    "a plan of planes": ((2, 4), lambda x: _plan(x, order="any")((x.real, x.imag))),
    "the adjoint": ((2, 4), lambda x: _plan(x).adjoint(x)),
    "planes in a jit of one's own": ((8,), _in_own_jit),
    "a gradient": ((8,), jax.grad(lambda x: jnp.sum(jnp.abs(mf.fftn(x, spec=P("x"))) ** 2))),
    "a longer transform": ((8,), lambda x: mf.fftn(x, s=(128, 192, 64))),
    "a padded array": ((8,), lambda x: mf.fftn(FUNCTIONS["shard"](x)).stored),
    "the Poisson equation of planes": ((2, 4), lambda x: mf.poisson((x.real, x.imag))),
}
CALLS = {**{name: ((8,), call) for name, call in FUNCTIONS.items()}, **VARIANTS}
QUICK = ("fft", "fftn", "irfftn", "dctn", "kdftn", "poisson", "power_spectrum", "fftshift", *VARIANTS)


def test_no_function_is_forgotten() -> None:
    """Catches a function that is made public and not called here."""
    assert sorted((*FUNCTIONS, *SPARED)) == mf.__all__


@pytest.mark.quick(14)
@pytest.mark.parametrize("name", slow_but(QUICK, CALLS))
def test_no_call_prints(name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks smaller than an array of the program; chunks are set to the minimum so that small arrays
    suffice."""
    monkeypatch.setattr(walk, "FINEST", 2**30)
    sizes, call = CALLS[name]
    x = _put(sizes)
    capfd.readouterr()
    jax.block_until_ready(jax.tree.leaves(call(x)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_no_call_prints_at_the_size_of_chunks(capfd: pytest.CaptureFixture[str]) -> None:
    """Catches the same with the chunks that calls have: 4.2 MB a device, of planes as in README."""
    where = NamedSharding(mesh((8,)), P("x"))
    x = jax.device_put(np.ones((128, 128, 256), np.float32), where)
    capfd.readouterr()
    jax.block_until_ready(mf.fftn((x, 0 * x)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_no_line_of_the_readme_prints(tmp_path: Path) -> None:
    """Catches a block that fails, and a warning at the sizes that are shown: 256^3, by calls and by commands."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 4
    script = "\n".join((*blocks, COMMANDS))
    path = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "per device" in ran.stdout
