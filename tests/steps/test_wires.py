"""Transforms over wires: the printed number of bytes, at most the printed error, and gradients that pass."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_case
from reference import chips_without_caches, dft, error, mesh, noise

import meshfft as mf
from meshfft.collectives.wires import LEAST_ROOM, WIRES, Tiled, form_of
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import counts, every_collective, program_of
from meshfft.steps import PackedFFT

# name: (shape, mesh, spec, options)
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], P, dict[str, Any]]] = {
    "slab": ((64, 64, 64), (8,), P("x"), {}),
    "pencil": ((64, 64, 64), (2, 4), P("x", "y"), {}),
    "block": ((64, 64, 64), (2, 2, 2), P("x", "y", "z"), {}),
    "block, in any order": ((64, 64, 64), (2, 2, 2), P("x", "y", "z"), {"order": "any"}),
    "uneven": ((13, 7, 11), (2, 2, 2), P("x", "y", "z"), {}),
    "rings": ((64, 64, 64), (2, 4), P("x", "y"), {"method": "kdft"}),
    "one-way rings, uneven": ((13, 7, 11), (4,), P("x"), {"method": "kdft", "ring": "one-way"}),
    "the paper's FFT": ((64, 64, 64), (2, 4), P("x", "y"), {"method": "cooley-tukey"}),
    "the paper's FFT, uneven": ((36, 7, 11), (4,), P("x"), {"method": "cooley-tukey"}),
    "the paper's FFT by a chirp": ((37, 7), (4,), P("x"), {"method": "cooley-tukey"}),
    "six steps": ((4096, 16), (4,), P("x"), {}),
    "real": ((64, 64, 64), (2, 4), P("x", "y"), {"kind": "rfft"}),
    "real, cut last": ((16, 128), (4,), P(None, "x"), {"kind": "rfft"}),
    "real, by pairs": ((4, 8192), (4,), P(None, "x"), {"kind": "rfft", "method": "cooley-tukey"}),
    "cosines": ((32, 32, 32), (2, 4), P("x", "y"), {"kind": "dct-2"}),
}
EXACT: dict[str, Any] = {"fft": np.fft.fftn, "rfft": np.fft.rfftn, "dct-2": scipy.fft.dctn}
LEAST = {"int16": 1e-5, "bfloat16": 1e-3, "int24": 5e-8}  # what rounding to so many bits adds to any noise
LOSSY = [name for name in WIRES if name != "exact"]
SOME = dict.fromkeys((name, wire) for j, name in enumerate(CASES) for wire in ("int16", LOSSY[j % 3 - 1]))
QUICK = [(name, LOSSY[j % 3]) for j, name in enumerate(CASES)]


def _plan(name: str, wire: str) -> tuple[mf.Plan, Any]:
    shape, sizes, spec, options = CASES[name]
    return mf.plan(shape, mesh=mesh(sizes), spec=spec, wire=wire, **options), mesh(sizes)


def _bytes(plan: mf.Plan, sizes: dict[str, int]) -> int:
    """Bytes of all collectives' results, including the share of an all-to-all that stays."""
    exchanged = [move for move in plan.work.moves if move.kind == "all-to-all"]
    stays = sum(move.times * move.nbytes // math.prod(sizes[axis] for axis in move.axes) for move in exchanged)
    return plan.work.sent_bytes + stays


@pytest.mark.quick(33)
@pytest.mark.parametrize(
    ("name", "wire"), [row if row in QUICK else slow_case(*row) for row in SOME | dict.fromkeys(QUICK)]
)
def test_as_many_bytes_and_no_more_error_than_the_plan_says(name: str, wire: str) -> None:
    """Catches a step that sends floats, a scale in a separate message, bytes priced otherwise than sent, an error
    beyond the printed one, and an inverse with another wire.
    """
    plan, where = _plan(name, wire)
    assert name != "real, by pairs" or isinstance(plan.walk.steps[0], PackedFFT)
    program = compile_plan(plan, where)
    sent = every_collective(program_of(program))
    assert sum(one.bytes * one.times for one in sent) == _bytes(plan, dict(where.shape))
    assert counts(sent) == plan.collectives
    x = noise(plan.shape, "float32" if plan.walk.real else "complex64")
    y = program(mf.shard(x, where, plan.in_layout.spec))
    exact = EXACT[CASES[name][3].get("kind", "fft")](x.astype(complex if x.dtype.kind == "c" else float))
    assert LEAST[wire] < error(mf.gather(y), exact) <= plan.error
    if plan.transform.inverse_scale is not None:
        assert error(mf.gather(plan.inverse(y)), x) <= 2 * plan.error


@pytest.mark.parametrize("name", ["slab", "pencil", "block", "rings", "the paper's FFT"])
def test_int16_halves_what_is_sent_and_int24_takes_a_quarter_off(name: str) -> None:
    """Catches a wire that saves less than it is for: of 64^3 scales are a thirtieth at most."""
    plan, _ = _plan(name, "exact")
    for wire, part in (("int16", 0.5), ("int24", 0.75), ("bfloat16", 0.5)):
        sent = plan.walk.wired(WIRES[wire]()).work(8, plan.machine.chip).sent_bytes / plan.work.sent_bytes
        assert part <= sent <= part + (0 if wire == "bfloat16" else 0.035), wire


@pytest.mark.slow
def test_words_in_tiles_between_kernels(wire: str = "int24") -> None:
    """Catches tiles that are read in another order than written, bytes priced otherwise than sent, kernels for words
    that take no cycles of the plan, and a switch that leaves them in. Elsewhere than on TPUs XLA writes the same words.
    """
    shape, where = (16, 64, 1024), mesh((8,))
    how: dict[str, Any] = {"mesh": where, "spec": P("x"), "topology": "v3:2x2", "wire": wire}
    plan, exact = mf.plan(shape, **how), mf.plan(shape, **how | {"wire": "exact"})
    tiled = [isinstance(form_of((2, 1, 8, 1024), 1, WIRES[wire](room=room)), Tiled) for room in (LEAST_ROOM, 0)]
    assert tiled == [True, False] and "vector" in plan.name
    assert plan.work.kernel_cycles > exact.work.kernel_cycles
    plain, apart = (mf.plan(shape, **how | {"engine": "xla", "wire": name}) for name in ("exact", wire))
    assert plain.work.kernel_cycles == apart.work.kernel_cycles == 0
    x, w = noise(shape, seed=1), noise(shape, seed=2)
    xs, ws = (mf.shard(one, where, plan.in_layout.spec) for one in (x, w))
    run = jax.jit(plan).lower(xs).compile()
    sent = every_collective(program_of(run))
    assert counts(sent) == plan.collectives
    assert sum(one.bytes * one.times for one in sent) == _bytes(plan, dict(where.shape))
    assert 0 < error(mf.gather(run(xs)), np.fft.fftn(x.astype(complex))) <= plan.error
    back = mf.gather(jax.jit(plan.adjoint)(ws))
    assert 0 < error(back, np.fft.ifftn(w.astype(complex), norm="forward")) <= plan.error


@pytest.mark.quick(2)
@pytest.mark.parametrize("wire", LOSSY)
def test_gradients_pass_straight_through(wire: str) -> None:
    """Catches a slope of zero, as rounding has, and a way back that sends otherwise than the way there."""
    plan, where = _plan("pencil", wire)
    x, y = (mf.shard(noise(plan.shape, seed=seed), where, plan.in_layout.spec) for seed in (0, 1))
    out, pull = jax.vjp(plan, x)
    truth = np.fft.fftn(mf.gather(y).astype(complex))
    assert out.sharding == plan(x).sharding
    program = jax.jit(pull).lower(y).compile()
    assert 0 < error(mf.gather(program(y)[0]), truth) <= plan.error
    assert "u32" in (program.as_text() or "") and "all-to-all" in (program.as_text() or "")
    _, change = jax.jvp(plan, (x,), (y,))
    assert error(mf.gather(change), truth) <= plan.error


@pytest.mark.more
@pytest.mark.parametrize("wire", ["int16", "bfloat16"])
def test_gradients_in_points_and_matrices(wire: str) -> None:
    """Catches a derivative of the rounding itself, zero almost everywhere, if one ring sends another's result."""
    where = mesh((2, 2))
    x, spec = jax.device_put(noise((12, 8)), NamedSharding(where, P("x", "y"))), P("x", "y")
    turns, matrices = jnp.linspace(0.0, 0.9, 8), [jnp.asarray(noise((n, n), "float32", n)) for n in (12, 8)]

    def power(turns: Any, matrices: Any, wire: str) -> Any:
        y = mf.kdftn(x, [None, mf.Points.turns(turns)], spec=spec, wire=wire)
        z = mf.apply_separable(matrices, y, spec=spec, wire=wire)
        return jnp.sum(jnp.abs(z) ** 2 * jnp.arange(8.0)[None, :])

    exact, found = (jax.tree.leaves(jax.grad(power, (0, 1))(turns, matrices, one)) for one in ("exact", wire))
    for true, one in zip(exact, found, strict=True):
        assert 0 < error(one, np.asarray(true)) <= (3e-3 if wire == "int16" else 3e-2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_values_of_any_size_at_many_decades(scale: float) -> None:
    """Catches scales that leave float32, in a field whose spectrum falls by twelve decades and in a spike."""
    plan, where = _plan("block", "int16")
    k = np.fft.fftfreq(64, 1 / 64)
    size = np.sqrt(sum(np.meshgrid(k**2, k**2, k**2, indexing="ij")))
    smooth = np.fft.ifftn(noise(plan.shape) * 10 ** (-12 * size / size.max()))
    spike = np.zeros(plan.shape)
    spike[3, 4, 5] = 1
    for x in (smooth / np.abs(smooth).max(), spike):
        x = (x * scale).astype(np.complex64)
        y = mf.gather(plan(mf.shard(x, where, plan.in_layout.spec)))
        assert error(y / scale, np.fft.fftn(x.astype(complex)) / scale) <= plan.error


CROPPED: dict[str, tuple[tuple[int, ...], tuple[int, ...], P, dict[str, Any]]] = {
    "all-to-all": ((16, 9), (2, 2), P("x", "y"), {"s": (6, 4)}),
    "half a spectrum": ((16, 9), (2, 2), P("x", "y"), {"s": (6, 4), "kind": "rfft", "inverse": True}),
}


@pytest.mark.quick(0)
@pytest.mark.parametrize("name", CROPPED)
def test_what_is_cropped_takes_no_digits(name: str) -> None:
    """Catches large numbers that are cropped later but set the scale of small ones beside them, which were then
    silently lost.
    """
    shape, sizes, spec, options = CROPPED[name]
    plan, exact = (mf.plan(shape, mesh=mesh(sizes), spec=spec, wire=wire, **options) for wire in ("int16", "exact"))
    x = noise(shape)
    kept = tuple(slice(matrix.columns) for matrix in plan.transform.matrices)
    x[kept] *= np.float32(1e-6)
    shared = mf.shard(x, mesh(sizes), spec)
    assert 0 < error(mf.gather(plan(shared)), mf.gather(exact(shared))) <= plan.error
    assert plan.collectives == exact.collectives


def test_infinities_and_nan_spoil_what_they_reach_alone() -> None:
    """Catches NaN that becomes a number on the way, and one that spoils lines that it is no part of."""
    where = mesh((4,))
    x = noise((8, 64))
    x[2, 7], x[5, 9] = np.nan, np.inf
    y = mf.gather(mf.fft(mf.shard(x, where, P(None, "x")), wire="int16", method="kdft"))
    whole = np.isfinite(y).all(1)
    np.testing.assert_array_equal(whole, ~np.isin(np.arange(8), [2, 5]))
    assert not np.isfinite(y[[2, 5]]).any()
    kept = np.delete(np.arange(8), [2, 5])
    assert error(y[kept], dft(x[kept], (1,))) <= 4e-4


@pytest.mark.more
def test_double_precision_in_a_quarter_of_the_bytes(x64: None) -> None:
    """Catches float64 whose message is as long as that of exact floats, or rounded to float32 before."""
    for wire, part in (("int16", 0.25), ("int24", 0.375)):
        plan = mf.plan((64, 64, 64), mesh=mesh((8,)), spec=P("x"), dtype="complex128", wire=wire)
        exact = mf.plan((64, 64, 64), mesh=mesh((8,)), spec=P("x"), dtype="complex128")
        assert part <= plan.work.sent_bytes / exact.work.sent_bytes <= part + 0.02
        x = noise(plan.shape, "complex128") * 1e200
        y = mf.gather(plan(mf.shard(x, mesh((8,)), P("x"))))
        assert y.dtype == np.complex128 and error(y / 1e200, dft(x / 1e200, (0, 1, 2))) <= plan.error


@pytest.mark.more
def test_split_complex_travels_in_one_message() -> None:
    """Catches planes sent separately, each with its scales, as on chips that keep planes."""
    with chips_without_caches():
        for method in ("transpose", "kdft"):
            plan = mf.plan((32, 32, 32), mesh=mesh((2, 2)), spec=P("x", "y"), method=method, wire="int24")
            assert all(step.numbers.planar for step in plan.walk.steps) or method == "transpose"
            sent = every_collective(program_of(compile_plan(plan, mesh((2, 2)), planes=True)))
            assert counts(sent) == plan.collectives
            assert sum(one.bytes * one.times for one in sent) == _bytes(plan, {"x": 2, "y": 2})
            x = noise(plan.shape)
            re, im = plan(tuple(mf.shard(part.copy(), mesh((2, 2)), P("x", "y")) for part in (x.real, x.imag)))
            assert error(mf.gather(re) + 1j * mf.gather(im), np.fft.fftn(x.astype(complex))) <= plan.error


def test_nothing_is_lost_unasked() -> None:
    """Catches a lossy wire that a search chooses unasked, and a plan that does not print its wire."""
    plan, _ = _plan("block", "exact")
    assert plan.to_dict()["wire"] == "exact" and plan.error < 4e-7
    lossy, _ = _plan("block", "int16")
    assert "int16 on the wire" in str(lossy) and lossy.error > plan.error
    alone = mf.plan((8, 8), wire="int16")
    assert alone.error == mf.plan((8, 8)).error, "nothing is sent"


def test_wires_that_do_not_fit_are_refused(x64: None) -> None:
    """Catches a wire that is ignored where it cannot be had."""
    with pytest.raises(ValueError, match="wire 'int8' is unknown"):
        mf.fftn(noise((4, 4)), wire="int8")
    with pytest.raises(ValueError, match="lacks the range of float64"):
        mf.plan((8, 8), dtype="complex128", wire="bfloat16")
    points = mf.Scattered.turns([[0.1, 0.2], [0.3, 0.4]])
    with pytest.raises(ValueError, match="lacks the range of float64"):
        mf.kdftn(noise((4, 4), "complex128"), points, wire="bfloat16")
