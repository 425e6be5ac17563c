"""Every method on drawn shapes, meshes, specs, axes and orders, against the direct sum and by the laws."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import Layout
from meshfft.layout.padded_array import mapped, padded, stored_of
from meshfft.plans.primitive import bind
from meshfft.steps import PhaseFFT, phase_fft

METHODS = ("auto", "transpose", "cooley-tukey", "kdft")
BOUNDS = {"complex64": {"kdft": 4e-7, "auto": 4e-7, "cooley-tukey": 3e-7}, "complex128": {}}  # chirps: 3e-7
SEEDS = st.integers(0, 2**31)


def _plan(case: Case, **options: object) -> mf.Plan | None:
    """The plan, or None if the method has no walk."""
    try:
        return mf.plan(case.shape, mesh=mesh(case.mesh), spec=case.spec, axes=case.axes, **options)  # type: ignore[arg-type]
    except ValueError as refused:
        assert options["method"] in ("cooley-tukey", "transpose"), refused
        assert "use method='auto'" in str(refused)
        return None


def _shard(plan: mf.Plan, x: np.ndarray) -> Any:
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    return mf.shard(x, plan.mesh, plan.in_layout.spec)


def _sharded(y: jax.Array, plan: mf.Plan, layout: Layout) -> bool:
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    return y.sharding.is_equivalent_to(jax.sharding.NamedSharding(plan.mesh, layout.spec), y.ndim)


@given(cases(), st.sampled_from(METHODS), st.sampled_from(["natural", "any"]), st.booleans(), SEEDS)
def test_value_sharding_and_round_trip(case: Case, method: str, order: str, inverse: bool, seed: int) -> None:
    """Catches any wrong value, a result sharded otherwise than promised, and an inverse that is not one."""
    plan = _plan(case, method=method, order=order, inverse=inverse)
    if plan is None:
        return
    x = noise(case.shape, seed=seed)
    y = plan(_shard(plan, x))
    truth = dft(x, case.axes, sign=1 if inverse else -1)
    truth *= 1 / np.prod([case.shape[a] for a in case.axes]) if inverse else 1
    bound = BOUNDS["complex64"].get(method, 2e-7)
    assert error(mf.gather(y), truth) <= bound
    assert np.count_nonzero(stored_of(y)) == np.count_nonzero(mf.gather(y)), "padding is not zero"
    assert _sharded(y, plan, plan.out_layout) and stored_of(y).shape == plan.out_layout.storage
    assert order == "any" or plan.out_layout == plan.in_layout
    assert error(mf.gather(plan.inverse(y)), x) <= 2 * bound


@given(st.integers(0, 2).flatmap(cases), st.booleans(), SEEDS)
def test_the_papers_fft_at_any_size(case: Case, inverse: bool, seed: int) -> None:
    """Catches a wrong comb, chirp, twiddle or phase, whether p or p^2 divides n or not."""
    plan = mf.plan(
        case.shape, mesh=mesh(case.mesh), spec=case.spec, axes=case.axes, method="cooley-tukey", inverse=inverse
    )
    cut = [d for d in case.axes if plan.in_layout.parts[d] > 1]
    assert sum(isinstance(step, PhaseFFT) for step in plan.walk.steps) == len(cut)
    x = noise(case.shape, seed=seed)
    truth = dft(x, case.axes, sign=1 if inverse else -1) * plan.transform.scale
    assert error(plan(_shard(plan, x)), truth) <= 3e-7  # 2.4e-7 for 13 x 9


@given(cases(), st.sampled_from(METHODS), SEEDS)
def test_double_precision(case: Case, method: str, seed: int) -> None:
    """Catches float32 anywhere in the complex128 path: a table, a phase, a product."""
    with jax.enable_x64(True):
        plan = _plan(case, method=method, dtype="complex128")
        if plan is None:
            return
        x = noise(case.shape, "complex128", seed)
        y = plan(_shard(plan, x))
        assert y.dtype == np.complex128
        assert error(mf.gather(y), dft(x, case.axes)) <= 2e-15


@pytest.mark.quick(8)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [11, 31, 60, 97, 131])
def test_no_line_has_more_error_than_plans_print(x64: None, n: int, dtype: str) -> None:
    """Catches an error that holds for noise alone: of a constant line or a wave, roundings of a sum of n numbers do not
    cancel, and a factor that is rounded is wrong everywhere by the same.
    """
    k = np.arange(n)
    waves = [np.exp(2j * np.pi * k * j / n + 1j) for j in (0, 1, n // 2)]
    lines = np.stack([*waves, (-1.0) ** k / 3 + 0j, np.eye(n)[n // 2] / 3, noise((n,), "complex128")]).astype(dtype)
    for kind, norm in (("fft", None), ("fft", "ortho"), ("rfft", "ortho"), ("dct-3", "ortho"), ("dct-1", None)):
        x = lines if kind == "fft" else lines.real.copy()
        exact = {"fft": scipy.fft.ifft, "rfft": scipy.fft.rfft}.get(kind) or functools.partial(
            scipy.fft.dct, type=int(kind[-1])
        )
        plan = mf.plan(x.shape, axes=(1,), kind=kind, norm=norm, dtype=x.dtype, inverse=kind == "fft")
        truth = exact(x.astype(np.clongdouble if kind == "fft" else np.longdouble), norm=norm)
        assert max(map(error, np.asarray(plan(x)), truth)) <= plan.error, (kind, norm)


@given(cases(), st.sampled_from(METHODS), st.sampled_from(["natural", "any"]))
def test_collectives_are_those_the_plan_prints(case: Case, method: str, order: str) -> None:
    """Catches a gather, a reduction, or any collective that the plan does not own up to."""
    plan = _plan(case, method=method, order=order)
    if plan is None:
        return
    where = jax.sharding.NamedSharding(mesh(case.mesh), plan.in_layout.spec)
    stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, plan.dtype, sharding=where)
    x = padded(stored, plan.in_layout, plan.mesh)
    assert collectives(jax.jit(plan).lower(x).compile()) == plan.collectives


@given(cases(), st.sampled_from(METHODS), SEEDS)
def test_padding_is_never_read(case: Case, method: str, seed: int) -> None:
    """Catches a step that sums over padding: NaN there must not reach a logical position of a transformed line."""
    plan = _plan(case, method=method)
    if plan is None:
        return
    x = noise(case.shape, seed=seed)
    stored = np.full(plan.in_layout.storage, np.nan + 0j, np.complex64)
    stored[tuple(slice(0, n) for n in case.shape)] = x
    where = jax.sharding.NamedSharding(mesh(case.mesh), plan.in_layout.spec)
    (y,) = bind([jax.device_put(stored, where)], plan.walk, plan.mesh)
    assert error(mf.gather(padded(y, plan.walk.end, plan.mesh)), dft(x, case.axes)) <= 4e-7


@given(cases(), st.sampled_from(METHODS), st.sampled_from(["natural", "any"]), SEEDS)
def test_adjoint_law_and_gradient(case: Case, method: str, order: str, seed: int) -> None:
    """Catches an adjoint that is not one, a gradient that is not the transpose, and its sharding."""
    plan = _plan(case, method=method, order=order, norm="ortho")
    if plan is None:
        return
    x, z = noise(case.shape, seed=seed), noise(case.shape, seed=seed + 1)
    a = _shard(plan, x)
    y, pull = jax.vjp(plan, a)
    b = _place(plan, z)
    back = plan.adjoint(b)
    left = np.vdot(z, mf.gather(y))
    right = np.vdot(mf.gather(back), x)
    assert abs(left - right) <= 1e-5 * np.linalg.norm(x) * np.linalg.norm(z)
    (gradient,) = pull(mapped(jnp.conj, b))
    assert _sharded(gradient, plan, plan.in_layout)
    assert error(mf.gather(gradient), mf.gather(back).conj()) <= 1e-6


def _place(plan: mf.Plan, z: np.ndarray) -> Any:
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    return mf.shard(z, plan.mesh, plan.out_layout.spec)


@given(cases(), st.sampled_from(METHODS), SEEDS)
def test_linearity_parseval_and_shift(case: Case, method: str, seed: int) -> None:
    """Catches what value tests at one input cannot: state, a wrong norm, a phase off by one sample."""
    plan = _plan(case, method=method, norm="ortho")
    if plan is None:
        return
    x, z = noise(case.shape, seed=seed), noise(case.shape, seed=seed + 1)

    def run(v: np.ndarray) -> np.ndarray:
        return mf.gather(plan(_shard(plan, v)))

    y = run(x)
    assert error(run((2 * x - 3j * z).astype(np.complex64)), 2 * y - 3j * run(z)) <= 1e-6
    assert np.linalg.norm(y) == pytest.approx(np.linalg.norm(x), rel=1e-6)
    axis, n = case.axes[0], case.shape[case.axes[0]]
    ramp = np.exp(-2j * np.pi * np.arange(n) / n).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    assert error(run(np.roll(x, 1, axis)), y * ramp) <= 1e-6


PAPERS = [
    ((24,), (8,), ("x",)),
    ((40,), (4,), ("x",)),
    ((72, 3), (4,), ("x",)),
    ((3, 100), (8,), (None, "x")),
    ((97,), (3,), ("x",)),
    ((4, 97, 2), (2, 2), ("y", "x")),
    ((1000, 24), (4, 2), ("x", "y")),
    ((24, 40, 72), (2, 2, 2), ("x", "y", "z")),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("shape", "sizes", "spec"), PAPERS)
def test_the_papers_fft_in_its_text(shape: tuple, sizes: tuple, spec: tuple) -> None:
    """Catches a wrong value, or collectives that the plan does not print, whether p divides n or not."""
    plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, method="cooley-tukey")
    data = noise(shape, seed=1)
    assert error(mf.gather(plan(_shard(plan, data))), dft(data, tuple(range(data.ndim)))) <= 2e-7
    where = jax.sharding.NamedSharding(mesh(sizes), plan.in_layout.spec)
    stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, plan.dtype, sharding=where)
    x = padded(stored, plan.in_layout, plan.mesh)
    assert collectives(jax.jit(plan).lower(x).compile()) == plan.collectives


@pytest.mark.more
def test_a_long_chirp_is_transformed_on_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong spectrum of the chirp where it is too long for a table."""
    monkeypatch.setattr(phase_fft, "TABLE", 0)
    plan = mf.plan((101, 2), mesh=mesh((8,)), spec=("x",), method="cooley-tukey", norm="forward")  # in no cache yet
    x = noise((101, 2), seed=1)
    assert error(mf.gather(plan(_shard(plan, x))) * 202, dft(x, (0, 1))) <= 4e-7
    assert plan.collectives == {"all-to-all": 3, "collective-permute": 21}


