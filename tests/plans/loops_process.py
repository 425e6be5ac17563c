"""Eager loops of every public function on eight virtual devices, in all the ways that could queue too many programs.

    python tests/plans/loops_process.py 3600        (an hour; a number of calls and part of a name may follow)

Each function is called 100 times without waiting, in every way of WAYS, on a mesh of (2, 4) devices, then on one
of (2, 2, 2), until the time is up. Every loop ends with a call whose result must equal that of a call that waited. A
line is printed for each function. If too many programs are queued, XLA aborts the process (exit code 134).
"""

import functools
import itertools
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import meshfft as mf  # noqa: E402

# Records, host integers, what runs nothing itself, and what waits for its result.
NOT_LOOPED = {
    *("BlockMatrix", "PaddedArray", "Passes", "Plan", "Points", "PowerSpectrum", "Scattered", "ScatteredPlan"),
    *("Solution", "Reconstruction", "reconstruct", "cache", "one_shuffle", "next_fast_len", "out_spec", "passes"),
    *("plan", "scattered_plan", "array_api", "jnp_fft", "scipy_backend"),
}
SIZE, THREADS, OPERATIONS = 24, 8, 6
COMPLEX = ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
REAL = ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")
COSINES = ("dct", "dctn", "dst", "dstn", "idct", "idctn", "idst", "idstn")
NO_ARRAY = ("wavenumbers", "fftfreq", "rfftfreq", "gather", "shard")  # results are constants, or on the host
Function = Callable[[Any], Any]


def main(seconds: float, calls: int, only: str) -> None:
    """Loops until the time is up; a function is never left half-way."""
    start, made = time.monotonic(), 0
    meshes = [jax.make_mesh(sizes, tuple(names)) for sizes, names in (((2, 4), "xy"), ((2, 2, 2), "xyz"))]
    work = [functions(mesh, P(*mesh.axis_names)) for mesh in meshes]
    unknown = set(mf.__all__) - NOT_LOOPED - work[0].keys()
    assert not unknown, f"no loop calls {unknown}"
    for mesh, named in itertools.cycle(zip(meshes, work, strict=True)):
        for name, (call, x) in named.items():
            if only in name:
                made += looped(name, call, x, calls)
                print(f"{time.monotonic() - start:6.0f} s  mesh {mesh.axis_sizes}  {name}", flush=True)
                if time.monotonic() - start > seconds:
                    print(f"{made} calls, no abort")
                    return


