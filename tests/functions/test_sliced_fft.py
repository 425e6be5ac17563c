"""FFTs in float64 by dense factors and integer products: local, moved by all-to-alls, there and back."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from marks import slow_but, slow_case
from reference import mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.kernels.sliced import fft, fft_error, radices
from meshfft.numerics import chunks
from meshfft.numerics.dtypes import Dot

TIER = "int8x7"
LENGTHS = slow_but([97, 300], [2, 97, 113, 128, 256, 300, 1000, 2**14, 3 * 331, 2**20])


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def _truth(x: np.ndarray, axes: tuple[int, ...], sign: int = -1) -> np.ndarray:
    """The sum in extended precision, by factors of the length: each a direct sum."""
    y = x.astype(np.clongdouble)
    for axis in axes:
        y = np.moveaxis(_lines(np.moveaxis(y, axis, -1), sign), -1, axis)
    return y


def _lines(y: np.ndarray, sign: int) -> np.ndarray:
    n, tau = y.shape[-1], 8 * np.arctan(np.longdouble(1))
    radix = next((d for d in range(2, n + 1) if n % d == 0), 1)
    if radix == n:
        return y @ np.exp(sign * 1j * tau * (np.outer(np.arange(n), np.arange(n)) % n).astype(np.longdouble) / n)
    inner = _lines(np.swapaxes(y.reshape(*y.shape[:-1], n // radix, radix), -1, -2), sign)
    k, b = np.arange(n), np.arange(radix)
    phases = np.exp(sign * 1j * tau * (np.outer(b, k) % n).astype(np.longdouble) / n)
    return np.einsum("...bk,bk->...k", np.concatenate([inner] * radix, -1), phases)


def _off(y: object, truth: np.ndarray) -> float:
    return float(np.linalg.norm((np.asarray(y) - truth).astype(complex)) / np.linalg.norm(truth.astype(complex)))


@pytest.mark.parametrize("multiplications", slow_but([3], [3, 4]))
@pytest.mark.parametrize("n", LENGTHS)
def test_lines(n: int, multiplications: int) -> None:
    """Catches a twiddle factor of the wrong sign or place, and a factor whose output is not put in order."""
    dot, x = Dot(TIER, multiplications), noise((2, n, 3) if n < 2000 else (1, n), "complex128", n)
    assert np.prod(radices(n) or (0,)) == n
    re, im = jax.jit(lambda a, b: fft((a, b), (1,), 1, dot))(x.real, x.imag)
    got = _off(np.asarray(re) + 1j * np.asarray(im), _truth(x, (1,), 1))
    assert got <= fft_error(n, dot) <= 1e-14 and got <= 1e-15


def test_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches lines that are left out of all chunks, or taken from another than where they are put."""
    monkeypatch.setattr(chunks, "CHUNK", 125)
    x, dot = noise((3, 12, 20), "complex128"), Dot(TIER, 3)
    re, im = jax.jit(lambda a, b: fft((a, b), (1,), -1, dot))(x.real, x.imag)
    assert _off(np.asarray(re) + 1j * np.asarray(im), _truth(x, (1,))) <= 1e-15


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((4, 6), (2,)),
        slow_case((97, 113, 89), (8,)),
        slow_case((64, 64, 64), (2, 4)),
        slow_case((32, 32, 32), (2, 2, 2)),
        slow_case((128, 128, 128), (8,)),
    ],
)
def test_sharded(shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Catches a walk that leaves float64 between its steps, and an inverse, adjoint or gradient of another tier."""
    where, spec = mesh(sizes), P(*"xyz"[: len(sizes)])
    x, plan = noise(shape, "complex128"), mf.plan(shape, mesh=where, spec=spec, dtype="complex128", precision=TIER)
    a = mf.shard(x, where, spec)
    y, truth = plan(a), _truth(x, tuple(range(x.ndim)))
    got = _off(mf.gather(y), truth)
    assert got <= 1e-15 and got <= plan.error <= 1e-14 and "fft" in plan.name and TIER in str(plan)
    assert _off(mf.gather(plan.inverse(y)), x) <= 2e-15
    if isinstance(a, mf.PaddedArray):
        return
    assert y.sharding.is_equivalent_to(a.sharding, x.ndim)
    assert collectives(jax.jit(plan).lower(a).compile()) == plan.collectives
    along = jax.grad(lambda a: jnp.sum(jnp.abs(plan(a)) ** 2))(a)
    assert _off(along, 2 * np.conj(x) * np.prod(shape)) <= 2e-15


def test_what_has_no_such_form_is_refused_or_dense() -> None:
    """Catches the paper's FFT of a cut dimension in another precision than was asked for, and real lines done wrong."""
    where, x = mesh((2,)), noise((8, 6), "float64")
    with pytest.raises(ValueError, match="no phases in int8x7 products: use method='auto'"):
        mf.plan((8, 6), mesh=where, dtype="complex128", precision=TIER, method="cooley-tukey")
    half = mf.rfftn(mf.shard(x, where, P("x")), precision=TIER)
    assert _off(mf.gather(half), _truth(x, (0, 1))[:, :4]) <= 1e-15
