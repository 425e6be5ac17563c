"""Type 3 at points that JAX traces: sums, derivatives in values, positions and frequencies, maps, shards, bounds."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_case
from reference import error, mesh, noise
from shard_maps import mapped, put

import meshfft as mf
from meshfft.inspect.hlo import collectives

WEIGHTS = np.arange(1, 25, dtype=np.float32)


def drawn(positions: int, frequencies: int, d: int, product: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, positions of half-width `product` off 0, and frequencies of half-width 1 off 0."""
    rng = np.random.default_rng(d)
    x, s = rng.uniform(-product, product, (positions, d)) + 7, rng.uniform(-1, 1, (frequencies, d)) - 2.5
    return noise((positions,)), x.astype(np.float32), s.astype(np.float32)


def waves(x: np.ndarray, s: np.ndarray, unit: str = "turns") -> np.ndarray:
    return np.exp(-1j * (2 * np.pi if unit == "turns" else 1) * (s.astype(float) @ x.astype(float).T))


def slopes(c: np.ndarray, x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, ...]:
    """The gradient of sum(WEIGHTS |X|^2) in values, positions and frequencies, by direct sums."""
    all_waves, tau = waves(x, s), -2j * np.pi
    back = 2 * WEIGHTS * np.conj(all_waves @ c)
    in_x = [((back * tau * line) @ all_waves * c).real for line in s.astype(float).T]
    in_s = [(back * (all_waves @ (tau * line * c))).real for line in x.astype(float).T]
    return back @ all_waves, np.stack(in_x, -1), np.stack(in_s, -1)


def loss(c: Array, x: Array, s: Array, **how: Any) -> Array:
    y = mf.nufftn_type3(c, x, mf.Scattered.turns(s), tol=2e-6, **how)
    return (abs(y) ** 2 * WEIGHTS).sum()


@pytest.mark.more
@pytest.mark.parametrize("kind", [slow_case(AxisType.Auto), AxisType.Explicit], ids=str)
def test_sums_and_gradients_of_shards(kind: AxisType) -> None:
    """Catches a middle, a factor or a slope of another dimension, and a gather of values; points are sharded, too.

    Under Auto axes, where no `spec=` shows how c is cut, every device gets all coordinates.
    """
    c, x, s = drawn(40, 24, 2)
    devices, cut = mesh((2, 4), kind), P(("x", "y"))
    how: dict[str, Any] = {"space_bandwidth": 3.05}

    def both(c: Array, x: Array, s: Array) -> Any:
        return mf.nufftn_type3(c, x, mf.Scattered.turns(s), tol=2e-6, **how), jax.grad(
            functools.partial(loss, **how), (0, 1, 2)
        )(c, x, s)

    with jax.set_mesh(devices):
        given = put(c, devices, cut), put(x, devices, cut), put(s, devices, cut)
        program = jax.jit(both).lower(*given).compile()
        y, found = program(*given)
    assert error(y, waves(x, s) @ c) <= 2e-6 and y.sharding.is_equivalent_to(NamedSharding(devices, cut), 1)
    for one, want in zip(found, slopes(c, x, s), strict=True):
        assert error(one, want) <= 4e-6
    assert collectives(program).get("all-gather", 0) <= (2 if kind == AxisType.Auto else 0)


@pytest.mark.slow
def test_batches_planes_and_padding() -> None:
    """Catches a batch behind the points, planes that become complex, padding that enters a sum, and a lost bound."""
    c, x, s = drawn(43, 7, 1, 40.0)
    devices, two = mesh((8,)), np.stack([c, 2j * c])
    points, radians = x.reshape(43, 1), 2 * np.pi * s
    want = two @ waves(points, radians, "radians").T

    def run(c: Any, x: Array, s: Array) -> Any:
        how: dict[str, Any] = {"space_bandwidth": 2 * np.pi * 40.1, "spec": P(None, "x")}
        return mf.nufftn_type3(c, x, mf.Scattered.radians(s), tol=2e-6, **how)

    padded = mf.shard(two, devices, P(None, "x"))
    assert isinstance(padded, mf.PaddedArray)
    assert error(mf.gather(jax.jit(run)(padded, points, radians)), want) <= 2e-6
    re, im = jax.jit(run)((padded.map(jnp.real), padded.map(jnp.imag)), points, radians)
    assert re.dtype == np.float32 and error(mf.gather(re) + 1j * mf.gather(im), want) <= 2e-6
    assert np.isnan(mf.gather(jax.jit(run)(padded, 2 * points, radians))).all()


