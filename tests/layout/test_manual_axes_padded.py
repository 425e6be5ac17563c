"""Inside a caller's own shard_map: results that no mesh axis divides, convolutions and power spectra, against sums."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise
from shard_maps import AUTO, EXPLICIT, SPEC, hops, mapped, put

import meshfft as mf

SHAPE, SIZES = (8, 12, 16), (2, 2, 2)
X, Y = noise(SHAPE, "float32"), noise(SHAPE, "float32", 1)
SMALL = noise((3, 2, 5), "float32", 2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_results_that_the_mesh_does_not_divide_are_padded(kind: Any) -> None:
    """Catches a refusal, padding taken for data, and an array that knows only the mesh of the shard_map it left."""
    over = mesh(SIZES, kind)
    a = put(X, over)
    there = mapped(lambda b: mf.rfftn(b, spec=SPEC), over, "xyz", SPEC, SPEC)
    cropped = mapped(lambda b: mf.fftn(b, s=(7, 12, 9), spec=SPEC), over, "xyz", SPEC, SPEC)
    truth = dft(X, (0, 1, 2))[..., :9]
    y = jax.jit(there)(a)
    assert isinstance(y, mf.PaddedArray) and y.spec == SPEC and y.shape == (8, 12, 9)
    assert error(y, truth) <= 4e-7 and np.count_nonzero(y.stored) <= y.size
    assert error(jax.jit(cropped)(a), dft(X, (0, 1, 2), (7, 12, 9))) <= 4e-7
    assert hops(there, a).keys() <= {"all-to-all", "collective-permute"}
    inside = mapped(lambda b: mf.irfftn(mf.rfftn(b, spec=SPEC) * 2.0, s=SHAPE), over, "xyz", SPEC, SPEC)
    assert error(jax.jit(inside)(a), 2 * X) <= 1e-6
    for after in (
        lambda v: mf.irfftn(there(v), s=SHAPE),
        lambda v: mf.irfftn(mf.ifftn(mf.fftn(there(v))) * 1.0, s=SHAPE),
    ):
        back = jax.jit(after)(a)
        assert error(back, X) <= 1e-6 and back.sharding.is_equivalent_to(a.sharding, 3)
    assert error(mf.irfftn(y, s=SHAPE), X) <= 1e-6
    with jax.set_mesh(over):
        slope = jax.jit(jax.grad(lambda v: (abs(there(v)) ** 2).sum()))(a)
    full = jax.grad(lambda v: (abs(jnp.fft.rfftn(v)) ** 2).sum())(jnp.asarray(X))
    assert error(slope, np.asarray(full)) <= 2e-6


def _convolved(x: np.ndarray, y: np.ndarray, conjugated: bool = False) -> np.ndarray:
    y = np.fft.fftn(y.astype(float))
    return np.fft.ifftn(np.fft.fftn(x.astype(float)) * (y.conj() if conjugated else y)).real


@pytest.mark.more
@pytest.mark.parametrize("vma", [True, False])
def test_convolutions(vma: bool) -> None:
    """Catches a kernel cut twice, one block taken for the array, a phase of another block, and a gather."""
    over = mesh(SIZES)
    a, b = put(X, over), put(Y, over)

    def run(body: Any, *arrays: Any, specs: Any) -> Any:
        inside = mapped(body, over, "xyz", specs, SPEC, check_vma=vma)
        assert "all-gather" not in hops(inside, *arrays)
        return jax.jit(inside)(*arrays)

    both = {"specs": (SPEC, SPEC)}
    assert error(run(lambda u, v: mf.convolve(u, v, spec=SPEC), a, b, **both), _convolved(X, Y)) <= 1e-6
    assert error(run(lambda u, v: mf.correlate(u, v, spec=SPEC), a, b, **both), _convolved(X, Y, True)) <= 1e-6
    small = {"specs": (SPEC, P())}
    for name in ("convolve", "correlate"):
        call, truth = getattr(mf, name), getattr(scipy.signal, name)(X.astype(float), SMALL, mode="same")
        found = run(lambda u, v, call=call: call(u, v, mode="same", spec=SPEC), a, jnp.asarray(SMALL), **small)
        assert error(found, truth) <= 2e-6
        kept = run(lambda u, call=call: call(u, SMALL, mode="same", spec=SPEC), a, specs=SPEC)
        assert error(kept, truth) <= 2e-6
    wide = {"specs": (SPEC, SPEC)}
    full = run(lambda u, v: mf.convolve(u, v, mode="same", spec=SPEC), a, b, **wide)
    assert error(full, scipy.signal.fftconvolve(X.astype(float), Y, mode="same")) <= 2e-6


@pytest.mark.more
def test_gradients_of_convolutions_and_power_spectra() -> None:
    """Catches cotangents summed once too often, or by no device."""
    over = mesh(SIZES)

    def product(u: Any, v: Any) -> Any:
        return mapped(lambda u, v: mf.convolve(u, v, mode="same", spec=SPEC), over, "xyz", (SPEC, P()), SPEC)(u, v)

    def power(u: Any) -> Any:
        return mapped(lambda u: mf.power_spectrum(u, spec=SPEC).power, over, "xyz", SPEC, P())(u)

    a, small = put(X, over), jnp.asarray(SMALL)
    found = jax.jit(jax.grad(lambda u, v: (product(u, v) ** 2).sum(), (0, 1)))(a, small)
    truth = jax.grad(lambda u, v: (mf.convolve(u, v, mode="same") ** 2).sum(), (0, 1))(jnp.asarray(X), small)
    assert all(error(one, np.asarray(other)) <= 2e-6 for one, other in zip(found, truth, strict=True))
    slope = jax.jit(jax.grad(lambda u: (power(u) ** 2).sum()))(a)
    whole = jax.grad(lambda u: (mf.power_spectrum(u).power ** 2).sum())(jnp.asarray(X))
    assert error(slope, np.asarray(whole)) <= 2e-6


@pytest.mark.quick(0)
@pytest.mark.parametrize("vma", [True, False])
def test_power_spectra(vma: bool) -> None:
    """Catches bins of one block in place of the array's, modes counted by every device, and a result that varies."""
    over = mesh(SIZES)
    a, b = put(X, over), put(Y, over)
    run = mapped(lambda u: mf.power_spectrum(u, spec=SPEC, bins=5), over, "xyz", SPEC, P(), check_vma=vma)
    cross = mapped(
        lambda u, v: mf.cross_spectrum(u, v, spec=SPEC, bins=5), over, "xyz", (SPEC, SPEC), P(), check_vma=vma
    )
    size = np.sqrt(sum(k**2 for k in np.meshgrid(*(2 * np.pi * np.fft.fftfreq(n) for n in SHAPE), indexing="ij")))
    edges = np.linspace(0, size.max() * (1 + 1e-6), 6)
    u, v = np.fft.fftn(X.astype(float)) / X.size, np.fft.fftn(Y.astype(float)) / X.size
    counts = np.histogram(size, edges)[0]
    for found, values in ((jax.jit(run)(a), abs(u) ** 2), (jax.jit(cross)(a, b), (u * v.conj()).real)):
        np.testing.assert_array_equal(found.counts, counts)
        np.testing.assert_allclose(found.power, np.histogram(size, edges, weights=values)[0] / counts, atol=1e-7)
        np.testing.assert_allclose(found.k, np.histogram(size, edges, weights=size)[0] / counts, rtol=1e-5)


def test_kernels_that_may_be_blocks_or_whole_are_refused() -> None:
    """Catches a whole kernel of the block's shape convolved as a block, and a block of another array as a whole."""
    over = mesh(SIZES)
    a = put(X, over)
    for kernel, words in ((np.ones((4, 6, 8), "float32"), "the same over x, y, z: if it is a block"),):
        with pytest.raises(ValueError, match=words):
            jax.jit(mapped(lambda u, kernel=kernel: mf.convolve(u, kernel, spec=SPEC), over, "xyz", SPEC, SPEC))(a)
    with pytest.raises(ValueError, match="differs over x, y, z: give a block of that shape"):
        jax.jit(mapped(lambda u: mf.convolve(u, u[:2], spec=SPEC), over, "xyz", SPEC, SPEC))(a)
