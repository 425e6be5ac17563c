"""donate=True: the result takes the storage of the array, wherever it can, and is refused by name where it cannot."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf

SHAPE = (16, 8, 24)
PROCESS = """
import json, sys
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp, meshfft as mf
from jax.sharding import NamedSharding, PartitionSpec as P
where = NamedSharding(jax.make_mesh((2, 4), ("x", "y")), P("x", "y"))
x = jax.jit(lambda: jnp.ones((256, 256, 256), "complex64"), out_shardings=where)()
for _ in range(3):
    x = mf.fftn(x, norm="ortho", donate=bool(int(sys.argv[1]))).block_until_ready()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # rusage knows the parent's too
print(json.dumps(int(peak.split()[1]) / 1024))
"""


def sharded(host: np.ndarray, sizes: tuple[int, ...], spec: P) -> Any:
    """An array that JAX alone holds: one made of a NumPy array may share its memory, and is then not given away."""
    return mf.shard(host, mesh(sizes), spec) * 1


def storage(y: Any) -> set[int]:
    """The addresses of all blocks."""
    parts: list[Any] = [getattr(part, "stored", part) for part in (y if isinstance(y, tuple) else (y,))]
    return {shard.data.unsafe_buffer_pointer() for part in parts for shard in part.addressable_shards}


@pytest.mark.quick(0)
@pytest.mark.parametrize(
    ("function", "shape", "sizes", "spec"),
    [
        (mf.fftn, SHAPE, (8,), P("x")),
        (mf.fftn, (128, 128, 128), (2, 4), P("x", "y")),  # blocks whose chunks are not packed
        (mf.ifftn, (13, 1, 15), (2, 2, 2), P("x", "y", "z")),  # padded
        (lambda x, **how: mf.fftn(x, order="any", **how), SHAPE, (2, 4), P("x", "y")),
        (lambda x, **how: mf.fftn(x, axes=(0, 0), **how), SHAPE, (2, 4), P("x", "y")),
        (lambda x, **how: mf.fftn(x, method="kdft", **how), SHAPE, (8,), P("x")),
    ],
    ids=["slab", "pencil", "padded", "any", "twice", "kdft"],
)
def test_result_in_the_storage_of_the_array(
    function: Callable[..., Any], shape: tuple[int, ...], sizes: tuple[int, ...], spec: P
) -> None:
    """Catches an array that is copied though it was given, one overwritten too early, and one taken ungiven."""
    host = noise(shape)
    x = sharded(host, sizes, spec)
    truth = function(x)
    given = storage(x)
    assert storage(truth).isdisjoint(given)
    y = function(x, donate=True)
    assert getattr(x, "stored", x).is_deleted() and storage(y) == given
    np.testing.assert_array_equal(np.asarray(y), np.asarray(truth))


def test_planes_cosines_and_plans() -> None:
    """Catches storage that two planes, a real array, a plan, its inverse or its adjoint do not donate."""
    host, spec = noise(SHAPE), P("x", "y")
    re, im = (sharded(part, (2, 4), spec) for part in (host.real.copy(), host.imag.copy()))
    given = storage((re, im))
    y: Any = mf.fftn((re, im), donate=True)
    assert storage(y) == given and error(np.asarray(y.re) + 1j * np.asarray(y.im), dft(host, (0, 1, 2))) < 4e-7
    x = sharded(host.real.copy(), (2, 4), spec)
    given = storage(x)
    assert storage(mf.dctn(x, donate=True)) == given
    plan, x = mf.plan(SHAPE, mesh=mesh((2, 4)), spec=spec), sharded(host, (2, 4), spec)
    given = storage(x)
    back = plan.inverse(plan(x, donate=True), donate=True)
    assert storage(back) == given and error(back, host) < 4e-7
    assert storage(plan.adjoint(back, donate=True)) == given and back.is_deleted()


def test_nothing_is_taken_that_is_not_ones_to_give() -> None:
    """Catches what NumPy shares or JAX traces, overwritten."""
    host = noise((64, 64))
    kept = host.copy()
    truth = np.asarray(mf.fftn(jnp.asarray(host)))
    assert error(mf.fftn(host, donate=True), truth) == 0
    np.testing.assert_array_equal(host, kept)
    x = jnp.asarray(host) * 1
    view = np.asarray(x)
    assert error(mf.fftn(x, donate=True), truth) == 0
    np.testing.assert_array_equal(view, kept)
    x = jnp.asarray(host) * 1
    jax.jit(lambda: mf.fftn(x, donate=True))()
    jax.jit(lambda x: mf.fftn(x, donate=True))(x)
    jax.grad(lambda x: jnp.abs(mf.fftn(x, donate=True)).sum())(x)
    jax.vmap(lambda x: mf.fftn(x, donate=True))(x)
    np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize("shape", [SHAPE, (15, 7, 23)], ids=["even", "padded"])
def test_what_was_given_away_is_refused_by_name(shape: tuple[int, ...]) -> None:
    """Catches XLA's message, or an abort, if an array is used again after donate=True."""
    plan = mf.plan(shape, mesh=mesh((2, 4)))
    calls: list[Callable[[Any], Any]] = [mf.fftn, mf.rfftn, mf.fftshift, mf.power_spectrum, mf.dctn, plan]
    for x in (sharded(noise(shape), (2, 4), P("x", "y")), jnp.asarray(noise(shape)) * 1):
        mf.fftn(x, donate=True)
        for call in calls:
            with pytest.raises(ValueError, match=r"the array of shape \(1.* is deleted: a call with donate=True"):
                call(x)


def test_what_cannot_share_storage_is_refused() -> None:
    """Catches a donation that has no effect, or deletes an array for nothing."""
    where = NamedSharding(mesh((8,)), P("x"))
    x, z = (jax.device_put(noise(SHAPE, dtype), where) for dtype in ("float32", "complex64"))
    plan = mf.plan(SHAPE, mesh=mesh((8,)), kind="rfft")
    for call, named in [
        (lambda: mf.fftn(x, donate=True), "float32 of .* complex64 of"),
        (lambda: mf.rfftn(x, donate=True), r"\(16, 8, 24\).* \(16, 8, 13\)"),
        (lambda: mf.irfftn(z, donate=True), "leave donate out"),
        (lambda: mf.fftn(z, s=(8, 8, 8), donate=True), r"\(8, 8, 8\)"),
        (lambda: mf.fftn((x, x), donate=True), "both planes are one array"),
        (lambda: plan(x, donate=True), "donate=True"),
        (lambda: plan.inverse(plan(x), donate=True), "donate=True"),
    ]:
        with pytest.raises(ValueError, match=named):
            call()
    assert not x.is_deleted() and not z.is_deleted()


@pytest.mark.slow
def test_peak_of_a_process() -> None:
    """Catches a process that holds the result beside the given array: 128 MiB, and at least 96 MiB must be saved."""
    words = [sys.executable, "-c", PROCESS]
    runs = [subprocess.run([*words, n], capture_output=True, text=True, timeout=300, check=True) for n in "01"]
    plain, donated = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    assert donated <= plain - 96