@pytest.mark.quick(2)
@pytest.mark.parametrize("shape", [(15, 4), (18, 3), (22, 2)])
def test_half_spectra_of_any_size(shape: tuple[int, ...]) -> None:
    """Catches a half spectrum of a cut line, its inverse or its gradient wrong where pairs do not divide."""
    x = noise(shape, "float32", 1)
    plan = mf.plan(shape, mesh=mesh((4,)), spec=("x",), axes=(1, 0), kind="rfft", method="cooley-tukey")
    y = plan(_shard(plan, x))
    assert error(mf.gather(y), np.fft.rfftn(x, axes=(1, 0))) <= 2e-7
    assert error(mf.gather(plan.inverse(y)), x) <= 4e-7
    grown = mf.plan(shape, mesh=mesh((4,)), spec=("x",), s=(33,), axes=(0,), method="cooley-tukey")
    assert error(mf.gather(grown(_shard(grown, x + 0j))), np.fft.fft(x, 33, 0)) <= 2e-7


def test_the_papers_fft_in_a_callers_shard_map() -> None:
    """Catches a loop whose carry does not vary over the mesh axes as its result does: chunks of 3 points, padded."""
    x, where = noise((24, 3), seed=1), P("x")
    fft = functools.partial(mf.fftn, axes=(0,), spec=where, method="cooley-tukey")
    y = jax.shard_map(fft, mesh=mesh((8,)), in_specs=where, out_specs=where)(x)
    assert error(y, dft(x, (0,))) <= 2e-7


