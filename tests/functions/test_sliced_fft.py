"""FFTs in float64 by dense factors and integer products: local, moved by all-to-alls, forward and back."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from marks import slow_but, slow_case
from reference import cheapest, mesh, noise

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import collectives
from meshfft.kernels.sliced import fft, fft_error, radices
from meshfft.layout.layout import from_spec
from meshfft.numerics import chunks
from meshfft.numerics.dtypes import Dot
from meshfft.operators.transform import transform_of
from meshfft.steps import Problem, phase_fft
from meshfft.steps.problem import Options
from meshfft.walks.search import search
from meshfft.walks.walk import Walk

pytestmark = pytest.mark.optimised

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


@pytest.mark.quick(2)
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


def _transformed(shape: tuple[int, ...], sizes: tuple[int, ...], method: str) -> mf.Plan:
    """A plan whose value, printed error, inverse and adjoint are right; of plain arrays its gradient and text too."""
    where, spec = mesh(sizes), P(*"xyz"[: len(sizes)])
    x, z = (noise(shape, "complex128", seed) for seed in (0, 1))
    plan = mf.plan(shape, mesh=where, spec=spec, dtype="complex128", precision=TIER, method=method)
    a = mf.shard(x, where, spec)
    y = plan(a)
    assert isinstance(y, mf.PaddedArray) or y.sharding.is_equivalent_to(a.sharding, x.ndim)
    found, truth = np.asarray(mf.gather(y)), _truth(x, tuple(range(x.ndim)))
    assert _off(found, truth) <= min(1e-15, plan.error) and plan.error <= 1e-14 and plan.dots[0].tier == TIER
    assert _off(mf.gather(plan.inverse(y)), x) <= 2e-15
    adjoint = np.asarray(mf.gather(plan.adjoint(mf.shard(z, where, spec))))
    assert abs(np.vdot(z, found) - np.vdot(adjoint, x)) <= 1e-15 * np.linalg.norm(z) * np.linalg.norm(found)
    if not isinstance(a, mf.PaddedArray):
        assert collectives(jax.jit(plan).lower(a).compile()) == plan.collectives
        along = jax.grad(lambda a: jnp.sum(jnp.abs(plan(a)) ** 2))(a)
        assert _off(along, 2 * np.conj(x) * np.prod(shape)) <= 2e-15
    return plan


@pytest.mark.more
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
    plan = _transformed(shape, sizes, "transpose")
    assert "fft" in plan.name and TIER in str(plan)


@pytest.mark.more
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((40,), (4,)),
        ((97,), (8,)),
        slow_case((1000,), (8,)),
        slow_case((12, 10, 9), (2, 2, 2)),
        slow_case((4 * 1031,), (4,)),
        slow_case((2**20,), (8,)),
    ],
)
def test_the_papers_fft(shape: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Catches a comb, twiddle, phase or chirp with fewer bits than float64, whether p or p^2 divides n or not, and a
    shard whose length is a prime too long for one product.
    """
    plan = _transformed(shape, sizes, "cooley-tukey")
    assert plan.name.count("phase ring") == len(shape)


@pytest.mark.more
def test_memory() -> None:
    """Catches a plan that promises less memory than a single line takes, which is not processed in chunks."""
    plan = mf.plan((2**13,), mesh=mesh((4,)), dtype="complex128", precision=TIER, method="cooley-tukey")
    memory = compile_plan(plan, mesh((4,))).memory_analysis()
    assert memory is not None
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert used <= 1.04 * plan.peak_bytes <= 2.7 * used, (used, plan.peak_bytes)


@pytest.mark.more
def test_planes_of_the_papers_fft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a complex128, which TPUs lack, on the way of planes, and a chirp's spectrum made on the mesh wrong."""
    monkeypatch.setattr(phase_fft, "TABLE", 0)
    plan = mf.plan((3, 26), mesh=mesh((4,)), spec=P(None, "x"), axes=(1,), dtype="complex128", precision=TIER,
                   method="cooley-tukey", norm="forward")  # fmt: skip
    x = noise((3, 26), "complex128")
    planes = tuple(mf.shard(part, mesh((4,)), P(None, "x")) for part in (x.real, x.imag))
    re, im = (np.asarray(mf.gather(part)) for part in plan(planes))
    assert _off(26 * (re + 1j * im), _truth(x, (1,))) <= 1e-15
    assert plan.collectives == {"all-to-all": 2 * 3, "collective-permute": 2 * 3 * 3}
    text = jax.jit(plan).lower(planes).compile()
    assert collectives(text) == plan.collectives and "c128[" not in (text.as_text() or "")


@pytest.mark.quick(1, 2, 3, 4, 5)
@pytest.mark.parametrize("method", ["auto", "cooley-tukey"])
@pytest.mark.parametrize(("topology", "sizes"), [("v5e:2x2", (2, 2)), ("v5e:2x2", (4,)), ("v3:2x2", (8,))])
def test_the_search_finds_the_cheapest_walk(topology: str, sizes: tuple[int, ...], method: str) -> None:
    """Catches a phase ring by slices that costs less than the search's lower bound."""
    axes = dict(zip("xy", sizes, strict=False))
    for shape in ((2**20,), (8000,), (97, 12), (64, 48, 96)):
        if len(shape) >= len(sizes):
            machine = mf.plan(shape, mesh=AbstractMesh(sizes, tuple(axes)), topology=topology).machine
            transform = transform_of(tuple(range(len(shape))), shape, None, False)
            dots = tuple(Dot(TIER, m, machine.chip.unit) for m in (4, 3))
            for spec in ([*axes], [None] * (len(shape) - 1) + [tuple(axes)]):
                start = from_spec(shape, axes, spec)
                problem = Problem(start, transform, machine, 16, dots, Options(method), start)
                works = Walk(start, search(problem)[0]).works(16, machine.chip)
                assert sum(map(machine.price, works)) == pytest.approx(cheapest(problem), rel=1e-9)


@pytest.mark.more
def test_real_lines_are_dense_or_refused() -> None:
    """Catches half spectra by the paper's FFT in another precision than was asked for, and real lines done wrong."""
    where, x = mesh((2,)), noise((8, 6), "float64")
    with pytest.raises(ValueError, match="no real lines in int8x7 products: use method='auto' or 'kdft'"):
        mf.rfftn(mf.shard(x, where, P("x")), precision=TIER, method="cooley-tukey")
    half = mf.rfftn(mf.shard(x, where, P("x")), precision=TIER)
    assert _off(mf.gather(half), _truth(x, (0, 1))[:, :4]) <= 1e-15
