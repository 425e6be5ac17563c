"""Padded arrays in loops and `vmap`: carries, slices of a batch, results of `jit`, and arrays of indices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from reference import mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives

KINDS = pytest.mark.parametrize("kind", (AxisType.Auto, AxisType.Explicit), ids=["auto", "explicit"])
WAVE, SLICES, PROBES = noise((31, 23)), noise((3, 31, 23), seed=1), noise((4, 31, 23), seed=2)


def _put(x: np.ndarray, kind: AxisType) -> Any:
    """Cut along the last two dimensions, which the mesh does not divide."""
    return mf.shard(x, mesh((4, 2), kind), P(*[None] * (x.ndim - 2), "x", "y"))


def _close(found: Any, truth: np.ndarray) -> None:
    found = mf.gather(found)
    assert found.shape == truth.shape
    np.testing.assert_allclose(found, truth, rtol=1e-3, atol=1e-3 * np.abs(truth).max(initial=0))


def _propagated(wave: np.ndarray, slices: np.ndarray) -> np.ndarray:
    for one in slices:
        wave = np.fft.ifft2(np.fft.fft2(wave) * one)
    return wave


STEPS: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
    "w v": (lambda w, v: w * v, WAVE * SLICES.prod(0)),
    "v w": (lambda w, v: v * w, WAVE * SLICES.prod(0)),
    "map": (lambda w, v: w.map(jnp.multiply, v), WAVE * SLICES.prod(0)),
    "cond": (lambda w, v: jax.lax.cond(abs(v).sum() > 0, lambda: w * v, lambda: w), WAVE * SLICES.prod(0)),
    "spectra": (lambda w, v: mf.ifft2(mf.fft2(w) * v), _propagated(WAVE, SLICES)),
    "sum": (lambda w, v: w + mf.fft2(v), WAVE + np.fft.fft2(SLICES).sum(0)),
}


@KINDS
@pytest.mark.parametrize("name", STEPS)
def test_scan_over_slices_carries_a_padded_array(name: str, kind: AxisType) -> None:
    """Catches a product with a slice that has the layout of all slices: no loop over optics or layers traced."""
    step, truth = STEPS[name]

    def loop(wave: Any, slices: Any) -> Any:
        return jax.lax.scan(lambda w, v: (step(w, v), step(w, v)), wave, slices)

    wave, slices = _put(WAVE, kind), _put(SLICES, kind)
    for run in (loop, jax.jit(loop)):
        last, every = run(wave, slices)
        _close(last, truth)
        _close(every[-1], truth)
        jax.tree.map(lambda *_: None, last, wave)
        assert every.shape == SLICES.shape


@KINDS
def test_batches_in_loops_and_batches_of_batches(kind: AxisType) -> None:
    """Catches a batch lost in a carry, also if `vmap` meets a jitted function, and two batches taken for one."""
    wave, slices, probes = (_put(x, kind) for x in (WAVE, SLICES, PROBES))
    members: list[Callable[[Any], Any]] = [lambda v: wave * v, jax.jit(lambda v: wave * v)]
    for member in members:
        every = jax.vmap(member)
        carried = jax.lax.fori_loop(0, 2, lambda _, v, every=every: every(v), slices)
        _close(carried, WAVE**2 * SLICES)
        _close(jax.tree.map(jnp.add, slices, every(slices)), SLICES + WAVE * SLICES)
    _close(jax.vmap(lambda p: jax.vmap(lambda v: p * v)(slices))(probes), PROBES[:, None] * SLICES)
    _close(jax.vmap(lambda p: jax.vmap(lambda v: p * v)(slices))(slices), SLICES[:, None] * SLICES)
    uneven = mf.shard(SLICES, mesh((4, 2), kind), P("y", "x"))  # a batch of three over two
    _close(jax.vmap(lambda v: mf.shard(WAVE, mesh((4, 2), kind), P("x")) * v)(uneven), WAVE * SLICES)


@KINDS
def test_loops_inside_vmap_carry_members_of_a_batch(kind: AxisType) -> None:
    """Catches a carry that loses or keeps its batch in one step: time steps of a batch of fields."""
    wave, slices = _put(WAVE, kind), _put(SLICES, kind)
    batch = mf.shard(np.stack([SLICES] * 2), mesh((4, 2), kind), P(None, None, "x", "y"))
    loops: list[tuple[Callable[[Any], Any], np.ndarray]] = [
        (lambda a: jax.lax.fori_loop(0, 2, lambda _, c: c * wave, a), SLICES * WAVE**2),
        (lambda a: jax.lax.scan(lambda c, _: (c + wave, None), a, length=2)[0], SLICES + 2 * WAVE),
        (
            lambda a: jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * wave), (0, a))[1],
            SLICES * WAVE**2,
        ),
        (lambda a: jax.lax.scan(lambda c, v: (c * v, None), a, slices)[0], SLICES * SLICES.prod(0)),
    ]
    for loop, truth in loops:
        _close(jax.vmap(loop)(slices), truth)
        _close(jax.jit(jax.vmap(jax.jit(loop)))(slices), truth)
    both = jax.vmap(lambda a, every: jax.lax.scan(lambda c, v: (c * v, None), a, every)[0])
    _close(both(slices[:2], batch), SLICES[:2] * SLICES.prod(0))


def test_results_stay_on_their_own_devices() -> None:
    """Catches a cached program's mesh taken for that of an array elsewhere: two meshes with one description."""
    some = [jax.make_mesh((4,), ("x",), (AxisType.Explicit,), devices=jax.devices()[k : k + 4]) for k in (0, 4)]
    halves: list[Callable[[Any], Any]] = [
        lambda x: mf.rfftn(x, axes=(-1,), out_spec=P(None, "x")),
        jax.jit(lambda x: mf.rfftn(x, axes=(-1,), out_spec=P(None, "x"))),
    ]
    back = jax.jit(lambda y: mf.irfftn(y, s=(8,), axes=(-1,)))
    x = noise((4, 8), "float32")
    for half in halves * 2:
        for devices in some:
            y = back(half(mf.shard(x, devices, P(None, "x"))))
            _close(y, x)
            assert y.sharding.device_set == {*devices.devices.flat}