def test_kdft_is_the_kronecker_product() -> None:
    """Catches a dimension in the wrong place: V1 x V2 x V3 applied to the flattened input (paper, eq. dft3d_matrix)."""
    shape, spec = (6, 4, 5), ("x", "y", "z")
    x = noise(shape)
    v1, v2, v3 = (np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n) for n in shape)
    plan = mf.plan(shape, mesh=mesh((2, 2, 2)), spec=spec, method="kdft")
    y = mf.gather(plan(x))
    assert error(y.ravel(), np.kron(np.kron(v1, v2), v3) @ x.ravel()) <= 4e-7


def test_kdft_holds_one_slice_of_v() -> None:
    """Catches an N x N matrix on a device: 1-D, N = 4096 on 8 devices, V whole would be 134 MB a device."""
    plan = mf.plan((4096,), mesh=mesh((8,)), method="kdft")
    x = jax.ShapeDtypeStruct(
        (4096,), np.complex64, sharding=jax.sharding.NamedSharding(mesh((8,)), plan.in_layout.spec)
    )
    memory = jax.jit(plan).lower(x).compile().memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes < 4096 * 4096 / 8 * 8


@pytest.mark.parametrize(("sizes", "spec"), [((8, 1, 1), P(("x", "y", "z"))), ((2, 1, 1), P(None, ("z", "x", "y")))])
def test_mesh_axes_of_one_device_inside_others(sizes: tuple[int, ...], spec: P) -> None:
    """Catches a search that loses count of inner cuts by axes of one device (IndexError)."""
    x = noise((8, 12, 6))
    for function, truth in ((mf.fftn, dft(x, (0, 1, 2))), (lambda y: mf.fft(y, axis=0), dft(x, (0,)))):
        cut = mf.shard(x, mesh(sizes), spec)
        y = function(cut)
        assert error(y, truth) <= 4e-7 and y.sharding.is_equivalent_to(cut.sharding, 3)


