"""Calls of every public function on one mesh, each with its truth: what any number of processes must repeat.

A row is a name, what meshfft returns (arrays and nests of them) and the same in float64 by NumPy and SciPy. Every
process draws the same inputs and reads its own blocks of them.
"""

import itertools
import math
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.fft
import scipy.signal
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import at_points, dft, noise, powers, separable

Rows = Iterator[tuple[str, Any, Any]]
SHAPE, SPEC = (16, 12, 8), P(("x", "y"), "z")
FLAT, LONG, SHORT = (16, 8), P(("x", "y")), P("x", "y")  # two dimensions, whose programs compile fast
BLOCKS = P("x", "y", "z")
COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "hfft", "irfft", "hfft2", "irfft2", "hfftn", "irfftn")
REAL = ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")
COSINES = ("dct", "idct", "dctn", "idctn", "dst", "idst", "dstn", "idstn")
SHIFTS = ("fftshift", "ifftshift")
STANDARD = ("fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", *SHIFTS)


def rows(mf: Any, devices: np.ndarray, by_name: bool = True) -> Rows:
    """Every row, on the mesh of eight devices; or all but those that run through the functions by name."""
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = Mesh(devices.reshape(2, 2, 2), ("x", "y", "z"), axis_types=(kind,) * 3)
        for group in (AUTO, EXPLICIT)[kind == AxisType.Explicit]:
            if by_name or group is not _by_name:
                yield from group(mf, mesh)


def _inputs(
    mf: Any, mesh: Mesh, spec: P = SPEC, shape: tuple[int, ...] = SHAPE
) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """A complex array and a real one, each sharded and whole in float64."""
    z, r = noise(shape, "complex64"), noise(shape, "float32", 1)
    return mf.shard(z, mesh, spec), z.astype(complex), mf.shard(r, mesh, spec), r.astype(float)


def _hidden(mf: Any, mesh: Mesh) -> Rows:
    """Programs whose calls XLA asks about: every process gives it the same."""
    x, z, _, _ = _inputs(mf, mesh, LONG, FLAT)
    yield "jit under Auto axes", jax.jit(lambda x: mf.ifftn(2 * mf.fftn(x)))(x), 2 * z


def _by_name(mf: Any, mesh: Mesh) -> Rows:
    """The functions that SciPy has under the same names, as such, as SciPy's backend and as the standard's."""
    x, z, y, r = _inputs(mf, mesh, LONG, FLAT)
    for name in (*COMPLEX, *REAL, *COSINES, *SHIFTS):
        here, there = (x, z) if name in (*COMPLEX, *SHIFTS) else (y, r)
        truth = getattr(scipy.fft, name)(there)
        yield name, getattr(mf, name)(here), truth
        if name in STANDARD:
            yield f"array_api.fft.{name}", getattr(mf.array_api.fft, name)(here), truth
        if name not in SHIFTS:
            with scipy.fft.set_backend(mf.scipy_backend, only=True):
                yield f"scipy_backend {name}", getattr(scipy.fft, name)(here), truth
    with scipy.fft.set_backend(mf.scipy_backend, only=True):
        yield "scipy_backend of NumPy", scipy.fft.fftn(z.astype("complex64")), np.fft.fftn(z)


def _frequencies(mf: Any, mesh: Mesh) -> Rows:
    cut = NamedSharding(mesh, P(("x", "z")))
    for fft, name in ((mf, ""), (mf.array_api.fft, "array_api.fft.")):
        yield f"{name}fftfreq", fft.fftfreq(24, d=0.5, device=cut), np.fft.fftfreq(24, 0.5)
        yield f"{name}rfftfreq", fft.rfftfreq(30, device=cut), np.fft.rfftfreq(30)
    size = mf.next_fast_len(97, parts=4)
    yield "fftfreq here", mf.fftfreq(size), np.fft.fftfreq(100)


def _ways(mf: Any, mesh: Mesh) -> Rows:
    """Methods, orders, planes, and arrays that are cut in three dimensions, not cut, or on this device only."""
    x, z, _, r = _inputs(mf, mesh, LONG, FLAT)
    truth = np.fft.fftn(z)
    for method in ("transpose", "cooley-tukey", "kdft"):
        yield method, mf.fftn(x, axes=(0,), method=method), np.fft.fft(z, axis=0)
    planes = (mf.shard(z.real.astype("f4"), mesh, LONG), mf.shard(z.imag.astype("f4"), mesh, LONG))
    yield "planes", tuple(mf.fftn(planes)), (truth.real, truth.imag)
    yield "planes shifted", tuple(mf.fftshift(planes)), (np.fft.fftshift(z.real), np.fft.fftshift(z.imag))
    yield "whole", mf.fftn(mf.shard(z.astype("complex64"), mesh, P())), truth
    yield "numbers", mf.rfftn(r.astype("f4")), np.fft.rfftn(r)
    x, z, _, _ = _inputs(mf, mesh)
    yield "order any", mf.fftn(x, order="any"), np.fft.fftn(z)
    yield "blocks", mf.fftn(mf.shard(z.astype("complex64"), mesh, BLOCKS)), np.fft.fftn(z)


