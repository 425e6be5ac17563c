"""Plans to the lowest modes: values, inverses, gradients, bytes sent, the search, wavenumbers, refusals."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.fft
from jax import Array
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import cheapest, error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives, every_collective, program_of
from meshfft.layout.layout import from_spec
from meshfft.machine.chips import CPU
from meshfft.machine.machine import Machine
from meshfft.numerics.dtypes import Dot
from meshfft.operators.lowest import lowest
from meshfft.operators.transform import transform_of
from meshfft.steps.problem import Options, Problem
from meshfft.walks.choice import natural_end
from meshfft.walks.search import search
from meshfft.walks.walk import Walk

Case = tuple[tuple[int, ...], P, tuple[int, ...], Any, dict[str, Any]]
SIZES = (12, 10, 15)
CASES: dict[str, Case] = {
    "pencils": ((2, 4), P("x", "y"), (5, 4, 7), "fft", {}),
    "real, any order": ((2, 4), P("x", "y"), (5, 7, 9), "rfft", {"order": "any"}),
    "transposes": ((2, 2), P("x", "y"), (12, 3, 6), "fft", {"method": "transpose"}),
    "rings": ((2,), P("x"), (6, -1, 1), "fft", {"method": "kdft"}),
    "series": ((2, 4), P("x", "y"), (5, 3, 9), ("dct-2", "dst-2", "rfft"), {"method": "transpose"}),
    "one device": ((1,), P(), (1, 10, 8), "fft", {"norm": "ortho"}),
}


def _kept(n: int, many: int, kind: str, last: bool) -> np.ndarray:
    """Indices of the modes."""
    many = n if many == -1 else many
    if kind == "rfft" and last:
        return np.arange(many // 2 + 1)
    return np.arange(many) if kind[0] == "d" else np.r_[: (many + 1) // 2, n - many // 2 : n]


def _spectrum(x: np.ndarray, kinds: tuple[str, ...]) -> np.ndarray:
    """The whole transform in float64, along the halved axis first."""
    y = x.astype("c16" if x.dtype.kind == "c" else "f8")
    for axis in reversed(range(x.ndim)):
        kind = kinds[axis] if axis == x.ndim - 1 else kinds[axis].replace("r", "")
        if kind[0] == "d":
            one = scipy.fft.dct if kind[1] == "c" else scipy.fft.dst
            y = one(y.real, int(kind[-1]), axis=axis) + (
                1j * one(y.imag, int(kind[-1]), axis=axis) if y.dtype.kind == "c" else 0
            )
        else:
            y = (np.fft.rfft if kind == "rfft" else np.fft.fft)(y, axis=axis)
    return y


@pytest.mark.quick(5)
@pytest.mark.parametrize("case", CASES)
def test_the_lowest_modes(case: str) -> None:
    """Catches another mode, one in another place, an inverse or a gradient that is not theirs, and a gather."""
    sizes, spec, many, kind, how = CASES[case]
    kinds = (kind,) * 3 if isinstance(kind, str) else kind
    x = noise(SIZES, "float32" if kinds[-1] == "rfft" else "complex64")
    plan = mf.plan(SIZES, mesh=mesh(sizes), spec=spec, kind=kind, modes=many, **how)
    at = [_kept(n, k, one, axis == 2) for axis, (n, k, one) in enumerate(zip(SIZES, many, kinds, strict=True))]
    want = _spectrum(x, kinds)[np.ix_(*at)] * plan.transform.scale
    a = mf.shard(x, mesh(sizes), spec)
    y = plan(a)
    assert plan.out_shape == want.shape and error(mf.gather(y), want) <= max(plan.error, 1e-6)
    back = plan.inverse(y)
    assert error(mf.gather(plan(back)), want) <= 2e-6  # these have their conjugates
    if how.get("order") != "any":
        assert plan.out_layout.axes == plan.in_layout.axes
    program = plan.inverse if isinstance(y, mf.PaddedArray) else jax.jit(plan.inverse)
    assert error(mf.gather(program(y)), mf.gather(back)) <= 1e-6
    seen = collectives(jax.jit(plan).lower(a).compile())
    assert seen.keys() <= {"all-to-all", "collective-permute"}
    z, pull = jax.vjp(plan, a)
    (slope,) = pull(z)
    inner = np.vdot(mf.gather(slope).conj(), x) if x.dtype.kind == "c" else np.vdot(mf.gather(slope), x)
    squared = np.sum(want * want) if x.dtype.kind == "c" else np.sum(want * want).real
    assert abs(inner - squared) <= 1e-4 * np.sum(abs(want) ** 2)


def test_what_is_dropped_is_not_sent() -> None:
    """Catches a block that is cropped after it was sent, by the compiled text, and padding that is sent back."""
    where: Any = {"mesh": mesh((2, 4)), "spec": P("x", "y"), "method": "transpose", "order": "any"}
    whole, part = (mf.plan((32, 32, 32), modes=many, **where) for many in (None, 16))
    a = mf.shard(noise((32, 32, 32)), mesh((2, 4)), P("x", "y"))

    def sent(call: Callable[[Array], Any], x: Any) -> int:
        run = every_collective(program_of(jax.jit(call).lower(x).compile()))
        return sum(one.times * one.bytes for one in run)

    assert part.work.sent_bytes <= 0.45 * whole.work.sent_bytes
    assert sent(part, a) <= 0.5 * sent(whole, a) and sent(part.inverse, part(a)) <= 0.5 * sent(whole.inverse, whole(a))
    assert "16 of 32" in str(part) and part.out_shape == (16, 16, 16)


@pytest.mark.parametrize("kind", ["fft", "rfft"])
def test_the_search_finds_the_cheapest_walk(kind: str) -> None:
    """Catches a lower bound that is invalid where the transform leaves fewer numbers."""
    shape, dims = (16, 24, 12), (0, 1, 2)
    start = from_spec(shape, {"x": 4, "y": 2}, P("x", "y"))
    for many in (3, 9):
        transform = lowest(transform_of(dims, shape, None, False, kind), (many, 24, many))
        for goal in (None, natural_end(start, transform)):
            problem = Problem(
                start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(), goal, real=kind == "rfft"
            )
            (steps,) = search(problem)
            works = Walk(start, steps, real=problem.real).works(8, CPU)
            assert sum(map(Machine(CPU).price, works)) == pytest.approx(cheapest(problem), rel=1e-9)


def test_a_ball_of_modes() -> None:
    """Catches wavenumbers of another order than the modes."""
    x = noise((16, 12, 20), "float32")
    plan = mf.plan(x.shape, mesh=mesh((2, 4)), spec=P("x", "y"), kind="rfft", modes=(9, 9, 9), order="any")
    kx, ky, kz = mf.wavenumbers(plan, (2 * np.pi,) * 3)
    with jax.numpy_dtype_promotion("standard"):
        ball = plan.inverse(plan(mf.shard(x, mesh((2, 4)), P("x", "y"))) * (kx**2 + ky**2 + kz**2 <= 16.5))
    k = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in x.shape), indexing="ij")
    want = np.fft.ifftn(np.fft.fftn(x) * (sum(q**2 for q in k) <= 16.5)).real
    assert error(mf.gather(ball), want) <= 1e-6
    box = np.meshgrid(*(abs(q) <= 4 for q in (np.fft.fftfreq(n, 1 / n) for n in x.shape)), indexing="ij")
    found = plan.inverse(plan(mf.shard(x, mesh((2, 4)), P("x", "y"))))
    assert error(mf.gather(found), np.fft.ifftn(np.fft.fftn(x) * np.all(box, 0)).real) <= 1e-6


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "none": ({"modes": 0}, ValueError, "modes is 0 along axis 0, which has 16 points: give 1 to 16"),
    "many": ({"modes": 17}, ValueError, "modes is 17"),
    "two": ({"modes": (3, 4)}, ValueError, "modes has 2 numbers for 1 axes"),
    "half": ({"modes": 2.5}, TypeError, "modes is 2.5"),
    "inverse": ({"modes": 5, "inverse": True}, ValueError, "plan.inverse"),
    "points": ({"modes": 5, "points": [mf.Points.turns([0.1])]}, ValueError, "points cannot go with s, modes"),
    "scattered": ({"modes": 5, "points": mf.Scattered.turns([[0.1]])}, ValueError, "without modes="),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    """Catches more modes than exist, and modes of transforms without any."""
    how, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        mf.plan((16,), mesh=AbstractMesh((2,), ("x",)), **how)
