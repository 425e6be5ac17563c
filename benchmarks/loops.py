"""Eager loops of every public function on eight virtual devices, in all the ways that could queue too many programs.

    python -m benchmarks loops [--seconds 20] [--calls 100] [--only NAME]

Each function is called `--calls` times without waiting, in every way of WAYS, on a mesh of (2, 4) devices, then on one
of (2, 2, 2), until the time is up. Every loop ends with a call whose result must equal that of a call that waited. A
line is printed for each function. If too many programs are queued, XLA aborts the process (exit code 134).
"""

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import meshfft as mf  # noqa: E402

NOT_LOOPED = {  # records, host integers, what runs nothing itself, and what waits for its result
    *("BlockMatrix", "PaddedArray", "Passes", "Plan", "Points", "PowerSpectrum", "Scattered", "ScatteredPlan"),
    *(
        "Solution",
        "Reconstruction",
        "reconstruct",
        "cache",
        "one_shuffle",
        "next_fast_len",
        "out_spec",
        "passes",
        "plan",
        "scattered_plan",
        "array_api",
        "scipy_backend",
    ),
}
SIZE, THREADS, OPERATIONS = 24, 8, 6
COMPLEX = ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "hfft", "hfft2", "hfftn", "irfft", "irfft2", "irfftn")
REAL = ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")
COSINES = ("dct", "dctn", "dst", "dstn", "idct", "idctn", "idst", "idstn")
# their results are constants, or on the host
NO_ARRAY = ("wavenumbers", "fftfreq", "rfftfreq", "gather", "shard")
Call = Callable[[Any], Any]


