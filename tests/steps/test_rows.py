"""Rows that move along a cut dimension: a line padded or cropped for a later step, and bands with weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import from_spec
from meshfft.layout.padded_array import mapped, stored_of
from meshfft.plans.execute import walked
from meshfft.steps import Band, Bands
from meshfft.walks.walk import Walk

CASES = [
    ("fft", False, (8192,), 16384, (8,), ["pad X: 8192 -> 16384", "six-step fft X"]),
    ("fft", False, (5003, 2), 8192, (2, 2), ["pad X: 5003 -> 8192", "six-step fft X"]),
    ("fft", True, (10007,), 8192, (4,), ["crop X: 10007 -> 8192", "six-step fft X"]),
    ("rfft", False, (8192,), 16384, (8,), ["pad X: 8192 -> 16384", "real pairs, phase ring X"]),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize(("kind", "inverse", "shape", "length", "sizes", "steps"), CASES)
def test_a_line_of_another_length(
    kind: str, inverse: bool, shape: tuple[int, ...], length: int, sizes: tuple[int, ...], steps: list[str]
) -> None:
    """Catches a ring in its place; rows that miss theirs or are padding, in the value, back, and in the gradient."""
    where, real = mesh(sizes), kind == "rfft"
    x, spec = noise(shape, "float32" if real else "complex64"), P(where.axis_names)
    plan = mf.plan(shape, mesh=where, spec=spec, s=(length,), axes=(0,), kind=kind, inverse=inverse, dtype=x.dtype.name)
    assert [step.name(layout) for step, layout in plan.walk.pairs] == steps
    a = mf.shard(x, where, spec)
    program = jax.jit(plan).lower(a).compile()
    assert collectives(program) == plan.collectives
    y, wide = program(a), x.astype(float if real else complex)
    truth = (np.fft.rfft if real else np.fft.ifft if inverse else np.fft.fft)(wide, length, axis=0)
    assert error(mf.gather(y), truth) <= 2e-7 and mf.gather(y).shape == truth.shape
    ends = NamedSharding(where, plan.out_layout.spec)
    assert plan.out_layout.axes == plan.in_layout.axes and stored_of(y).sharding.is_equivalent_to(ends, len(shape))
    z = mf.shard(noise(truth.shape, seed=1), where, ends.spec)
    back = mf.gather(plan.adjoint(z))
    left, right = np.vdot(mf.gather(z), truth), np.vdot(back, wide)
    assert abs(left - right if not real else (left - right).real) <= 1e-5 * np.linalg.norm(
        mf.gather(z)
    ) * np.linalg.norm(truth)
    (slope,) = jax.vjp(plan, a)[1](mapped(jnp.conj, z))
    assert error(mf.gather(slope), back.conj()) <= 1e-6
    assert stored_of(slope).sharding.is_equivalent_to(stored_of(a).sharding, len(shape))
    if shape[0] < length:
        assert error(mf.gather(plan.inverse(y)), x) <= 4e-7


def test_weights_of_bands_keep_their_precision(x64: None) -> None:
    """Catches weights rounded to float32, or to integers if the first of a round is one."""
    where, x = mesh((4,)), np.arange(1.0, 17.0)
    start = from_spec((16,), {"x": 4}, P("x"))
    weights = (1, 1 / 3, 0.1, 2)
    bands = tuple(Band(4 * j, (4 * j + 4) % 16, 4, weight) for j, weight in enumerate(weights))
    walk = Walk(start, (Bands(0, 16, start.cuts[0], bands),), real=True)
    (moved,) = jax.jit(lambda x: walked((x,), walk, where, False))(jax.device_put(x, NamedSharding(where, P("x"))))
    np.testing.assert_array_equal(moved, np.roll(np.repeat(weights, 4) * x, 4))