def _dense(mf: Any, mesh: Mesh) -> Rows:
    """Points known and differentiated, matrices of all kinds, and systems solved."""
    x, z, _, _ = _inputs(mf, mesh, SHORT, FLAT)
    turns = (np.arange(16) + 0.3 * np.random.default_rng(2).random(16)) / 16
    points, there = [mf.Points.turns(turns), mf.Points.zoom(0.1, 0.3, 4)], powers(turns, None, 16)
    truth = separable(z, [there, powers(0.1 + 0.05 * np.arange(4), None, 8)])
    yield "kdftn", mf.kdftn(x, points), truth
    cut = mf.Points.turns(mf.shard(turns.astype("f4"), mesh, P("x")))
    yield "points that are cut", mf.kdftn(x, [cut], axes=(0,)), separable(z, [powers(cut.angle, None, 16)], (0,))
    found = mf.ikdftn(mf.kdftn(x, points[:1], axes=(0,)), points[:1], axes=(0,))
    assert isinstance(found, mf.Solution)
    yield "ikdftn", found.value, z
    yield "residual", np.asarray(found.residual), np.zeros(())
    made = mf.BlockMatrix((4, 8), lambda k, n: jnp.cos(k[:, None] * n.astype(jnp.float32)))
    cosines = np.cos(np.outer(np.arange(4), np.arange(8)))
    for name, given in (("here", jnp.asarray(there, "complex64")), ("of NumPy", there)):
        truth = separable(z, [there, cosines])
        yield f"apply_separable {name}", mf.apply_separable([given, made], x), truth

    def loss(points: Any, x: Any) -> Any:
        return jnp.sum(mf.kdftn(x, points, axes=(0,), spec=SHORT).real)

    slope = separable(z, [there * (-2j * np.pi * np.arange(16))], axes=(0,)).real.sum(1)
    yield "slope of points", jax.jit(jax.grad(loss))([points[0]], x)[0].angle, slope


def _scattered(mf: Any, mesh: Mesh) -> Rows:
    x, z, *_ = _inputs(mf, mesh, SHORT, FLAT)
    k = np.random.default_rng(3).uniform(-1.0, 1.0, (24, 2))
    points, truth = mf.Scattered.turns(k), at_points(z, k)
    waves = np.exp(2j * np.pi * (k @ np.stack(np.meshgrid(*map(np.arange, FLAT), indexing="ij")).reshape(2, -1)))
    values = mf.nufftn(x, points)
    yield "nufftn", values, truth
    yield "nufftn_adjoint", mf.nufftn_adjoint(values, points, FLAT), (truth @ waves).reshape(FLAT)
    yield "kdftn scattered", mf.kdftn(x, points), truth
    plan = mf.scattered_plan(FLAT, points, mesh=mesh, spec=SHORT, slack=1, balance=True)
    assert isinstance(plan, mf.ScatteredPlan)
    yield "scattered_plan", plan.restore(plan(x, placed=True)), truth
    yield "scattered_plan in jit", jax.jit(lambda x: plan(x))(x), truth
    yield "points that moved", plan(x, points=mf.Scattered.turns(jnp.asarray(k, "float32"))), truth
    yield "normal", plan.normal()(x), (truth @ waves).reshape(FLAT)
    lengths = np.random.default_rng(4).normal(size=(24, 2))
    sums = mf.nufftn_type3(values, lengths, points, tol=2e-6)
    yield "nufftn_type3", sums, truth @ np.exp(-2j * np.pi * lengths @ k.T)
    grid = mf.Scattered.turns(np.stack(np.meshgrid(*map(np.fft.fftfreq, FLAT), indexing="ij"), -1).reshape(-1, 2))
    maps = np.array([0.6, 0.8j])[:, None, None] * np.ones(FLAT)
    samples = np.fft.fftn(np.fft.ifftshift(maps * z, axes=(1, 2)), axes=(1, 2)).reshape(2, -1)
    how = {"maps": maps, "mesh": mesh, "spec": P(None, "x", "y"), "tol": 2e-6, "density": 0}
    seen = mf.reconstruct(samples.astype("complex64"), grid, FLAT, iterations=3, **how)
    assert isinstance(seen, mf.Reconstruction)
    yield "reconstruct", seen.image, z