def calls(mesh: jax.sharding.Mesh, spec: P) -> dict[str, tuple[Call, Any]]:
    """By name a function of one array, and the array."""
    rng = np.random.default_rng(0)
    shape = (SIZE,) * 3
    r = mf.shard(rng.standard_normal(shape).astype("f4"), mesh, spec)
    z = mf.shard((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype("c8"), mesh, spec)
    host = rng.standard_normal((23, 17, 9))
    uneven = mf.shard(host.astype("f4"), mesh, spec)
    points = mf.Scattered.turns(rng.uniform(-0.5, 0.5, (200, 3)))
    values = jax.device_put((rng.standard_normal(200) + 0j).astype("c8"), NamedSharding(mesh, P()))
    scattered = mf.scattered_plan(shape, points, mesh=mesh, spec=spec, tol=1e-3)
    samples = scattered(z)
    line = [mf.Points.turns(np.arange(SIZE) / SIZE + 0.01), None, None]
    forward = mf.plan(shape, mesh=mesh, spec=spec)
    half = mf.rfftn(r)
    matrices = [rng.standard_normal((SIZE, SIZE)).astype("f4")] * 3
    where, there = rng.uniform(-4.0, 4.0, (30, 2)), mf.Scattered.turns(rng.uniform(-4.0, 4.0, (30, 2)))
    found: dict[str, tuple[Call, Any]] = {
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
        "convolve": (lambda x: mf.convolve(x, r, mode="wrap"), r),
        "correlate": (lambda x: mf.correlate(x, r, mode="wrap"), r),
        "multiply_spectrum": (lambda x: mf.multiply_spectrum(x, lambda *k: jnp.exp(-sum(a * a for a in k))), r),
        "power_spectrum": (lambda x: mf.power_spectrum(x).power, r),
        "cross_spectrum": (lambda x: mf.cross_spectrum(x, x).power, r),
        "pad_spectrum": (lambda x: mf.pad_spectrum(x, (2 * SIZE,) * 3, kind="fft"), z),
        "truncate_spectrum": (lambda x: mf.truncate_spectrum(x, (SIZE // 2,) * 3, kind="fft"), z),
        "pad_spectrum of a half": (lambda x: mf.pad_spectrum(x, (2 * SIZE, 2 * SIZE, SIZE + 1), kind="rfft"), half),
        "nufftn": (lambda x: mf.nufftn(x, points, tol=1e-3), z),
        "nufftn_adjoint": (lambda c: mf.nufftn_adjoint(c, points, shape, tol=1e-3), values),
        "a plan of points": (scattered, z),
        "a plan of points, back": (scattered.adjoint, samples),
        "nufftn_type3": (lambda c: mf.nufftn_type3(c[:30], where, there, tol=1e-3), values),
        "shard": (lambda x: mf.shard(host, mesh, spec), z),
        "gather": (mf.gather, uneven),
        "wavenumbers": (lambda x: mf.wavenumbers(forward)[0], z),
        "fftfreq": (lambda x: mf.fftfreq(SIZE), z),
        "rfftfreq": (lambda x: mf.rfftfreq(SIZE), z),
    }
    return found


def dropped(call: Call, x: Any, many: int) -> None:
    """Results that nobody keeps."""
    for _ in range(many):
        call(x)


def deleted(call: Call, x: Any, many: int) -> None:
    """Results whose storage is given up at once."""
    for _ in range(many):
        for leaf in _arrays(call(x)):
            leaf.delete()


def donated(call: Call, x: Any, many: int) -> None:
    """Results that a program of the caller's takes over."""
    for _ in range(many):
        _doubled(_arrays(call(x)))


def busy(call: Call, x: Any, many: int) -> None:
    """Results on which the caller runs operations of its own."""
    for _ in range(many):
        y = _arrays(call(x))
        for _ in range(OPERATIONS):
            y = [leaf * 2 for leaf in y]


def fed_back(call: Call, x: Any, many: int) -> None:
    """Every input depends on the result before."""
    for _ in range(many):
        zero = sum(jnp.sum(jnp.abs(leaf)) for leaf in _arrays(call(x))) * 0
        x = jax.tree.map(lambda leaf, zero=zero: leaf + jnp.asarray(zero).astype(leaf.dtype), x)


def differentiated(call: Call, x: Any, many: int) -> None:
    """Gradients, taken eagerly."""

    def loss(x: Any) -> Array:
        return functools.reduce(jnp.add, [jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(call(x))])

    with jax.set_mesh(jax.tree.leaves(x)[0].sharding.mesh):  # which JAX wants for eager gradients under Explicit axes
        for _ in range(many):
            jax.grad(loss)(x)


def from_threads(call: Call, x: Any, many: int) -> None:
    """Calls of several threads at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: call(x), range(many)))


WAYS: tuple[Callable[[Call, Any, int], None], ...] = (
    *(dropped, deleted, donated, busy, fed_back, differentiated, from_threads),
)
_doubled = jax.jit(lambda leaves: [leaf * 2 for leaf in leaves], donate_argnums=0)


def _arrays(y: Any) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(y) if isinstance(leaf, jax.Array)]


def looped(name: str, call: Call, x: Any, many: int, names: Iterable[str]) -> int:
    """Runs one function in every way, and returns how many calls there were."""
    truth, count = call(x), 0
    for way in WAYS:
        if way.__name__ in names and not (name in NO_ARRAY and way in (differentiated, deleted)):
            way(call, x, many)
            count += many
    jax.tree.map(np.testing.assert_array_equal, call(x), truth)
    return count


def main() -> None:
    """Loops until the time is up; a function is never left half-way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    parser.add_argument("--ways", default=",".join(way.__name__ for way in WAYS))
    given, start, calls_made = parser.parse_args(), time.monotonic(), 0
    places = (((2, 4), P("x", "y")), ((2, 2, 2), P("x", "y", "z")))
    work = [calls(jax.make_mesh(shape, tuple(spec)), spec) for shape, spec in places]
    unknown = set(mf.__all__) - NOT_LOOPED - work[0].keys()
    assert not unknown, f"no loop calls {unknown}"
    for turn, functions in enumerate(itertools.cycle(work)):
        for name, (call, x) in functions.items():
            if given.only not in name:
                continue
            calls_made += looped(name, call, x, given.calls, given.ways.split(","))
            print(f"{time.monotonic() - start:6.0f} s  mesh {places[turn % 2][0]}  {name}", flush=True)
            if time.monotonic() - start > given.seconds:
                print(f"{calls_made} calls, no abort")
                return


if __name__ == "__main__":
    main()