def test_integers_that_32_bits_do_not_hold_are_refused() -> None:
    """Catches numbers that wrap without a word: the transform of 2^40 was that of 0."""
    large, small = np.array([2**40, 5, 0, 2**33 + 1]), np.array([-(2**31), 5, 0, 2**31 - 1])
    for function in (mf.fftn, lambda x: mf.shard(x, mesh((2,)), P("x")), mf.plan((4,))):
        for wide in (large, large.astype(">i8"), large.astype("u8")):
            with pytest.raises(OverflowError, match=f"has {2**40}, which 32 bits do not hold"):
                function(wide)
    np.testing.assert_array_equal(mf.gather(mf.shard(small, mesh((2,)), P("x"))), small)
    assert error(mf.fftn(large.astype("float32")), dft(large, (0,))) <= 4e-7


def test_a_plan_is_an_argument_of_jit() -> None:
    """Catches a plan taken for an array, and a program of one plan run for another."""
    x, points = noise((8, 4)), [mf.Scattered.turns(np.random.default_rng(j).random((9, 2))) for j in (0, 1)]
    run = jax.jit(lambda plan, x: plan(x))
    for plan in (mf.plan((8, 4)), mf.plan((8, 4), norm="ortho"), *(mf.plan((8, 4), points=one) for one in points)):
        np.testing.assert_array_equal(run(plan, x), plan(x))
    plans = [mf.scattered_plan((8, 4), one) for one in points]
    np.testing.assert_array_equal(run(plans[1], x), plans[1](x))
    assert error(run(plans[0], x), run(plans[1], x)) > 0.1