def _spectral(mf: Any, mesh: Mesh) -> Rows:
    x, z, y, r = _inputs(mf, mesh, LONG, FLAT)
    kernel = noise((3, 4), "float32", 4)
    whole = jax.device_put(kernel, NamedSharding(mesh, P()))
    truth = scipy.signal.convolve(r, kernel.astype(float), mode="full")[1:17, 1:9]
    for name, b in (("of NumPy", kernel), ("here", jnp.asarray(kernel)), ("whole", whole)):
        yield f"convolve with one {name}", mf.convolve(y, b, mode="same"), truth
    yield "convolve as large", mf.convolve(x, jnp.asarray(z, "complex64")), np.fft.ifftn(np.fft.fftn(z) ** 2)
    yield "correlate", mf.correlate(x, y), np.fft.ifftn(np.fft.fftn(z) * np.conj(np.fft.fftn(r)))
    k = 2j * np.pi * np.fft.fftfreq(16) * (np.arange(16) != 8)
    yield "derivative", mf.derivative(y, 0), np.fft.ifft(k[:, None] * np.fft.fft(r, axis=0), axis=0).real
    waves = sum((2 * np.pi * f) ** 2 for f in np.meshgrid(*map(np.fft.fftfreq, FLAT), indexing="ij"))
    inverse = -np.divide(1, waves, where=waves > 0, out=np.zeros(FLAT))
    yield "poisson", mf.poisson(y), np.fft.ifftn(inverse * np.fft.fftn(r)).real
    yield "helmholtz", mf.helmholtz(y, -1.0), np.fft.ifftn(np.fft.fftn(r) / (-1 - waves)).real
    around = np.concatenate([np.arange(b - 1, b + 5) % 16 for b in range(0, 16, 4)])  # four blocks of four rows
    extended = mf.halo(y, 1, axes=0)
    yield "halo", extended, r[around]
    yield "add_halo", mf.add_halo(extended, 1, axes=0), r * np.array([2, 1, 1, 2] * 4)[:, None]
    with mf.jnp_fft():
        spectrum = jnp.fft.fftn(x)
    yield "jnp_fft", spectrum, np.fft.fftn(z)
    filtered = np.fft.ifftn(np.exp(-waves) * np.fft.fftn(r)).real
    yield "multiply_spectrum", mf.multiply_spectrum(y, lambda a, b: jnp.exp(-(a**2 + b**2))), filtered
    fine = mf.pad_spectrum(mf.fftn(x), (24, 12), kind="fft")
    yield "truncate_spectrum", mf.truncate_spectrum(fine, FLAT, kind="fft"), np.fft.fftn(z)
    same = mf.cross_spectrum(y, y, bins=[0.0, 9.0])
    yield "cross_spectrum", np.asarray(same.power * same.counts), np.array([np.mean(r**2)])
    found, edges = mf.power_spectrum(y, bins=[0.0, 1.0, 2.0, 6.0]), np.array([0.0, 1.0, 2.0, 6.0])
    assert isinstance(found, mf.PowerSpectrum)
    shells = [(np.sqrt(waves) >= a) & (np.sqrt(waves) < b) for a, b in itertools.pairwise(edges)]
    energy, counts = np.abs(np.fft.fftn(r) / r.size) ** 2, np.array([shell.sum() for shell in shells])
    power, means = ([part[shell].mean() for shell in shells] for part in (energy, np.sqrt(waves)))
    yield "power_spectrum", tuple(map(np.asarray, found)), (np.array(means), np.array(power), counts)


def _plans(mf: Any, mesh: Mesh) -> Rows:
    """Sizes that the mesh does not divide, forward and back, and in and out of storage."""
    _, z, _, r = _inputs(mf, mesh)
    r, z = r[:15, :11, :7], z[:15, :11, :7]
    made = mf.passes(r.shape, budget=20_000, kind="rfft")
    assert isinstance(made, mf.Passes)
    held = [sum(math.prod(at.stop - at.start for at in tile.source) for tile in step.tiles) for step in made.steps]
    yield "passes", np.array(held), np.array([15 * 11 * 7, 15 * 11 * 4])
    plan = mf.plan(r.shape, mesh=mesh, spec=SPEC, kind="rfft")
    assert isinstance(plan, mf.Plan)
    y = plan(r.astype("f4"))
    truth = np.fft.rfftn(r)
    assert isinstance(y, mf.PaddedArray) and mf.out_spec((16, 8), mesh=mesh, spec=SHORT) == SHORT
    yield "plan", _held(y), _stored(truth, y)
    back, k = plan.inverse(y), mf.wavenumbers(plan)
    yield "plan.inverse", _held(back), _stored(r, back)
    lines = (np.fft.fftfreq(15), np.fft.fftfreq(11), np.arange(4) / 7)
    shapes = ((15, 1, 1), (1, 11, 1), (1, 1, 4))
    places = (2 * np.pi * f.reshape(shape) for f, shape in zip(lines, shapes, strict=True))
    lines_of = tuple(_stored(line, j) for line, j in zip(places, k, strict=True))
    yield "wavenumbers", tuple(map(_held, k)), lines_of
    points, z = mf.Points.turns((np.arange(15) + 0.2) / 15), z[..., 0]
    dense = mf.plan(z.shape, mesh=mesh, spec=SHORT, method="kdft", axes=(0,), points=points)
    there = dense(mf.shard(z.astype("complex64"), mesh, SHORT))
    adjoint = dense.adjoint(there)
    yield "plan.adjoint", _held(adjoint), _stored(z * 15, adjoint)
    yield "gather", mf.gather(there), powers(points.in_turns, None, 15) @ z
    yield "gather halves", mf.gather(y), truth


