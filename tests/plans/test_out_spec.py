"""Sharding of results: round trips that keep it, out_spec=, and the choice of a function beforehand."""

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives

SHAPE = (8, 16, 8)
SPECS = [P("x", "y", "z"), P("x", "y"), P(None, "x", "y"), P("x", None, ("y", "z")), P(("x", "y"), None, "z")]
SPECS += [P("x", ("y", "z")), P()]


def _put(x: np.ndarray, spec: P, kind: AxisType = AxisType.Explicit) -> Any:
    return jax.device_put(x, NamedSharding(mesh((2, 2, 2), kind), spec))


@pytest.mark.quick(4)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_round_trip_keeps_its_sharding(spec: P, kind: AxisType) -> None:
    """Catches a half spectrum whose way back ends elsewhere, so that `scan`, `while_loop` and x + y refuse it."""
    x = noise(SHAPE, "float32")
    a = _put(x, spec, kind)
    half: Any = mf.rfftn(a)
    back = mf.irfftn(half)
    assert type(half) is type(a) and back.sharding.is_equivalent_to(a.sharding, 3)
    assert error(half, np.fft.rfftn(x)) <= 4e-7 and error(back, x) <= 4e-7
    assert mf.hfftn(mf.ihfftn(a)).sharding.is_equivalent_to(a.sharding, 3)
    chosen = mf.out_spec(SHAPE, mesh=a.sharding.mesh, spec=spec, kind="rfft")
    assert half.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, chosen), 3)
    returned = mf.out_spec(half.shape, mesh=a.sharding.mesh, spec=chosen, kind="rfft", inverse=True)
    assert a.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, returned), 3)


@pytest.mark.parametrize(("shape", "n"), [((8, 2), None), ((8, 5), 6)], ids=["could have stayed", "another length"])
def test_an_order_of_ones_own_is_kept(shape: tuple[int, int], n: int | None) -> None:
    """Catches an inverse that takes the caller's own order of axes for that of a half spectrum that had to move."""
    x = noise(shape)
    a = _put(x, P(("y", "x", "z"), None))
    y = mf.irfft(a, n)
    assert y.sharding.is_equivalent_to(a.sharding, 2)
    assert error(y, np.fft.irfft(x, n)) <= 4e-7


def test_scan_carries_a_real_field() -> None:
    """Catches a carry whose type changes, as JAX then refuses it."""
    x = noise(SHAPE, "float32")
    a = _put(x, P("x", "y", "z"))
    with jax.set_mesh(a.sharding.mesh):
        step = lambda c, _: (mf.irfftn(mf.rfftn(c)) + c, None)  # noqa: E731
        y = jax.jit(lambda c: jax.lax.scan(step, c, length=2)[0])(a)
    assert error(y, 4 * x) <= 1e-6


def test_under_auto_axes_the_chosen_spec_leads_back() -> None:
    """Catches an out_spec that differs from that of the traced function."""
    x, spec = noise(SHAPE, "float32"), P("x", "y", "z")
    a = _put(x, spec, AxisType.Auto)
    over = a.sharding.mesh
    chosen = mf.out_spec(SHAPE, mesh=over, spec=spec, kind="rfft")
    with jax.set_mesh(over):
        program = jax.jit(lambda v: mf.irfftn(mf.rfftn(v, spec=spec), spec=chosen)).lower(a).compile()
    assert "all-gather" not in collectives(program)
    assert error(program(a), x) <= 4e-7 and program(a).sharding.is_equivalent_to(a.sharding, 3)


def test_what_cannot_be_told_can_be_asked_for() -> None:
    """Catches the advice for meshes out of order going wrong: P(None, "y", "x") and P(None, ("x", "y")) look alike."""
    x = noise(SHAPE, "float32")
    a = _put(x, P(None, "y", "x"))
    back = mf.irfftn(mf.rfftn(a), out_spec=P(None, "y", "x"))
    assert back.sharding.is_equivalent_to(a.sharding, 3) and error(back, x) <= 4e-7


CASES: dict[str, Any] = {
    "fftn": (mf.fftn, lambda x: dft(x, (0, 1, 2))),
    "rfftn": (mf.rfftn, np.fft.rfftn),
    "dctn": (mf.dctn, None),
    "kdftn": (mf.kdftn, lambda x: dft(x, (0, 1, 2))),
    "ikdftn": (lambda x, out_spec: mf.ikdftn(mf.kdftn(x), out_spec=out_spec).value, lambda x: x),
    "fftshift": (mf.fftshift, np.fft.fftshift),
    "derivative": (lambda x, out_spec: mf.derivative(x, 0, out_spec=out_spec), None),
    "poisson": (mf.poisson, None),
    "convolve": (lambda x, out_spec: mf.convolve(x, x, out_spec=out_spec), None),
    "planes": (lambda x, out_spec: mf.fftn((x, 0 * x), out_spec=out_spec)[0], lambda x: dft(x, (0, 1, 2)).real),
}