def functions(mesh: Mesh, spec: P) -> dict[str, tuple[Function, Any]]:
    """By name a function of one array, and the array."""
    rng, shape = np.random.default_rng(0), (SIZE,) * 3
    r = mf.shard(rng.standard_normal(shape).astype("f4"), mesh, spec)
    z = mf.shard((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype("c8"), mesh, spec)
    host = rng.standard_normal((23, 17, 9))
    uneven = mf.shard(host.astype("f4"), mesh, spec)
    points = mf.Scattered.turns(rng.uniform(-0.5, 0.5, (200, 3)))
    values = jax.device_put((rng.standard_normal(200) + 0j).astype("c8"), NamedSharding(mesh, P()))
    scattered = mf.scattered_plan(shape, points, mesh=mesh, spec=spec, tol=1e-3)
    line = [mf.Points.turns(np.arange(SIZE) / SIZE + 0.01), None, None]
    forward = mf.plan(shape, mesh=mesh, spec=spec)
    matrices = [rng.standard_normal((SIZE, SIZE)).astype("f4")] * 3
    where, there = rng.uniform(-4.0, 4.0, (30, 2)), mf.Scattered.turns(rng.uniform(-4.0, 4.0, (30, 2)))
    return {
        **{name: (getattr(mf, name), z) for name in (*COMPLEX, "fftshift", "ifftshift")},
        **{name: (getattr(mf, name), r) for name in (*REAL, *COSINES)},
        "fftn of uneven sizes": (mf.fftn, uneven),
        "fftn, any order": (lambda x: mf.fftn(x, order="any"), z),
        "fftn, out_spec": (lambda x: mf.fftn(x, out_spec=P(*spec[::-1])), z),
        "a plan, there and back": (lambda x: forward.inverse(forward(x)), z),
        "vmap of fftn": (jax.vmap(lambda x: mf.fftn(x, spec=P(*spec[1:]))), z),
        "kdftn": (lambda x: mf.kdftn(x, line), z),
        "ikdftn": (lambda x: mf.ikdftn(x, line).value, z),
        "apply_separable": (lambda x: mf.apply_separable(matrices, x), r),
        "derivative": (lambda x: mf.derivative(x, 0), r),
        "poisson": (mf.poisson, r),
        "helmholtz": (lambda x: mf.helmholtz(x, -1.0), r),
        "halo": (lambda x: mf.halo(x, 2), r),
        "add_halo": (lambda x: mf.add_halo(x, 1), r),
        "convolve": (lambda x: mf.convolve(x, r, mode="wrap"), r),
        "correlate": (lambda x: mf.correlate(x, r, mode="wrap"), r),
        "multiply_spectrum": (lambda x: mf.multiply_spectrum(x, lambda *k: jnp.exp(-sum(a * a for a in k))), r),
        "power_spectrum": (lambda x: mf.power_spectrum(x).power, r),
        "cross_spectrum": (lambda x: mf.cross_spectrum(x, x).power, r),
        "pad_spectrum": (lambda x: mf.pad_spectrum(x, (2 * SIZE,) * 3, kind="fft"), z),
        "truncate_spectrum": (lambda x: mf.truncate_spectrum(x, (SIZE // 2,) * 3, kind="fft"), z),
        "pad_spectrum of a half": (
            lambda x: mf.pad_spectrum(x, (2 * SIZE, 2 * SIZE, SIZE + 1), kind="rfft"),
            mf.rfftn(r),
        ),
        "nufftn": (lambda x: mf.nufftn(x, points, tol=1e-3), z),
        "nufftn_adjoint": (lambda c: mf.nufftn_adjoint(c, points, shape, tol=1e-3), values),
        "a plan of points": (scattered, z),
        "a plan of points, back": (scattered.adjoint, scattered(z)),
        "nufftn_type3": (lambda c: mf.nufftn_type3(c[:30], where, there, tol=1e-3), values),
        "shard": (lambda x: mf.shard(host, mesh, spec), z),
        "gather": (mf.gather, uneven),
        "wavenumbers": (lambda x: mf.wavenumbers(forward)[0], z),
        "fftfreq": (lambda x: mf.fftfreq(SIZE), z),
        "rfftfreq": (lambda x: mf.rfftfreq(SIZE), z),
    }


def dropped(call: Function, x: Any, many: int) -> None:
    """Results that are discarded."""
    for _ in range(many):
        call(x)


def deleted(call: Function, x: Any, many: int) -> None:
    """Results whose storage is given up at once."""
    for _ in range(many):
        for leaf in _arrays(call(x)):
            leaf.delete()


def donated(call: Function, x: Any, many: int) -> None:
    """Results that a program of the caller's takes over."""
    for _ in range(many):
        _doubled(_arrays(call(x)))


def busy(call: Function, x: Any, many: int) -> None:
    """Results that the caller uses in further operations."""
    for _ in range(many):
        y = _arrays(call(x))
        for _ in range(OPERATIONS):
            y = [leaf * 2 for leaf in y]


def fed_back(call: Function, x: Any, many: int) -> None:
    """Every input depends on the result before."""
    for _ in range(many):
        zero = sum(jnp.sum(jnp.abs(leaf)) for leaf in _arrays(call(x))) * 0
        x = jax.tree.map(lambda leaf, zero=zero: leaf + jnp.asarray(zero).astype(leaf.dtype), x)


def differentiated(call: Function, x: Any, many: int) -> None:
    """Gradients, taken eagerly."""

    def loss(x: Any) -> Array:
        return functools.reduce(jnp.add, [jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(call(x))])

    with jax.set_mesh(jax.tree.leaves(x)[0].sharding.mesh):  # which JAX wants for eager gradients under Explicit axes
        for _ in range(many):
            jax.grad(loss)(x)


def from_threads(call: Function, x: Any, many: int) -> None:
    """Calls of several threads at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: call(x), range(many)))


WAYS: tuple[Callable[[Function, Any, int], None], ...] = (
    *(dropped, deleted, donated, busy, fed_back, differentiated, from_threads),
)
_doubled = jax.jit(lambda leaves: [leaf * 2 for leaf in leaves], donate_argnums=0)


def _arrays(y: Any) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(y) if isinstance(leaf, jax.Array)]


def looped(name: str, call: Function, x: Any, many: int) -> int:
    """Runs one function in every way, and returns how many calls there were."""
    truth, ways = call(x), [way for way in WAYS if name not in NO_ARRAY or way not in (differentiated, deleted)]
    for way in ways:
        way(call, x, many)
    jax.tree.map(np.testing.assert_array_equal, call(x), truth)
    return len(ways) * many


if __name__ == "__main__":
    seconds, calls, only = (*sys.argv[1:], *("20", "100", "")[len(sys.argv) - 1 :])
    main(float(seconds), int(calls), only)
