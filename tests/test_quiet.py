"""Calls leave the terminal alone: the compiler warns of arrays larger than the chunks that it was told to use."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh

import meshfft as mf
from meshfft import walk

SHAPE = (128, 128, 64)  # 1 MiB a device, twice the least that chunks hold here


def _put(sizes: tuple[int, ...]) -> Array:
    spec = P(*"xyz"[: len(sizes)])
    return jax.device_put(jnp.ones(SHAPE, jnp.complex64), NamedSharding(mesh(sizes), spec))


def _plan(x: Array, **how: Any) -> mf.Plan:
    assert isinstance(x.sharding, NamedSharding)
    return mf.plan(x.shape, mesh=x.sharding.mesh, spec=x.sharding.spec, **how)


FFTN: Any = mf.fftn  # whose type says arrays alone
CALLS: dict[str, tuple[tuple[int, ...], Callable[[Array], Any]]] = {
    "planes": ((8,), lambda x: FFTN((x.real, x.imag))),
    "scaled": ((2, 2, 2), mf.ifftn),
    "a plan of planes": ((2, 4), lambda x: _plan(x, order="any")((x.real, x.imag))),
    "a longer transform": ((8,), lambda x: mf.fftn(x, s=(128, 192, 64))),
    "the Poisson equation": ((8,), mf.poisson),
    "a convolution": ((8,), lambda x: mf.convolve(x, x)),
    "a power spectrum": ((8,), mf.power_spectrum),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_call_prints(name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks smaller than an array of the program; that they are as small as can be makes small arrays tell."""
    monkeypatch.setattr(walk, "FINEST", 2**30)
    sizes, call = CALLS[name]
    x = _put(sizes)
    capfd.readouterr()
    jax.block_until_ready(call(x))
    assert capfd.readouterr() == ("", "")


def test_no_call_prints_at_the_size_of_chunks(capfd: pytest.CaptureFixture[str]) -> None:
    """Catches the same with the chunks that calls have: 4.2 MB a device, of planes as in README."""
    where = NamedSharding(mesh((8,)), P("x"))
    x = jax.device_put(np.ones((128, 128, 256), np.float32), where)
    capfd.readouterr()
    jax.block_until_ready(FFTN((x, 0 * x)))
    assert capfd.readouterr() == ("", "")
