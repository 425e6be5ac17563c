"""Transforms in float64 by integer products, on devices that share nothing: the code that TPUs run, on CPUs by name."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from marks import slow_case
from reference import mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.numerics import chunks

pytestmark = pytest.mark.optimised

TIER = "int8x7"
CASES = [(64, "z"), *(slow_case(n, kind) for n in (64, 1000, 8192) for kind in ("uniform", "turns", "z"))]


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def _points(kind: str, n: int) -> mf.Points | None:
    rng = np.random.default_rng(n)
    z = np.exp(rng.uniform(-0.5, 0.5, n) / n + 2j * np.pi * rng.random(n))
    return {"uniform": None, "turns": mf.Points.turns(rng.random(n)), "z": mf.Points.z(z)}[kind]


def _rows(points: mf.Points | None, n: int, k: np.ndarray) -> np.ndarray:
    """V[k, n] in extended precision."""
    at = np.arange(n, dtype=np.longdouble)
    tau = 8 * np.arctan(np.longdouble(1))
    if points is None:
        return np.exp(-1j * tau * ((k[:, None] * np.arange(n)) % n).astype(np.longdouble) / n)
    lost: Any = (0.0, 0.0) if points.rest is None else points.rest  # what logarithms lose as one float
    angle = (np.asarray(points.angle, np.longdouble) + lost[0])[k] / (1 if points.unit == "turns" else tau)
    given = np.zeros(n) if points.log_radius is None else points.log_radius
    radius, turns = (np.asarray(given, np.longdouble) + lost[1])[k], angle[:, None] * at
    return np.asarray(np.exp(-radius[:, None] * at - 1j * tau * (turns - np.floor(turns))))


def _off(y: object, truth: np.ndarray) -> float:
    return float(np.linalg.norm((np.asarray(y) - truth).astype(complex)) / np.linalg.norm(truth.astype(complex)))


@pytest.mark.more
@pytest.mark.parametrize(("n", "kind"), CASES)
def test_kdft(n: int, kind: str) -> None:
    """Catches a slice that is lost on the ring, a phase of fewer bits than the values, and an adjoint that is not."""
    x, points, where = noise((n, 3), "complex128", n), _points(kind, n), mesh((8,))
    plan = mf.plan((n, 3), mesh=where, spec=P("x"), axes=(0,), dtype="complex128", method="kdft", precision=TIER,
                   points=None if points is None else [points])  # fmt: skip
    a = mf.shard(x, where, P("x"))
    y: Any = plan(a)
    assert isinstance(y, mf.PaddedArray) or y.sharding.is_equivalent_to(a.sharding, 2)
    y = np.asarray(mf.gather(y))
    k = np.random.default_rng(1).choice(n, min(n, 40), replace=False)
    got = _off(y[k], _rows(points, n, k) @ x.astype(np.clongdouble))
    assert got <= 1e-14 and got <= plan.error and plan.dots[0].tier == TIER
    z = noise((n, 3), "complex128", n + 1)
    back = np.asarray(mf.gather(plan.adjoint(mf.shard(z, where, P("x")))))
    assert abs(np.vdot(z, y) - np.vdot(back, x)) <= 1e-14 * np.linalg.norm(y) * np.linalg.norm(z)
    if points is None:
        assert _off(mf.gather(plan.inverse(mf.shard(y, where, P("x")))), x.astype(np.clongdouble)) <= 1e-14


@pytest.mark.more
def test_separable_and_what_travels() -> None:
    """Catches real matrices and blocks that become complex, and blocks that travel sliced, which are more bytes."""
    rng, where = np.random.default_rng(0), mesh((2,))
    x, matrix = rng.standard_normal((24, 6)), rng.standard_normal((16, 24))
    a = mf.shard(x, where, P("x"))
    y = mf.apply_separable([matrix, None], a, precision=TIER)
    assert y.dtype == np.float64 and _off(y, matrix.astype(np.longdouble) @ x.astype(np.longdouble)) <= 1e-15
    plan = mf.plan((24, 6), mesh=where, axes=(0,), dtype="complex128", method="kdft", precision=TIER)
    text = jax.jit(plan).lower(a.astype(complex)).compile()
    assert collectives(text) == plan.collectives and set(plan.collectives) == {"collective-permute"}
    sent = {line for line in (text.as_text() or "").splitlines() if " collective-permute" in line}
    assert sent and all("f64[12,6]" in line or "c128[12,6]" in line for line in sent)


@pytest.mark.more
def test_chunks_on_a_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a loop over chunks whose sums vary over other mesh axes than it starts with, and lines it leaves out."""
    monkeypatch.setattr(chunks, "CHUNK", 30)
    where, x = mesh((2, 2)), noise((20, 6, 4), "complex128")
    plan = mf.plan(x.shape, mesh=where, spec=P("x", "y"), dtype="complex128", method="kdft", precision=TIER)
    y = plan(mf.shard(x, where, P("x", "y")))
    assert _off(mf.gather(y), np.fft.fftn(x.astype(np.clongdouble))) <= 1e-15


@pytest.mark.more
def test_gradients() -> None:
    """Catches a zero gradient of a rounding: it must use the transposed walk, in the same tier."""
    n, where = 48, mesh((2,))
    x, turns = noise((n,), "complex128"), np.random.default_rng(1).random(n)
    a, matrix = mf.shard(x, where, P("x")), _rows(mf.Points.turns(turns), n, np.arange(n))

    def energy(a: jax.Array, t: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(mf.kdftn(a, mf.Points.turns(t), spec=P("x"), precision=TIER)) ** 2)

    along, moved = jax.grad(energy, argnums=(0, 1))(a, jnp.asarray(turns))
    truth = matrix @ x.astype(np.clongdouble)
    assert _off(along, 2 * np.conj(matrix.conj().T @ truth)) <= 1e-14
    slope = -2j * np.pi * (matrix @ (x * np.arange(n)).astype(np.clongdouble))
    assert _off(moved, 2 * np.real(np.conj(truth) * slope)) <= 1e-13
