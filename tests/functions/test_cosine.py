"""Cosine and sine transforms of sharded arrays, against scipy.fft in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import stored_of
from meshfft.steps import Exchange, LocalTrig

METHODS = ("auto", "transpose", "kdft")
SEEDS = st.integers(0, 2**31)
NAMES = {"dct": "dctn", "dst": "dstn"}


def _type(data: st.DataObject, family: str, lengths: list[int]) -> int:
    """A type that the lengths allow: cosines of type I need two points."""
    return data.draw(st.sampled_from([2, 3, 4] if family == "dct" and min(lengths) < 2 else [1, 2, 3, 4]))


def _plan(case: Case, method: str, **options: Any) -> mf.Plan | None:
    try:
        return mf.plan(case.shape, mesh=mesh(case.mesh), spec=case.spec, axes=case.axes, method=method, **options)
    except ValueError as refused:
        assert method == "transpose" and "use method='auto'" in str(refused), refused
        return None


@given(st.data(), cases(), st.sampled_from(["dct", "dst"]), st.booleans(), st.booleans(), SEEDS)
def test_value_sharding_inverse_and_gradient(
    data: st.DataObject, case: Case, family: str, inverse: bool, is_complex: bool, seed: int
) -> None:
    """Catches a wrong term at either end, a scale, an inverse of another type, a transpose, and rubbish in padding."""
    kind = f"{family}-{_type(data, family, [case.shape[a] for a in case.axes])}"
    method, norm = data.draw(st.sampled_from(METHODS)), data.draw(st.sampled_from([None, "ortho", "forward"]))
    dtype = "complex64" if is_complex else "float32"
    plan = _plan(case, method, kind=kind, inverse=inverse, norm=norm, dtype=dtype)
    if plan is None:
        return
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    x, z = noise(case.shape, dtype, seed), noise(case.shape, dtype, seed + 1)
    a, b = (mf.shard(v, plan.mesh, plan.in_layout.spec) for v in (x, z))
    function = getattr(scipy.fft, "i" * inverse + NAMES[family])
    truth = function(x.astype("complex128" if is_complex else "float64"), int(kind[-1]), axes=case.axes, norm=norm)
    program = jax.jit(plan).lower(a).compile()
    assert collectives(program) == plan.collectives
    y = program(a)
    assert y.dtype == dtype and plan.in_dtype == plan.out_dtype == dtype
    assert y.sharding.is_equivalent_to(NamedSharding(plan.mesh, plan.out_layout.spec), y.ndim)
    assert error(mf.gather(y), truth) <= 4e-7
    assert np.count_nonzero(stored_of(y)) == np.count_nonzero(mf.gather(y)), "padding is not zero"
    assert error(mf.gather(plan.inverse(y)), x) <= 2e-6
    (gradient,) = jax.jit(lambda a, b: jax.vjp(plan, a)[1](b))(a, b)
    left = np.sum(z * mf.gather(y)).real
    right = np.sum(mf.gather(gradient) * x).real
    assert abs(left - right) <= 2e-5 * np.linalg.norm(z) * np.linalg.norm(truth)


@pytest.mark.more
@given(cases(), st.sampled_from(["dct-2", "dct-3", "dst-2", "dst-4"]), SEEDS)
def test_double_precision(case: Case, kind: str, seed: int) -> None:
    """Catches float32 anywhere in the float64 path."""
    with jax.enable_x64(True):
        plan = _plan(case, "auto", kind=kind, dtype="float64")
        assert plan is not None and isinstance(plan.mesh, jax.sharding.Mesh)
        x = noise(case.shape, "float64", seed)
        y = plan(mf.shard(x, plan.mesh, plan.in_layout.spec))
        truth = getattr(scipy.fft, NAMES[kind[:3]])(x, int(kind[-1]), axes=case.axes)
        assert y.dtype == np.float64 and error(mf.gather(y), truth) <= 2e-15


@pytest.mark.more
@pytest.mark.parametrize(("kind", "dtype"), [("dct-1", "float32"), ("dst-3", "float32"), ("dct-4", "complex64")])
def test_large_blocks_in_place(kind: str, dtype: str) -> None:
    """Catches lines that the last, smaller part of a sweep leaves out, forward, back and in the gradient."""
    x, cut, sizes = noise((1030, 1103), dtype, 3), P("x"), (2,)
    plan = mf.plan(x.shape, mesh=mesh(sizes), spec=cut, kind=kind, dtype=dtype)
    local = [step for step in plan.walk.steps if isinstance(step, LocalTrig)]
    assert len(local) == 2 and all(step.in_place for step in local)
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    a = mf.shard(x, plan.mesh, cut)
    truth = getattr(scipy.fft, NAMES[kind[:3]])(x.astype("complex128" if dtype[0] == "c" else "float64"), int(kind[-1]))
    y, pulled = jax.vjp(plan, a)
    assert error(mf.gather(y), truth) <= 4e-7 and error(mf.gather(plan.inverse(y)), x) <= 2e-6
    left, right = np.vdot(mf.gather(y), mf.gather(y)).real, np.sum(mf.gather(pulled(y.conj())[0]) * x).real
    assert abs(left - right) <= 2e-5 * left


def test_half_of_the_complex_transform() -> None:
    """Catches a cosine transform that carries an imaginary part of zeros. Complex ones in place would need less yet."""
    for sizes, spec in (((8,), P("x")), ((2, 4), P("x", "y")), ((2, 2, 2), P("x", "y", "z"))):
        how: dict[str, Any] = {"mesh": mesh(sizes), "spec": spec, "method": "transpose", "dtype": "float32"}
        plans = [mf.plan((256,) * 3, kind=kind, engine="xla", **how) for kind in ("dct-2", "fft")]
        cosine, whole = (plan.work for plan in plans)
        assert cosine.sent_bytes == whole.sent_bytes / 2 and cosine.flops <= 0.6 * whole.flops
        assert cosine.peak_bytes <= 0.75 * whole.peak_bytes
        assert {type(step) for step in plans[0].walk.steps} <= {LocalTrig, Exchange}


def test_refusals() -> None:
    """Catches types that do not exist, and a cosine transform of one point, computed as something else."""
    x = jnp.ones((4, 1))
    with pytest.raises(ValueError, match="type 5 is unknown: use 1, 2, 3 or 4"):
        mf.dct(x, 5)
    with pytest.raises(ValueError, match="use type 2"):
        mf.dct(x, 1)
    with pytest.raises(ValueError, match="given twice"):
        mf.dctn(x, axes=(0, 0))
    with pytest.raises(ValueError, match="norm 'unitary' is unknown"):
        mf.dst(x, norm="unitary")


def test_an_unknown_option_names_those_there_are() -> None:
    """Catches a slip of the pen that is answered with all options but the one that was meant."""
    options = "method, spec, precision, ring, engine, wire, out_spec, order, donate"
    with pytest.raises(TypeError, match=f"a, orthogonalise: no such option, use one of .*{options}.*orthogonalize"):
        mf.dct(np.ones(4), orthogonalise=True, a=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=f"orthogonalize: no such option, use one of {options}$"):
        mf.fft(np.ones(4), orthogonalize=True)  # type: ignore[call-overload]