@pytest.mark.slow
def test_outside_of_jit_extents_are_known() -> None:
    """Catches extents that a tracer hides: of gradients, maps, and second derivatives without `jit`."""
    c, x, s = (jnp.asarray(one) for one in drawn(30, 24, 1))
    for one, want in zip(jax.grad(loss, (0, 1, 2))(c, x, s), slopes(*map(np.asarray, (c, x, s))), strict=True):
        assert error(one, want) <= 4e-6
    each = jax.vmap(lambda x, s: mf.nufftn_type3(c, x, mf.Scattered.turns(s)))(jnp.stack([x, 2 * x]), jnp.stack([s, s]))
    assert error(each, np.stack([waves(np.asarray(k * x), np.asarray(s)) @ np.asarray(c) for k in (1, 2)])) <= 1e-5


@pytest.mark.slow
def test_second_derivatives() -> None:
    """Catches a mixed derivative that is lost, as of a factor x of the first."""
    c, x, s = drawn(30, 24, 1)
    way, step = noise(x.shape, "float32", 3), 1e-6
    along = jax.jvp(lambda x: jax.grad(loss, 2)(jnp.asarray(c), x, jnp.asarray(s)), (x,), (way,))[1]
    there, here = (slopes(c, x.astype(float) + by * way.astype(float), s)[2] for by in (step, -step))
    assert error(along, (there - here) / (2 * step)) <= 2e-5


@pytest.mark.more
def test_long_lines_lose_nothing() -> None:
    """Catches a phase s . x that is rounded as a float, to 2e-3 turns here, or middles that are."""
    c, x, s = drawn(30, 24, 1, 4000.0)
    x += 2.0**14
    run = jax.jit(lambda c, x, s: mf.nufftn_type3(c, x, mf.Scattered.turns(s), tol=2e-6, space_bandwidth=(4100,)))
    assert error(run(c, x, s), waves(x, s) @ c) <= 2e-6
    with jax.enable_x64(True):
        exact = [one.astype(complex if one.dtype.kind == "c" else float) for one in (c, x + 1e-9, s)]
        fine = jax.jit(lambda c, x, s: mf.nufftn_type3(c, x, mf.Scattered.turns(s), tol=1e-9, space_bandwidth=4100))
        assert error(fine(*exact), waves(exact[1], exact[2]) @ exact[0]) <= 1e-9


@pytest.mark.slow
def test_inside_shard_map() -> None:
    """Catches coordinates of all points taken for those of a block."""
    c, x, s = drawn(40, 24, 2)
    devices = mesh((8,))
    each = lambda c, x, s: mf.nufftn_type3(c, x, mf.Scattered.turns(s), spec=P("x"), space_bandwidth=3.05)  # noqa: E731
    run = mapped(each, devices, "x", (P("x"), P(), P()), P("x"))
    assert error(jax.jit(run)(put(c, devices, P("x")), x, s), waves(x, s) @ c) <= 1e-5
    own = mapped(each, devices, "x", (P("x"), P("x"), P()), P("x"))
    with pytest.raises(ValueError, match=r"the values have shape|points differ along the mesh axes"):
        jax.jit(own)(put(c, devices, P("x")), x, s)


def test_what_is_refused() -> None:
    """Catches a bound that is missing, wrong, or less than the points have where that is known."""
    c, x, s = drawn(30, 24, 1)

    def run(x: Any, bound: Any) -> Any:
        return mf.nufftn_type3(c, x, mf.Scattered.turns(s), space_bandwidth=bound)

    with pytest.raises(ValueError, match="give space_bandwidth=, the largest product"):
        jax.jit(run, static_argnums=1)(x, None)
    wrongs: list[Any] = [0, -1.0, np.nan, "wide", (1.0, 2.0)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"space_bandwidth is .*: give a positive number"):
            jax.jit(functools.partial(run, bound=wrong))(x)
    with pytest.raises(ValueError, match=r"space_bandwidth allows \[1.0\]"):
        jax.vmap(functools.partial(run, bound=1.0))(x[None])
    with pytest.raises(ValueError, match="call outside of jit"):
        jax.jit(functools.partial(run, bound=1e9))(x)


def test_positions_by_name() -> None:
    """Catches positions of `Scattered.lengths` refused, and those with a period taken."""
    c, x, s = drawn(30, 24, 1)
    frequencies = mf.Scattered.turns(s)
    expected = mf.nufftn_type3(c, x, frequencies)
    np.testing.assert_array_equal(mf.nufftn_type3(c, mf.Scattered.lengths(x), frequencies), expected)
    with pytest.raises(TypeError, match="positions are in radians, but have no period"):
        mf.nufftn_type3(c, mf.Scattered.radians(x), frequencies)
