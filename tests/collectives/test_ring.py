"""The one-shuffle ring: its sum, its hops, its gradient, and nothing of Fourier."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise

import meshfft as mf
from meshfft.collectives.ring import handed_on
from meshfft.inspect.hlo import collectives

RINGS = [((p,), ("x",)) for p in (1, 2, 3, 4, 5, 7, 8)] + [((2, 4), ("x", "y")), ((2, 4), ("y", "x")), ((2, 3), ("y",))]


def _sum(
    sizes: tuple[int, ...], axes: tuple[str, ...], two_way: bool, kind: AxisType = AxisType.Auto
) -> tuple[Any, Array, np.ndarray, int]:
    """A matrix times a vector cut over the ring: device r holds rows r, shard s holds columns s."""
    devices = mesh(sizes, kind)
    p = int(np.prod([devices.shape[a] for a in axes]))
    matrix, x = noise((p, 3, p, 4), "float32", 1), noise((p * 4,), "float32", 2)

    def body(block: Array) -> Array:
        rows = jnp.asarray(matrix)[jax.lax.axis_index(axes)]
        return mf.one_shuffle(lambda held, s: rows[:, s] @ held, block, axes, two_way=two_way)

    run = jax.jit(jax.shard_map(body, mesh=devices, in_specs=P(axes), out_specs=P(axes)))
    return run, jax.device_put(x, NamedSharding(devices, P(axes))), matrix.reshape(p * 3, p * 4), p


@pytest.mark.quick(0, 1, 3, 6, 7, 17)
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(("sizes", "axes"), RINGS)
def test_every_device_sums_every_shard_once(sizes: tuple[int, ...], axes: tuple[str, ...], two_way: bool) -> None:
    """Catches a shard skipped, met twice or handed to the wrong term, with several axes in any order as one ring."""
    run, x, matrix, _ = _sum(sizes, axes, two_way)
    np.testing.assert_allclose(run(x), matrix @ np.asarray(x), rtol=2e-5, atol=2e-5)


@pytest.mark.quick(0, 1, 3, 4, 5, 6, 11)
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_hops(p: int, two_way: bool) -> None:
    """Catches a wasted last hop, a hop for the first term, and any other collective."""
    run, x, _, _ = _sum((p,), ("x",), two_way)
    counts = collectives(run.lower(x).compile())
    assert counts == ({"collective-permute": p - 1} if p > 1 else {})


@pytest.mark.parametrize("p", [4, 5, 8])
def test_two_ways_take_half_the_steps(p: int) -> None:
    """Catches a two-way ring as long as a one-way one: hops on the longest chain, fetch after fetch."""
    for two_way, steps in ((False, p - 1), (True, -(-(p - 1) // 2))):
        jaxpr = jax.make_jaxpr(lambda x, way=two_way: _chain(x, p, way))(jnp.zeros(p)).jaxpr
        assert _longest(jaxpr) == steps


def _chain(x: Array, p: int, two_way: bool) -> Array:
    body = jax.shard_map(
        lambda b: mf.one_shuffle(lambda h, s: h, b, "x", two_way=two_way),
        mesh=mesh((p,)),
        in_specs=P("x"),
        out_specs=P("x"),
    )
    return body(x)


def _longest(jaxpr: Any) -> int:
    """Most permutes that wait for one another, loops multiplied out."""
    depth: dict[object, int] = {}
    for eqn in jaxpr.eqns:
        start = max((depth.get(v, 0) for v in eqn.invars if not hasattr(v, "val")), default=0)
        inner = [p for p in eqn.params.values() if hasattr(p, "jaxpr") or hasattr(p, "eqns")]
        own = max((_longest(getattr(p, "jaxpr", p)) for p in inner), default=0) * int(eqn.params.get("length", 1))
        for v in eqn.outvars:
            depth[v] = start + own + (eqn.primitive.name == "ppermute")
    return max(depth.values(), default=0)


def test_the_next_shard_is_fetched_before_the_held_one_is_used() -> None:
    """Catches the order that cannot overlap: inside the loop the permute must not wait for the product."""
    jaxpr = str(jax.make_jaxpr(lambda x: _chain(x, 8, False))(jnp.zeros(8)))
    loop = jaxpr[jaxpr.index("scan") :]
    assert loop.index("ppermute") < loop.index("add", loop.index("ppermute"))


def test_the_papers_order_of_lines() -> None:
    """Catches prefetch=False that fetches ahead all the same, wastes a hop, or sums something else."""
    x = jax.device_put(noise((24,), "float32", 1), NamedSharding(mesh((8,)), P("x")))

    def body(block: Array) -> Array:
        return mf.one_shuffle(lambda held, s: jnp.sin(held) * (s + 1).astype("float32"), block, "x", prefetch=False)

    run = jax.jit(jax.shard_map(body, mesh=mesh((8,)), in_specs=P("x"), out_specs=P("x")))
    truth = (np.sin(np.asarray(x).reshape(8, 3)) * np.arange(1, 9)[:, None]).sum(0)
    np.testing.assert_allclose(np.asarray(run(x)).reshape(8, 3), np.tile(truth, (8, 1)), rtol=1e-5, atol=1e-5)
    assert collectives(run.lower(x).compile()) == {"collective-permute": 7}
    loop = str(jax.make_jaxpr(run)(x))
    loop = loop[loop.index("scan") :]
    order = re.findall(r"= (optimization_barrier|ppermute|sin)\b", loop)
    assert order[:4] == ["optimization_barrier", "ppermute", "optimization_barrier", "sin"]
    with pytest.raises(ValueError, match="Algorithm 1 sends one way"):
        mf.one_shuffle(lambda held, s: held, x, "x", two_way=True, prefetch=False)


def test_a_wire_is_given_by_name() -> None:
    """Catches a name that sends exact numbers, as every word that names no wire did."""
    devices, rng = mesh((4,)), np.random.default_rng(8)
    x = rng.standard_normal((4, 500)).astype(np.float32)

    def ring(wire: str) -> np.ndarray:
        one = jax.shard_map(
            lambda block: mf.one_shuffle(lambda held, s: held * (s + 1).astype("float32"), block, "x", wire=wire),
            mesh=devices,
            in_specs=P("x"),
            out_specs=P("x"),
        )
        return np.asarray(one(mf.shard(x, devices, P("x"))))

    truth = np.einsum("s,sn->n", np.arange(1.0, 5), x.astype(float))
    off = {wire: np.abs(ring(wire) - truth).max() for wire in ("exact", "int24", "int16")}
    assert off["exact"] < 1e-5 and 1e-5 < off["int16"] < 1e-2 and off["int24"] < off["int16"], off
    with pytest.raises(ValueError, match="wire 'int8' is unknown"):
        ring("int8")

    def pair(wire: str) -> Any:
        one = jax.shard_map(
            lambda a: mf.one_shuffle(lambda held, s: held, {"a": a, "b": a.astype("int32")}, "x", wire=wire),
            mesh=devices,
            in_specs=P("x"),
            out_specs=P("x"),
        )
        return one(mf.shard(x, devices, P("x")))

    assert np.array_equal(pair("exact")["b"][0], x.astype("int32").sum(0))
    with pytest.raises(TypeError, match="wire 'int16' encodes one array, or planes"):
        pair("int16")


@pytest.mark.quick(2, 3)
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_gradient_is_the_transposed_matrix(kind: AxisType, two_way: bool) -> None:
    """Catches a ring that cannot be differentiated, or whose gradient gathers."""
    run, x, matrix, p = _sum((5,), ("x",), two_way, kind)
    weights = jax.device_put(noise((p * 3,), "float32", 3), NamedSharding(mesh((5,), kind), P("x")))
    _, pull = jax.vjp(run, x)
    np.testing.assert_allclose(pull(weights)[0], matrix.T @ np.asarray(weights), rtol=2e-5, atol=2e-5)
    program = jax.jit(lambda x, w: jax.vjp(run, x)[1](w)).lower(x, weights).compile()
    assert set(collectives(program)) == {"collective-permute"}


@pytest.mark.parametrize(("sizes", "axes"), RINGS)
def test_shards_are_handed_on_by_places(sizes: tuple[int, ...], axes: tuple[str, ...]) -> None:
    """Catches the wrong way round, axes in the wrong order, and a permute where every shard stays."""
    devices = mesh(sizes)
    p = int(np.prod([devices.shape[a] for a in axes]))
    places = range(-p, p + 2)

    def body(shard: Array) -> list[Array]:
        return [handed_on(shard, axes, k) for k in places]

    specs = [P(axes)] * len(places)
    run = jax.jit(jax.shard_map(body, mesh=devices, in_specs=P(axes), out_specs=specs, check_vma=False))
    x = jax.device_put(np.arange(p), NamedSharding(devices, P(axes)))
    program = run.lower(x).compile()
    for k, arrived in zip(places, program(x), strict=True):
        np.testing.assert_array_equal(arrived, np.roll(np.arange(p), k))
    assert collectives(program).get("collective-permute", 0) == p - 1  # places that are equal mod p are one


def test_the_shard_may_be_a_pytree() -> None:
    """Catches a ring that moves one array only: points and strengths must travel together."""
    points, strengths = noise((8, 2), "float32", 4), noise((8,), "float32", 5)

    def body(shard: dict[str, Array]) -> dict[str, Array]:
        def term(held: dict[str, Array], s: Array) -> dict[str, Array]:
            return {"sum": held["c"].sum()[None], "dot": held["c"] @ held["x"] + (0 * s).astype("float32")}

        return mf.one_shuffle(term, shard, "x")

    run = jax.shard_map(body, mesh=mesh((4,)), in_specs=P("x"), out_specs={"sum": P("x"), "dot": P("x")})
    out = jax.jit(run)({"x": points, "c": strengths})
    np.testing.assert_allclose(out["sum"], np.full(4, strengths.sum()), rtol=1e-5)
    np.testing.assert_allclose(out["dot"].reshape(4, 2), np.tile(strengths @ points, (4, 1)), rtol=1e-5)


@pytest.mark.quick(1, 3, 4)
@pytest.mark.parametrize(
    ("way", "account"),
    [({}, True), ({"two_way": True}, True), ({"prefetch": False}, True), ({"two_way": True}, False)],
    ids=str,
)
@pytest.mark.parametrize("p", [2, 5])
def test_what_is_alike_on_all_devices_stays_so(p: int, way: dict[str, Any], account: bool) -> None:
    """Catches a term or a shard with a leaf that does not vary over the ring, which JAX refused as a changed carry, a
    sum of it that no out_specs of P() takes, its gradient, and a leaf that is sent though all devices have it.
    """
    points, scale = noise((2 * p, 3), "float32", 4), noise((3,), "float32", 5)

    def body(block: Array, scale: Array) -> dict[str, Array]:
        def term(held: dict[str, Array], s: Array) -> dict[str, Any]:
            return {"sum": held["x"] @ held["w"], "square": held["w"] ** 2, "one": 1.0}

        return mf.one_shuffle(term, {"x": block, "w": scale}, "x", **way)

    specs = {"sum": P("x"), "square": P(), "one": P()}
    ring = jax.shard_map(body, mesh=mesh((p,)), in_specs=(P("x"), P()), out_specs=specs, check_vma=account)
    program = jax.jit(ring).lower(points, scale).compile()
    out, both = program(points, scale), points.reshape(p, 2, 3).sum(0)
    np.testing.assert_allclose(out["sum"].reshape(p, 2), np.tile(both @ scale, (p, 1)), rtol=2e-5)
    np.testing.assert_allclose(out["square"], p * scale**2, rtol=1e-5)
    assert out["one"] == p and collectives(program) == {"collective-permute": (p - 1) * (1 if account else 2)}
    loss = jax.jit(jax.grad(lambda *a: sum(jnp.sum(leaf) for leaf in ring(*a).values()), (0, 1)))
    by_points, by_scale = loss(points, scale)
    np.testing.assert_allclose(by_points, np.tile(p * scale, (2 * p, 1)), rtol=1e-5)
    np.testing.assert_allclose(by_scale, p * points.sum(0) + 2 * p * scale, rtol=1e-4)