@pytest.mark.quick(6, 16)
@pytest.mark.parametrize("out_spec", [P("z", "x", "y"), P(None, "z", ("x", "y")), P(("x", "y", "z"))], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_lie_as_asked(name: str, out_spec: P) -> None:
    """Catches a function that ignores out_spec, or moves data wrongly for it."""
    function, truth = CASES[name]
    x = noise(SHAPE, "float32")
    a = _put(x, P("x", "y", "z"), AxisType.Auto)
    y = function(a, out_spec=out_spec)
    expected = truth(x) if truth else np.asarray(function(jax.numpy.asarray(x), out_spec=None))
    assert error(mf.gather(y), expected) <= 1e-6
    assert y.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, out_spec), 3)


def test_plans_and_refusals() -> None:
    """Catches a plan without it, an out_spec taken silently where it cannot hold, and mesh= as a remedy in `fftn`."""
    x, over = noise(SHAPE), mesh((2, 2, 2))
    a = jax.device_put(x, NamedSharding(over, P("x", "y", "z")))
    plan = mf.plan(SHAPE, mesh=over, spec=P("x", "y", "z"), out_spec=P("z", "y", "x"))
    assert plan.out_layout.spec == P("z", "y", "x") and error(plan(a), dft(x, (0, 1, 2))) <= 4e-7
    assert error(plan.inverse(plan(a)), x) <= 4e-7
    with pytest.raises(ValueError, match="leaves the layout open"):
        mf.fftn(a, order="any", out_spec=P("x"))
    with pytest.raises(ValueError, match="name the same axes"):
        mf.fftn(a, out_spec=P("x"))
    with pytest.raises(ValueError, match="names mesh axis 'q'"):
        mf.fftn(a, out_spec=P("q"))
    alone = jax.device_put(x, NamedSharding(mesh((1,)), P()))
    for call in (jax.jit(lambda v: mf.fftn(v, out_spec=P("x"))), lambda v: mf.fftn(np.asarray(v), out_spec=P("x"))):
        with pytest.raises(ValueError, match=r"axes \['x'\], the array is cut by \[\]: name the same axes"):
            call(alone)
    for out, call in ((P("z", "y", "x"), mf.fftn), (P("y", ("x", "z")), mf.rfftn)):
        x = noise((12, 8, 6), "float32" if call is mf.rfftn else "complex64")
        run = jax.shard_map(
            lambda v, out=out, call=call: call(v, spec=P("x", "y", "z"), out_spec=out),
            mesh=over,
            in_specs=P("x", "y", "z"),
            out_specs=out,
        )
        y = jax.jit(run)(jax.device_put(x, NamedSharding(over, P("x", "y", "z"))))
        assert error(y, dft(x, (0, 1, 2))[..., : y.shape[2]]) <= 4e-7
        assert y.sharding.is_equivalent_to(NamedSharding(over, out), 3)


@pytest.mark.parametrize("method", ["auto", "kdft"])
def test_advice_for_padded_arrays_works(method: str) -> None:
    """Catches advice for jax.Arrays: `device_put` leaves a padded array cut as it was, also where its result is even;
    sizes that no axes divide; and another order of the axes, which would do, left unsaid.
    """
    x, over = noise((13, 13)), mesh((3, 2))
    one, both = mf.shard(x, over, P("x")), mf.shard(x, over, P("y", "x"))
    host = r"or bring it to the host outside jit, mf\.shard\(mf\.gather\(x\), mesh, spec\)$"
    with pytest.raises(ValueError, match=f"name the same axes, {host}"):
        mf.fftn(one, s=(12, 12), out_spec=P("x", "y"), method=method)
    with pytest.raises(ValueError, match=f"name the same axes, {host}"):
        mf.poisson(one.real, out_spec=P("x", "y"))
    y = mf.fftn(mf.shard(mf.gather(one), over, P("x", "y")), out_spec=P("x", "y"), method=method)
    assert error(mf.gather(y), dft(x, (0, 1))) <= 4e-7
    with pytest.raises(ValueError, match=r"give the spec P\(None, \('x', 'y'\)\)$"):
        mf.fftn(both, out_spec=P(None, ("y", "x")), method=method)
    with pytest.raises(ValueError, match=r"give the spec P\(None, \('x', 'y'\)\)$"):
        mf.shard(both, over, P(None, ("y", "x")))
    assert error(mf.gather(mf.fftn(both, out_spec=P(None, ("x", "y")), method=method)), dft(x, (0, 1))) <= 4e-7
    with pytest.raises(ValueError, match=f"give another spec, {host}"):
        mf.fftn(both, out_spec=P("x", "y"), method=method)


def test_moved_numbers_keep_their_type_and_bits() -> None:
    """Catches integers sent through floats, which have no 2^24 + 1, and a spec forgotten under Auto axes in `jit`."""
    x, spec, out = 2**24 + np.arange(8 * 16 * 8, dtype="int32").reshape(SHAPE), P("x", "y", "z"), P("z", "x", "y")
    a = jax.device_put(x, NamedSharding(mesh((2, 2, 2)), spec))
    y = mf.fftshift(a, out_spec=out)
    assert y.dtype == np.int32 and y.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, out), 3)
    np.testing.assert_array_equal(y, np.fft.fftshift(x))
    with jax.set_mesh(a.sharding.mesh):
        run = jax.jit(lambda v: mf.derivative(v, 0, spec=spec, out_spec=out))
        found = run(a.astype("float32"))
    assert error(found, np.asarray(mf.derivative(a.astype("float32"), 0))) <= 1e-6


