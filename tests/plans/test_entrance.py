"""The one way in: request, plan, execute."""

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.plans.plan import Plan

HOME = str(Path(mf.__file__).parent)


def entered(x: Any) -> list[str]:
    """The file of each function of meshfft that a call enters, in order."""
    files = list[str]()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(HOME):
            files.append(name)

    sys.setprofile(seen)
    try:
        mf.fftn(x)
    finally:
        sys.setprofile(None)
    return files


@pytest.mark.parametrize("sizes", [(), (8,), (2, 4)], ids=str)
def test_a_call_like_one_before_enters_few_files(sizes: tuple[int, ...]) -> None:
    """Catches work that every call repeats: that is the cost of a call beyond its compiled program."""
    x = jax.numpy.asarray(noise((16, 16, 16)))
    if sizes:
        x = jax.device_put(x, NamedSharding(mesh(sizes), P("x", "y"[: len(sizes) - 1] or None)))
    mf.fftn(x)
    files = entered(x)
    turns = sum(one != other for one, other in itertools.pairwise(["", *files]))
    assert len({*files}) <= 13 and turns <= 23 and len(files) <= (34 if sizes else 27), files


@pytest.mark.parametrize(("kind", "n"), [(AxisType.Auto, 8), (AxisType.Explicit, 7)])
def test_arrays_in_the_hosts_memory_are_taken(kind: AxisType, n: int) -> None:
    """Catches an array in pinned memory that meets constants in a device's, outside of `jit` and inside."""
    host, where, spec = noise((n, 8), "float32"), mesh((2, 4), kind), P("x", "y")
    near = mf.shard(host, where, spec)
    x = jax.tree.map(lambda v: jax.device_put(v, v.sharding.with_memory_kind("pinned_host")), near)
    plan = mf.plan(host.shape, mesh=where, spec=spec)
    gradient = jax.jit(jax.grad(lambda x: (mf.derivative(x, 0) ** 2).sum()))
    with jax.set_mesh(where):
        for call in (plan, lambda x: mf.convolve(x, x), gradient):
            assert error(mf.gather(call(x)), mf.gather(call(near))) <= 1e-6


def test_functions_run_the_plan_that_plan_returns() -> None:
    """Catches a second way from arguments to walks."""
    where = mesh((2, 4))
    x = jax.device_put(noise((16, 16, 16)), NamedSharding(where, P("x", "y")))
    with mock.patch.object(Plan, "execute", autospec=True, side_effect=Plan.execute) as execute:
        mf.fftn(x, axes=(0, -1))
        mf.ifftn(x, norm="ortho", order="any")
    ran = [call.args[0] for call in execute.call_args_list]
    assert ran[0] is mf.plan(x.shape, mesh=where, spec=P("x", "y"), axes=[0, 2])
    assert ran[1] == mf.plan(x.shape, mesh=where, spec=P("x", "y"), norm="ortho", order="any", inverse=True)


@pytest.mark.parametrize("axes", [(1.0,), (True,), [[0]], ("0",)], ids=str)
def test_a_plan_that_is_kept_hides_no_refusal(axes: Any) -> None:
    """Catches arguments that are equal as keys but are not integers."""
    x = jax.numpy.asarray(noise((4, 6)))
    mf.fftn(x, axes=(1,))
    mf.fftn(x, axes=(0,))
    with pytest.raises(TypeError, match="axes is"):
        mf.fftn(x, axes=axes)
    with pytest.raises((TypeError, ValueError), match="norm"):
        mf.fftn(x, norm=["ortho"])  # type: ignore[call-overload]
    found: Any = mf.fftn(x, axes=np.array([1]))  # type: ignore[call-overload]
    assert error(found, np.fft.fft(np.asarray(x), axis=1)) <= 1e-6


def test_a_plan_that_is_kept_follows_the_types_that_are_on() -> None:
    """Catches integers computed in 32 bits because a call before was, when 64-bit types were off."""
    x = np.arange(8)  # of 64 bits where JAX has them
    assert mf.fft(x).dtype == np.complex64
    with jax.enable_x64(True):
        assert mf.fft(x).dtype == np.complex128
    assert mf.fft(x).dtype == np.complex64
