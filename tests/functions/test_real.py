"""Transforms between real arrays and half spectra: numpy.fft's whole argument space, and that they really save."""

from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import dft, error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import padded, stored_of
from meshfft.numerics.split_complex import alternating, alternating_by_rows
from meshfft.steps import PackedFFT, RealFFT, RingDense
from meshfft.walks import search
from meshfft.walks.choice import find_walk

pytestmark = pytest.mark.optimised

METHODS = ("auto", "transpose", "cooley-tukey", "kdft")
SEEDS = st.integers(0, 2**31)


class Real(NamedTuple):
    """A real transform of a drawn case: forward halves a real array's last axis, backward makes one of it."""

    case: Case
    kind: str
    inverse: bool
    length: int

    @property
    def halves(self) -> bool:
        return (self.kind == "rfft") != self.inverse

    @property
    def s(self) -> tuple[int, ...]:
        return (*(self.case.shape[a] for a in self.case.axes[:-1]), self.length)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input: half of the last axis for a spectrum."""
        sizes = list(self.case.shape)
        sizes[self.case.axes[-1]] = self.length if self.halves else self.length // 2 + 1
        return tuple(sizes)

    def input(self, seed: int, dtype: str = "complex64") -> np.ndarray:
        x = noise(self.shape, dtype, seed)
        return x.real.copy() if self.halves else x

    def truth(self, x: np.ndarray) -> np.ndarray:
        """By the direct sum: of real lines, half of it kept; of half spectra, the rest put in by symmetry."""
        sign, last = 1 if self.inverse else -1, self.case.axes[-1]
        scale = 1 / np.prod(self.s) if self.inverse else 1.0
        if self.halves:
            return np.take(dft(x, self.case.axes, sign=sign), np.arange(self.length // 2 + 1), last) * scale
        y = dft(x, self.case.axes[:-1], sign=sign)
        turns = np.outer(np.arange(self.length), np.arange(self.length // 2 + 1)) % self.length / self.length
        matrix = np.exp(sign * 2j * np.pi * turns) * self.weights
        return np.moveaxis(np.tensordot(matrix, y, (1, last)), 0, last).real * scale

    @property
    def weights(self) -> np.ndarray:
        """How many bins of a whole spectrum each of a half stands for."""
        k = np.arange(self.length // 2 + 1)
        return np.where((k > 0) & (2 * k < self.length), 2.0, 1.0)

    def gradient(self, z: np.ndarray) -> np.ndarray:
        """The transposed matrix times z, its real part where the input is real, as JAX has it; with norm "ortho"."""
        sign, last, scale = 1 if self.inverse else -1, self.case.axes[-1], np.prod(self.s) ** -0.5
        if self.halves:
            beyond = [(0, self.length - n if d == last else 0) for d, n in enumerate(z.shape)]
            return dft(np.pad(z, beyond), self.case.axes, sign=sign).real * scale
        half = np.take(dft(z, self.case.axes, sign=sign), np.arange(self.length // 2 + 1), last)
        return half * self.weights.reshape([-1 if d == last else 1 for d in range(z.ndim)]) * scale


@st.composite
def transforms(draw: st.DrawFn, power: int = 0) -> Real:
    case = draw(cases(power))
    kind, inverse = draw(st.sampled_from(["rfft", "hfft"])), draw(st.booleans())
    return Real(case, kind, inverse, case.shape[case.axes[-1]])


def _plan(real: Real, **options: Any) -> mf.Plan | None:
    """The plan, or None if the method has no walk."""
    options |= {"mesh": mesh(real.case.mesh), "spec": real.case.spec, "kind": real.kind, "inverse": real.inverse}
    try:
        return mf.plan(real.shape, s=real.s, axes=real.case.axes, **options)
    except ValueError as refused:
        assert options["method"] in ("cooley-tukey", "transpose"), refused
        assert "use method='auto'" in str(refused)
        return None


def _put(x: np.ndarray, plan: mf.Plan, layout: Any) -> Any:
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    return mf.shard(x, plan.mesh, layout.spec)


@given(transforms(), st.sampled_from(METHODS), st.sampled_from(["natural", "any"]), SEEDS)
def test_value_sharding_and_round_trip(real: Real, method: str, order: str, seed: int) -> None:
    """Catches a wrong value, type or sharding, rubbish in padding, the wrong weights on the way back."""
    plan = _plan(real, method=method, order=order)
    if plan is None:
        return
    x = real.input(seed)
    truth = real.truth(x.astype(np.complex128))
    y = plan(_put(x, plan, plan.in_layout))
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    assert y.dtype == ("complex64" if real.halves else "float32") and plan.out_shape == truth.shape
    assert error(mf.gather(y), truth) <= 4e-7
    assert np.count_nonzero(stored_of(y)) == np.count_nonzero(mf.gather(y)), "padding is not zero"
    assert y.sharding.is_equivalent_to(NamedSharding(plan.mesh, plan.out_layout.spec), y.ndim)
    assert order == "any" or plan.out_layout.axes == plan.in_layout.axes
    again = plan(plan.inverse(y))  # only data that the transform keeps: not imaginary parts of X[0]
    assert again.dtype == y.dtype and error(again, np.asarray(y)) <= 8e-7
    if real.halves:
        assert error(mf.gather(plan.inverse(y)), x) <= 8e-7


@pytest.mark.more
@given(transforms(), st.sampled_from(METHODS), SEEDS)
def test_double_precision(real: Real, method: str, seed: int) -> None:
    """Catches float32 anywhere in the float64 path."""
    with jax.enable_x64(True):
        plan = _plan(real, method=method, dtype="complex128")
        if plan is not None:
            x = real.input(seed, "complex128")
            y = plan(_put(x, plan, plan.in_layout))
            assert y.dtype == ("complex128" if real.halves else "float64")
            assert error(mf.gather(y), real.truth(x)) <= 2e-15


@given(transforms(), st.sampled_from(METHODS), SEEDS)
def test_adjoint_and_gradient(real: Real, method: str, seed: int) -> None:
    """Catches a walk back that is not the transpose over the reals: Re <A x, z> = Re <x, A* z>, and direct sums."""
    plan = _plan(real, method=method, norm="ortho")
    if plan is None:
        return
    x, z = real.input(seed), noise(plan.out_shape, "complex64", seed + 1)
    z = z if real.halves else z.real.copy()
    a, b = _put(x, plan, plan.in_layout), _put(z, plan, plan.out_layout)

    @jax.jit
    def everything(a: Any, b: Any) -> Any:
        y, pull = jax.vjp(plan, a)
        return y, plan.adjoint(b), *pull(b)

    y, back, gradient = everything(a, b)
    assert back.dtype == a.dtype
    left, right = np.vdot(z, mf.gather(y)).real, np.vdot(mf.gather(back), x).real
    assert abs(left - right) <= 2e-5 * np.linalg.norm(x) * np.linalg.norm(z)
    assert gradient.dtype == a.dtype and gradient.sharding.is_equivalent_to(a.sharding, a.ndim)
    assert error(mf.gather(gradient), real.gradient(z.astype(np.complex128))) <= 2e-6


@given(transforms(), st.sampled_from(METHODS), st.sampled_from(["natural", "any"]))
def test_collectives_are_those_the_plan_prints(real: Real, method: str, order: str) -> None:
    """Catches a gather or a reduction, in the transform and in its gradient."""
    plan = _plan(real, method=method, order=order)
    if plan is None:
        return
    x = _put(real.input(0), plan, plan.in_layout)
    assert collectives(jax.jit(plan).lower(x).compile()) == plan.collectives
    y = _put(noise(plan.out_shape) if real.halves else noise(plan.out_shape).real, plan, plan.out_layout)
    back = jax.jit(lambda a, b: jax.vjp(plan, a)[1](b)).lower(x, y).compile()
    assert collectives(back) == plan.walk.transpose().collectives  # the transposed ring sends planes and receives reals


@pytest.mark.more
@given(st.sampled_from([(8,), (2,), (4,), (2, 2), (2, 4)]), st.integers(1, 3), st.booleans(), st.booleans(), SEEDS)
def test_lines_that_are_cut_go_as_pairs(
    sizes: tuple[int, ...], times: int, inverse: bool, reversed_axes: bool, seed: int
) -> None:
    """Catches a wrong mirror, a lost middle number, or the blocks of a half spectrum a row off."""
    axes = "xy"[: len(sizes)]
    spec = P(tuple(axes[::-1] if reversed_axes else axes), None)
    parts = int(np.prod(sizes))
    real = Real(Case((2 * times * parts**2, 3), sizes, spec, (0,)), "rfft", inverse, 2 * times * parts**2)
    with mock.patch.dict(search.METHODS, {"cooley-tukey": (PackedFFT,)}):  # short ones go faster as complex lines
        find_walk.cache_clear()
        plan = _plan(real, method="cooley-tukey")
    find_walk.cache_clear()
    assert plan is not None and [type(step) for step in plan.walk.steps] == [PackedFFT]
    x = real.input(seed)
    assert error(mf.gather(plan(_put(x, plan, plan.in_layout))), real.truth(x)) <= 2e-7


SAVINGS = {
    "slab": ((256,) * 3, (8,), P("x")),
    "pencil": ((256,) * 3, (2, 4), P("x", "y")),
    "block": ((256,) * 3, (2, 2, 2), P("x", "y", "z")),
    "2-D": ((4096, 4096), (8,), P("x")),
    "line": ((2**20,), (8,), P("x")),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", slow_but(["block", "line"], SAVINGS))
@pytest.mark.parametrize("inverse", [False, True])
def test_at_most_six_tenths_of_the_complex_transform(name: str, inverse: bool) -> None:
    """Catches a real transform that is a disguised complex one; 1024 bytes are for the additional number in a half.

    A complex line uses six steps if possible, a real one the paper's FFT, so that is the reference. Complex blocks go
    in place, but the half spectrum of a real one has odd sizes, so XLA's FFT is the reference. Newer XLA keeps two
    blocks of a complex line between steps, older three, and three or four halves of a real one.
    """
    shape, sizes, spec = SAVINGS[name]
    half = (*shape[:-1], shape[-1] // 2 + 1)
    real = mf.plan(half if inverse else shape, mesh=mesh(sizes), spec=spec, kind="rfft", inverse=inverse)
    method = "cooley-tukey" if name == "line" else "auto"
    engine = "auto" if name == "line" else "xla"
    whole = mf.plan(shape, mesh=mesh(sizes), spec=spec, inverse=inverse, method=method, engine=engine)
    assert real.work.flops <= 0.6 * whole.work.flops and real.work.sent_bytes <= 0.6 * whole.work.sent_bytes
    assert real.peak_bytes <= 0.65 * whole.peak_bytes  # printed; the compiler's is below
    used = []
    for plan in (real, whole):
        dtype = plan.dtype if not plan.walk.real else np.float32
        where = NamedSharding(mesh(sizes), plan.in_layout.spec)
        stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, dtype, sharding=where)
        x = padded(stored, plan.in_layout, plan.mesh)
        memory = jax.jit(plan).lower(x).compile().memory_analysis()
        assert memory is not None
        used.append(memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes)
    most = 0.75 if name == "line" else 0.6
    assert used[0] <= most * used[1] + 1024 and used[0] <= 1.2 * real.peak_bytes


def test_a_half_spectrum_stays_cut_as_it_came_where_it_divides() -> None:
    """Catches mesh axes that move although they need not, all of them moving for one, and a gather for none."""
    x = noise((16, 16, 14), "float32")
    where, spec = mesh((2, 2, 2)), P("x", "y", "z")
    y = mf.rfftn(jax.device_put(x, NamedSharding(where, spec)))
    assert y.sharding.is_equivalent_to(NamedSharding(where, spec), 3)
    x = noise((16, 16, 16), "float32")
    y = mf.rfftn(jax.device_put(x, NamedSharding(where, spec)))
    assert isinstance(y.sharding, NamedSharding)
    assert y.sharding.spec in (P(("z", "x"), "y"), P("x", ("z", "y"))) and error(y, np.fft.rfftn(x)) <= 4e-7
    line: Any = mf.rfft(jax.device_put(noise((64,), "float32"), NamedSharding(mesh((8,)), P("x"))))
    assert isinstance(line, mf.PaddedArray) and line.shape == (33,)


def test_what_cannot_be_is_refused_by_name() -> None:
    """Catches imaginary parts dropped silently, and messages without a remedy."""
    z = noise((8, 8))
    for name in ("rfft", "rfft2", "rfftn", "ihfft"):
        with pytest.raises(TypeError, match="real numbers are transformed here, the array is complex64"):
            getattr(mf, name)(z)
    with pytest.raises(TypeError, match="takes a real array, this one is complex"):
        mf.plan((8, 8), kind="rfft")(z)
    with pytest.raises(ValueError, match="kind 'dht' is unknown"):
        mf.plan((8, 8), kind="dht")
    with pytest.raises(ValueError, match="needs one axis"):
        mf.rfftn(z.real, axes=())
    with pytest.raises(ValueError, match="half a spectrum of 1 numbers"):
        mf.irfft(noise((1,)))


def test_planes_in_planes_out() -> None:
    """Catches a real array that cannot give planes, and planes that become a complex array."""
    x = noise((8, 6), "float32")
    plane: Any = (jnp.asarray(x),)
    planes: Any = mf.rfftn(plane)
    assert type(planes).__name__ == "PlanePair" and error(jax.lax.complex(*planes), np.fft.rfftn(x)) <= 4e-7
    assert error(mf.irfftn(planes), x) <= 4e-7
    re, im = mf.fftn(plane)
    assert error(jax.lax.complex(re, im), np.fft.fftn(x)) <= 4e-7


def test_the_walks_are_real_where_the_array_is() -> None:
    """Catches exchanges of complex blocks before the lines are transformed, and matrix steps with other names."""
    plan = mf.plan((64, 64, 64), mesh=mesh((2, 2, 2)), spec=P("x", "y", "z"), kind="rfft")
    place = next(j for j, step in enumerate(plan.walk.steps) if isinstance(step, RealFFT | RingDense))
    assert plan.walk.reals == (True,) * (place + 1) + (False,) * (len(plan.walk.steps) - place)
    stages = [stage.walk for stage in plan.stages]
    assert [walk.real for walk in stages] == list(plan.walk.reals[:-1])
    x = noise((64, 64, 64), "float32")
    y = _put(x, plan, plan.in_layout)
    for stage in plan.stages:
        y = stage(y)
    assert error(mf.gather(y), np.fft.rfftn(x)) <= 4e-7


@pytest.mark.quick(15)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["rfft", "hfft"])
@pytest.mark.parametrize("inverse", [False, True])
def test_every_method_on_a_block(method: str, kind: str, inverse: bool) -> None:
    """Catches an axis that becomes real before the complex ones are done, or complex after them."""
    real = Real(Case((16, 8, 16), (2, 2, 2), P("x", "y", "z"), (0, 1, 2)), kind, inverse, 16)
    plan = _plan(real, method=method)
    assert plan is not None
    x = real.input(0)
    assert error(mf.gather(plan(_put(x, plan, plan.in_layout))), real.truth(x)) <= 4e-7


@pytest.mark.parametrize("shape", [(6,), (3, 256), (2, 5), (130,), (0, 8), (4, 0)])
def test_numbers_alternating_by_rows(shape: tuple[int, ...]) -> None:
    """Catches another order on TPUs, which alternate rows."""
    even, odd = (jnp.asarray(noise(shape, "float32", seed)) for seed in (0, 1))
    np.testing.assert_array_equal(alternating_by_rows(even, odd), alternating(even, odd, len(shape) - 1))
    np.testing.assert_array_equal(alternating(even, odd, len(shape) - 1)[..., ::2], even)