@pytest.mark.quick(0)
@pytest.mark.parametrize("method", ["auto", "kdft"])
def test_a_spec_may_be_a_list(method: str) -> None:
    """Catches a cache that cannot take a spec which every other place takes."""
    x = noise(SHAPE)
    a: Any = _put(x, P("x", "y", "z"))
    y = mf.fftn(a, method=method, out_spec=["z", "x", "y"])
    assert y.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, P("z", "x", "y")), 3)
    assert error(y, np.fft.fftn(x)) <= 4e-7


def test_options_are_those_of_plan() -> None:
    """Catches an option of `plan` that is not taken, and one of the library's own that is."""
    over = mesh((2, 2, 2))
    assert mf.out_spec((8, 8, 8), mesh=over, topology="v3:2x2", kind="dct-2") == P("x", "y", "z")
    for name in ("evades", "unknown"):
        with pytest.raises(TypeError, match=f"{name}: no such option, use one of s, axes"):
            mf.out_spec((8, 8, 8), mesh=over, **{name: True})  # type: ignore[arg-type]


@pytest.mark.quick(2, 5, 10)
@pytest.mark.parametrize("method", ["auto", "kdft", "cooley-tukey"])
@pytest.mark.parametrize(
    ("sizes", "spec", "out_spec"),
    [
        ((1,), P("x"), P(None, "x")),
        ((1, 8), P(None, "x", None), P(None, None, "x")),
        ((1, 8), P(None, "y", "x"), P(None, "x", "y")),
        ((2, 1, 4), P(("x", "y")), P(None, "y", "x")),
    ],
)
def test_axes_of_one_device_move(sizes: tuple[int, ...], spec: P, out_spec: P, method: str) -> None:
    """Catches an axis of one device that never leaves its dimension, so that a program fails on one device."""
    host, where = noise((16, 17, 32)), mesh(sizes)
    y = mf.fftn(mf.shard(host, where, spec), out_spec=out_spec, method=method)
    assert error(mf.gather(y), dft(host, (0, 1, 2))) <= 4e-7
    assert mf.gather(y).shape == host.shape


def test_half_spectra_over_an_axis_of_one_device() -> None:
    """Catches the same without out_spec: an axis that must leave a result which it does not divide."""
    half = noise((4, 3))
    y = mf.irfftn(mf.shard(half, mesh((1, 2)), P(("y", "x"))))
    assert error(y, np.fft.irfftn(half)) <= 4e-7


def test_a_longer_block_than_the_half_spectrum() -> None:
    """Catches weights as long as the block: the axis of one device that stays leaves it longer than the spectrum."""
    half = noise((8, 6))
    x = mf.shard(half, mesh((1, 4)), P(None, ("x", "y")))
    y = mf.irfftn(x, axes=(1,), out_spec=P("y", "x"), method="transpose")
    assert error(y, np.fft.irfftn(half, axes=(1,))) <= 4e-7


PAIRS = (P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x")), P(None, ("x", "y")))


@given(
    st.sampled_from([(2, 2), (2, 3), (3, 2), (2, 4)]),
    st.tuples(st.integers(2, 9), st.integers(2, 9)),
    st.sampled_from(PAIRS),
    st.sampled_from(PAIRS),
    st.one_of(st.none(), st.tuples(st.integers(2, 9), st.integers(2, 9))),
)
@example((2, 2), (6, 9), P("y", "x"), P(("x", "y")), (9, 6))
def test_the_adjoint_leads_back(
    sizes: tuple[int, int], shape: tuple[int, int], spec: P, out_spec: P, s: tuple[int, int] | None
) -> None:
    """Catches a walk that resizes blocks which do not divide each other, so that gradients have other blocks."""
    for kind in ("fft", "rfft"):
        plan = mf.plan(shape, mesh=AbstractMesh(sizes, ("x", "y")), spec=spec, out_spec=out_spec, s=s, kind=kind)
        assert plan.walk.adjoint().end == plan.walk.start


def test_gradients_of_blocks_that_do_not_divide_each_other() -> None:
    """Catches the same in a program: y moves onto a dimension that x cuts otherwise, which the transform shortens."""
    host, where, (of_x, of_y) = noise((3, 3), "f"), mesh((2, 3)), (P("x", "y"), P("y", "x"))
    x = mf.shard(host, where, of_y)
    assert error(mf.rfftn(x, out_spec=of_x), np.fft.rfftn(host)) <= 4e-7
    found = jax.grad(lambda x: (abs(mf.rfftn(x, out_spec=of_x)) ** 2).sum())(x)
    twice = np.fft.fft(np.fft.rfft(host), axis=0)
    twice = np.fft.ifft(np.pad(2 * twice, ((0, 0), (0, 1))), axis=1) * 3
    assert error(found, (np.fft.ifft(twice, axis=0) * 3).real) <= 4e-7