def _storage(mf: Any, mesh: Mesh) -> Rows:
    """Arrays of every kind onto the mesh, from spec to spec, and back whole."""
    values = np.arange(15 * 7).reshape(15, 7)
    turned = P(("z", "x"), "y")
    for dtype in ("int32", "bool", "float16", "complex64", "bfloat16"):
        typed = np.asarray(values.astype("f4") if dtype == "bfloat16" else values, jnp.dtype(dtype))
        stored = mf.shard(typed, mesh, turned)
        yield f"gather {dtype}", mf.gather(stored), typed
    yield "shard here", _held(mf.shard(jnp.asarray(values), mesh, turned)), np.pad(values, ((0, 1), (0, 1)))
    even = mf.shard(values[:8, :6], mesh, P("x"))
    yield "shard again", mf.shard(even, mesh, P(("y", "x"), "z")), values[:8, :6]
    yield "gather whole", mf.gather(jax.device_put(even, NamedSharding(mesh, P()))), values[:8, :6]
    yield "gather nothing", mf.gather(mf.shard(np.zeros((0, 8)), mesh, P(None, "x"))), np.zeros((0, 8))


def _programs(mf: Any, mesh: Mesh) -> Rows:
    """Inside jit, grad and vmap, and in a shard_map of the caller's."""
    x, z, _, _ = _inputs(mf, mesh, LONG, FLAT)
    yield "jit", jax.jit(lambda x: mf.ifftn(2 * mf.fftn(x)))(x), 2 * z
    yield "grad", jax.jit(jax.grad(lambda x: jnp.sum(jnp.abs(mf.fftn(x)) ** 2)))(x), 2 * z.size * z.conj()
    x, z, _, r = _inputs(mf, mesh)
    yield "vmap", jax.jit(jax.vmap(mf.fft2, in_axes=2, out_axes=2))(x), np.fft.fft2(z, axes=(0, 1))
    whole = jax.shard_map(
        lambda block: mf.fftn(block, spec=BLOCKS), mesh=mesh, in_specs=BLOCKS, out_specs=BLOCKS, check_vma=False
    )
    yield "shard_map", jax.jit(whole)(mf.shard(z.astype("complex64"), mesh, BLOCKS)), np.fft.fftn(z)
    ring = jax.shard_map(
        lambda block: mf.one_shuffle(lambda shard, s: shard * (s + 1.0), block, ("x", "y")),
        mesh=mesh,
        in_specs=SPEC,
        out_specs=SPEC,
    )
    total = sum(part * (s + 1.0) for s, part in enumerate(np.split(r, 4)))
    yield "one_shuffle", jax.jit(ring)(mf.shard(r.astype("f4"), mesh, SPEC)), np.concatenate([total] * 4)


def _kept(mf: Any, mesh: Mesh) -> Rows:
    """A program that every process looks up in its private folder before it compiles."""
    x, z, *_ = _inputs(mf, mesh, SHORT, FLAT)
    with tempfile.TemporaryDirectory() as folder:
        mf.cache(folder)
        yield "cache", mf.ifftn(mf.fftn(x), axes=(1,)), np.fft.ifftn(np.fft.fftn(z), axes=(1,))
        jax.config.update("jax_compilation_cache_dir", None)


def _double(mf: Any, mesh: Mesh) -> Rows:
    with jax.enable_x64(True):
        z = noise(FLAT, "complex128", 5)
        x = mf.shard(z, mesh, SHORT)
        yield "fftn of complex128", mf.fftn(x), dft(z, (0, 1))
        yield "kdftn of complex128", mf.kdftn(x, axes=(0,)), dft(z, (0,))


def _held(y: Any) -> Any:
    """The stored array, padding included."""
    return getattr(y, "stored", y)


def _stored(truth: np.ndarray, like: Any) -> np.ndarray:
    """The truth with zeros where the array is padded."""
    return np.pad(truth, [(0, stored - n) for n, stored in zip(truth.shape, _held(like).shape, strict=True)])


AUTO = (_by_name, _hidden, _frequencies, _ways, _dense, _scattered, _spectral, _plans, _storage, _kept, _double)
EXPLICIT = (_programs,)