@KINDS
def test_results_of_jit_are_carries_of_eager_loops(kind: AxisType) -> None:
    """Catches a described mesh that differs from the mesh it describes: `scan`, `cond` and `tree.map` refused both."""
    x = mf.shard(noise((61, 47), "float32"), mesh((8,), kind), P(None, "x"))
    how: Any = {} if kind == AxisType.Explicit else {"spec": P(None, "x")}

    def there_and_back(x: Any) -> Any:
        return mf.irfftn(mf.rfftn(x), (61, 47), **how)

    eager, jitted = there_and_back(x), jax.jit(there_and_back)(x)
    for found in (eager, jitted, jax.tree.map(lambda a, b: (a + b) / 2, eager, jitted)):
        _close(found, mf.gather(x))
    _close(jax.lax.scan(lambda g, _: (there_and_back(g), None), x, length=2)[0], mf.gather(x))
    _close(jax.lax.fori_loop(0, 2, lambda _, g: there_and_back(g), jitted), mf.gather(x))


@KINDS
def test_an_array_of_indices_takes_members_of_a_batch(kind: AxisType) -> None:
    """Catches other members, a gathered batch, and clamped or wrapped numbers where an index is wrong."""
    y, some = _put(PROBES, kind), np.array([2, 0, -1])
    middle = mf.shard(PROBES.swapaxes(0, 1), mesh((4, 2), kind), P("x", None, "y"))
    indices: list[Any] = [some, jnp.asarray(some), some.tolist(), some.reshape(3, 1), (some, ...)]
    indices += [
        some[:0],
        some[:0].reshape(0, 3),
        np.zeros((2, 0), int),
        np.array([3], np.uint64),
        np.array([-1], np.int8),
    ]
    for index in indices:
        _close(y[index], PROBES[index])
    _close(y[jnp.asarray([3, 1], jnp.uint8)], PROBES[[3, 1]])
    _close(y[[]], PROBES[:0])
    _close(jax.jit(lambda y: y[jnp.asarray(some)])(y), PROBES[some])
    _close(middle[:, some], PROBES.swapaxes(0, 1)[:, some])
    _close(middle[..., some, :], PROBES.swapaxes(0, 1)[:, some])
    take = jax.jit(lambda y, at: y[at])
    _close(take(y, 3), PROBES[3])
    _close(take(y, some), PROBES[some])
    assert not collectives(take.lower(y, some).compile())
    _close(jax.jit(lambda y, at: mf.fft2(y[at]))(y, some), np.fft.fft2(PROBES[some]))
    _close(jax.lax.scan(lambda s, k: (s + y[k], None), y[0], jnp.arange(1, 4))[0], PROBES.sum(0))
    weights = np.array([2, 0, 1, 1])[:, None, None]
    energy = jax.jit(jax.grad(lambda y: (abs(y[np.array([0, 2, 3, 0])]) ** 2).sum()))
    _close(energy(y).conj(), 2 * weights * PROBES)
    with pytest.raises(ValueError, match="axis 1 is cut by x, and an array of indices takes an uncut dimension"):
        y[:, some]
    with pytest.raises(IndexError, match="an index from 4 to 4 is out of range for a dimension of 4"):
        y[np.array([4])]
    for wrong in (np.ones(4, bool), np.ones(3), (some, some), (some, 0)):
        with pytest.raises(TypeError, match="nor one array of integers beside ':'"):
            y[wrong]


@KINDS
def test_numpy_inside_jit_says_what_to_use(kind: AxisType) -> None:
    """Catches JAX's error of a traced conversion, which names no remedy."""
    with pytest.raises(TypeError, match=r"inside jit this is a PaddedArray.* use y\.map\(jax\.numpy\.exp\)"):
        jax.jit(lambda y: np.angle(y))(_put(WAVE, kind))
    assert np.angle(_put(WAVE, kind)).shape == WAVE.shape
