"""Local FFTs by kernels of a TPU's vector unit, as steps of a walk: on CPU devices, with the real collectives."""

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AbstractMesh
from jax.typing import ArrayLike
from marks import slow_but
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.kernels.vector import engine
from meshfft.machine.chip import TPUS, Chip
from meshfft.machine.machine import topology
from meshfft.steps import local_fft, pipeline

POD = "v3:2x2"  # eight devices
Options = dict[str, Any]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Options]] = {
    "slab": ((16, 64, 8), (8,), {}),
    "slab, any order": ((32, 16, 16), (8,), {"order": "any"}),
    "pencil": ((16, 24, 16), (2, 4), {}),
    "pencil, any order, back": ((8, 16, 24), (4, 2), {"order": "any", "inverse": True}),
    "one plane": ((48, 64), (8,), {}),
    "uneven": ((16, 13, 9), (8,), {"axes": (0,)}),
    "cropped and padded": ((16, 12, 8), (8,), {"s": (16, 8, 24)}),
    "block": ((16, 8, 24), (2, 2, 2), {"order": "any"}),
    "a length without a kernel": ((16, 22, 8), (8,), {}),
}
QUICK = ("slab", "pencil, any order, back", "uneven")


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """The kernels themselves, as Pallas interprets them."""
    jax.clear_caches()
    with contextlib.ExitStack() as patches:
        for where, name in ((engine, "fft"), (local_fft, "fft_of_pieces"), (pipeline, "fft_to_parts")):
            by_kernels = functools.partial(getattr(where, name), interpret=True)
            patches.enter_context(mock.patch.object(where, name, by_kernels))
        yield
    jax.clear_caches()


@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_kernels_in_a_walk_are_xlas_ffts(name: str) -> None:
    """Catches chunks that arrive out of order, a part sent to the wrong device, planes exchanged, a sign, padding read,
    an adjoint that is none, and collectives that no plan printed.
    """
    shape, sizes, options = CASES[name]
    where, x = mesh(sizes), noise(shape, seed=1)
    how: Options = {"mesh": where, "topology": POD, "method": "transpose", **options}
    plan, plain = (mf.plan(shape, engine=engine, **how) for engine in ("auto", "xla"))
    assert "(vector)" in plan.name and "vector" not in plain.name
    w = noise(plan.out_shape, seed=2)
    xs, ws = mf.shard(x, where, plan.in_layout.spec), mf.shard(w, where, plan.out_layout.spec)
    run = jax.jit(plan).lower(xs).compile()
    assert collectives(run) == plan.collectives
    y, back = run(xs), jax.jit(plan.adjoint)(ws)
    s, axes = options.get("s"), options.get("axes", range(x.ndim))
    expected = np.fft.ifftn(x) if "inverse" in options else np.fft.fftn(x, s=s, axes=axes)
    assert error(mf.gather(y), expected) <= 3e-7, plan.name
    there, again = np.vdot(w, expected), np.vdot(mf.gather(back), x)
    assert abs(there - again) <= 1e-6 * np.linalg.norm(w) * np.linalg.norm(expected)


@pytest.mark.parametrize("chip", TPUS, ids=lambda chip: chip.name)
def test_a_tpus_plan_takes_kernels_by_price_and_says_so(chip: Chip) -> None:
    """Catches kernels that are never chosen, or chosen for lengths without any, and a switch that turns nothing off."""
    pod = topology(f"{chip.name}:{'x'.join('224'[: len(chip.torus)])}")
    where = AbstractMesh((pod.devices,), ("x",))
    shape = (256 if chip in TPUS[:3] else 512,) * 3  # fast memory of the first ones is small
    plan, plain = (mf.plan(shape, mesh=where, topology=pod, engine=engine) for engine in ("auto", "xla"))
    assert str(plan).count("(vector)") == 2 and "vector" not in plain.name
    assert plan.seconds is not None and plain.seconds is not None and plan.seconds < plain.seconds
    assert plan.work.flops == round(15 * math.log2(shape[0]) * math.prod(shape) / pod.devices)
    awkward = mf.plan((64, 8191, 256), mesh=where, topology=pod, axes=(1, 2), order="any").name
    assert "fft Z (vector)" in awkward and "fft Y (chirp)" in awkward


def test_an_engine_that_there_is_none_of() -> None:
    """Catches a name that is taken for another."""
    with pytest.raises(ValueError, match="engine 'fftw' is unknown: use one of 'auto', 'xla'"):
        mf.plan((8, 8), engine="fftw")
    assert mf.plan((64, 64, 64), mesh=mesh((8,)), engine="xla", method="transpose").name.count("(xla)") == 2
    assert error(np.asarray(mf.fftn(noise((8, 6)), engine="xla")), np.fft.fftn(noise((8, 6)))) <= 3e-7


def test_kernels_are_linear() -> None:
    """Catches a kernel without a rule for gradients, one that is not the transpose, and a batch along another axis."""
    planes, cts = (tuple(noise((2, 16, 3), "float32", seed=seed) for seed in seeds) for seeds in ((0, 1), (2, 3)))

    def run(re: ArrayLike, im: ArrayLike) -> tuple[Array, ...]:
        return engine.fft((jnp.asarray(re), jnp.asarray(im)), (1,), -1)

    there, back = jax.vjp(run, *planes)
    pairs = zip((*there, *planes), (*cts, *back(cts)), (1, 1, -1, -1), strict=True)
    assert abs(sum(sign * np.vdot(a, b) for a, b, sign in pairs)) <= 1e-5 * np.linalg.norm(there[0]) * np.linalg.norm(
        cts
    )
    changed = jax.jvp(run, planes, cts)[1]
    many = jax.vmap(run, (1, 1), 1)(*(np.stack(pair, 1) for pair in zip(planes, cts, strict=True)))
    for alone, together, change in zip(there, many, changed, strict=True):
        assert error(np.asarray(together[:, 0]), np.asarray(alone)) <= 1e-6
        assert error(np.asarray(together[:, 1]), np.asarray(change)) <= 1e-6
