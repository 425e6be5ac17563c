"""The KDFT at any points of the z-plane: value, sharding, collectives, adjoint, and gradients in array and points."""

import functools
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but, slow_case
from reference import chips_without_caches, error, in_turns, mesh, noise, powers, separable
from strategies import SIZES, Case, cases

import meshfft as mf
from meshfft import Points
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import Layout
from meshfft.layout.padded_array import mapped, stored_of
from meshfft.numerics.dtypes import TIERS
from meshfft.plans.request import PlanePair

SEEDS = st.integers(0, 2**31)
KINDS = st.sampled_from(["none", "uniform", "turns", "radians", "z"])


def drawn(kind: str, m: int, seed: int) -> Points | None:
    """Random points of a kind; no points mean as many uniform ones as inputs."""
    rng = np.random.default_rng(seed)
    made: dict[str, Callable[[], Points | None]] = {
        "none": lambda: None,
        "uniform": lambda: Points.uniform(m),
        "turns": lambda: Points.turns(rng.uniform(-3, 3, m)),
        "radians": lambda: Points.radians(rng.uniform(-9, 9, m)),
        "z": lambda: Points.z(rng.uniform(0.95, 1.05, m) * np.exp(2j * np.pi * rng.random(m))),
    }
    return made[kind]()


def matrix(points: Points | None, n: int) -> np.ndarray:
    """The Vandermonde matrix in float64."""
    if points is None or points.angle is None:
        m = n if points is None else points.size
        return np.exp(-2j * np.pi * (np.outer(np.arange(m), np.arange(n)) % m / m))
    return powers(points.angle if points.unit == "turns" else in_turns(points.angle), points.log_radius, n)


def sharded(y: Any, plan: mf.Plan, layout: Layout) -> bool:
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    return y.sharding.is_equivalent_to(NamedSharding(plan.mesh, layout.spec), y.ndim)


def hold(plan: mf.Plan, truth: list[np.ndarray], seed: int) -> None:
    """Value, sharding, adjoint law and collectives, of the transform and of its gradient."""
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    x, z = noise(plan.shape, seed=seed), noise(plan.out_shape, seed=seed + 1)
    a, b = mf.shard(x, plan.mesh, plan.in_layout.spec), mf.shard(z, plan.mesh, plan.out_layout.spec)
    c = mapped(jnp.conj, b)
    ways = jax.jit(lambda a, b, c: (plan(a), jax.vjp(plan, a)[1](c)[0], plan.adjoint(b)))
    program = ways.lower(a, b, c).compile()  # each takes the collectives of the plan: with one array two could share
    assert collectives(program) == {kind: 3 * many for kind, many in plan.collectives.items()}
    y, pulled, adjoint = program(a, b, c)
    assert sharded(y, plan, plan.out_layout) and stored_of(y).shape == plan.out_layout.storage
    exact = separable(x.astype(complex), truth, plan.transform.dims) * plan.transform.scale
    assert error(mf.gather(y), exact) <= plan.error
    assert np.count_nonzero(stored_of(y)) == np.count_nonzero(mf.gather(y)), "padding is not zero"
    back = separable(z.astype(complex), [v.conj().T for v in truth], plan.transform.dims) * plan.transform.scale
    for found in (mapped(jnp.conj, pulled), adjoint):
        assert sharded(found, plan, plan.in_layout)
        assert error(mf.gather(found), back) <= plan.error
    left, right = np.vdot(z, mf.gather(y)), np.vdot(mf.gather(adjoint), x)
    assert abs(left - right) <= 1e-6 * (np.linalg.norm(exact) * np.linalg.norm(z) + np.linalg.norm(back * x))


@settings(max_examples=settings().max_examples // 2)
@given(cases(), st.sampled_from(["kdft", "auto"]), st.sampled_from(["natural", "any"]), st.data())
def test_any_points_of_any_case(case: Case, method: str, order: str, data: st.DataObject) -> None:
    """Catches errors that uniform points hide: a reversed ring, points of another device."""
    kinds = data.draw(st.lists(KINDS, min_size=len(case.axes), max_size=len(case.axes)))
    counts, seed = [data.draw(st.sampled_from(SIZES)) for _ in kinds], data.draw(SEEDS)
    points = [drawn(kind, m, seed + j) for j, (kind, m) in enumerate(zip(kinds, counts, strict=True))]
    how: dict[str, Any] = {"axes": case.axes, "points": points, "method": method, "order": order, "norm": "ortho"}
    with chips_without_caches(data.draw(st.booleans())):
        plan = mf.plan(case.shape, mesh=mesh(case.mesh), spec=case.spec, **how)
    hold(plan, [matrix(p, case.shape[d]) for p, d in zip(points, case.axes, strict=True)], seed)


# name: (shape, numbers of points, mesh, spec)
TABLE = {
    "1-D": ((16,), (16,), (8,), P("x")),
    "1-D, fewer": ((40,), (8,), (8,), P("x")),
    "1-D, more, prime": ((17,), (23,), (8,), P("x")),
    "1-D, one input": ((1,), (5,), (8,), P("x")),
    "1-D, one point": ((13,), (1,), (5,), P("x")),
    "2-D": ((16, 8), (8, 8), (4, 2), P("x", "y")),
    "2-D, uneven": ((17, 13), (11, 29), (4, 2), P("x", "y")),
    "2-D, two axes on one": ((24, 5), (16, 7), (2, 4), P(("y", "x"))),
    "3-D": ((8, 8, 8), (8, 16, 4), (2, 2, 2), P("x", "y", "z")),
    "3-D, uneven": ((7, 5, 3), (5, 11, 3), (2, 2, 2), P("x", "y", "z")),
    "3-D, idle axis": ((6, 4, 5), (7, 4, 2), (2, 2, 2), P(None, "z")),
}


UNEVEN = ("1-D, more, prime", "2-D, uneven", "3-D, uneven")  # what even sizes find, these find too
BLOCKS = ("1-D, fewer", "1-D, one input", "1-D, one point", "2-D, two axes on one", "3-D, idle axis", *UNEVEN)
QUICK = [*((name, False) for name in BLOCKS), *((name, True) for name in (*UNEVEN[:2], "3-D, idle axis"))]


@pytest.mark.more
@pytest.mark.parametrize("case", slow_but(QUICK, itertools.product(TABLE, (False, True))), ids=str)
def test_points_along_every_axis(case: tuple[str, bool]) -> None:
    """Catches a gather, a wrong number of hops, and fewer, as many or more points than inputs that are mixed up."""
    name, planes = case
    shape, counts, sizes, spec = TABLE[name]
    kinds = ("turns", "z", "radians")
    points = [drawn(kind, m, m) for kind, m in zip(kinds, counts, strict=False)]
    with chips_without_caches(planes):
        plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, points=points, method="kdft")
    hold(plan, [matrix(p, n) for p, n in zip(points, shape, strict=True)], len(name))


@pytest.mark.more
def test_one_call_is_the_plan() -> None:
    """Catches a call that treats points, axes or norm otherwise than the plan, or loses the array's sharding."""
    devices, spec = mesh((2, 4)), P("x", None, "y")
    x, points = noise((6, 3, 8)), [drawn("z", 16, 1), drawn("turns", 10, 2)]
    a = mf.shard(x, devices, spec)
    y = mf.kdftn(a, points, axes=(-1, 0), norm="forward")
    truth = separable(x.astype(complex), [matrix(points[0], 8), matrix(points[1], 6)], (2, 0)) / 48
    assert y.sharding.is_equivalent_to(NamedSharding(devices, spec), 3) and error(y, truth) <= 6e-7
    np.testing.assert_array_equal(mf.kdftn(a, [None, None, None]), mf.kdftn(a))
    np.testing.assert_array_equal(mf.kdftn(a, Points.uniform(8), axes=[2]), mf.kdftn(a, axes=[2]))
    assert error(mf.kdftn(a), np.fft.fftn(x)) <= 7e-7


Made = Callable[[Any], Points]
FAMILIES: dict[str, tuple[Made, int]] = {
    "turns": (Points.turns, 8),
    "radians": (Points.radians, 8),
    "z": (lambda p: Points.z(jnp.exp(jax.lax.complex(0.1 * p[:8], p[8:]))), 16),
    "zoom": (lambda p: Points.zoom(p[0], p[1], 8), 2),
    "chirp": (
        lambda p: Points.chirp(
            jnp.exp(jax.lax.complex(0.1 * p[0], p[1])), jnp.exp(jax.lax.complex(0.01 * p[2], p[3])), 8
        ),
        4,
    ),
}


def loss(families: list[str], shape: tuple[int, ...], devices: Any, spec: Any, seed: int = 0) -> Callable:
    """A function of an array and parameters of points, whose second derivatives are not zero."""
    target = noise([8] * len(families) + list(shape[len(families) :]), "complex128", seed)
    goal = jax.device_put(target, NamedSharding(devices, spec))

    def of(x: Array, *parameters: Array) -> Array:
        points = [FAMILIES[name][0](p) for name, p in zip(families, parameters, strict=True)]
        y = mf.kdftn(x, points, axes=range(len(points)), spec=spec, norm="ortho")
        return jnp.sum(jnp.abs(y - goal) ** 2)

    return of


def slope(f: Callable, at: list, along: list, step: float = 1e-5) -> Any:
    """The five-point difference of a function of several arrays along a direction: its phases change by w (n m) rad."""
    here = [f(*(a + k * step * b for a, b in zip(at, along, strict=True))) for k in (-2, -1, 1, 2)]
    return jax.tree.map(lambda a, b, c, d: (a - 8 * b + 8 * c - d) / (12 * step), *here)


CASES = [
    (["turns"], (16,), (8,), P("x")),
    slow_case(["z"], (16,), (8,), P("x")),  # as the chirp, which is made of it
    (["chirp"], (16,), (8,), P("x")),
    slow_case(["radians"], (8, 3), (8,), P("x")),
    (["turns", "zoom"], (4, 8), (2, 4), P("x", "y")),
]


@pytest.mark.more
@pytest.mark.parametrize(("families", "shape", "sizes", "spec"), CASES, ids=lambda v: "-".join(map(str, v)))
def test_gradients_in_array_and_points(x64: None, families: list[str], shape: tuple, sizes: tuple, spec: P) -> None:
    """Catches a factor n or 2 pi left out, a conjugate too few, a second derivative of zero, a neighbour's point."""
    devices, rng = mesh(sizes), np.random.default_rng()
    f = loss(families, shape, devices, spec)
    at = [mf.shard(noise(shape, "complex128", 1), devices, spec)]
    at += [jnp.asarray(rng.uniform(-0.5, 0.5, FAMILIES[name][1])) for name in families]
    along = [mf.shard(noise(shape, "complex128", 2), devices, spec)]
    along += [jnp.asarray(rng.standard_normal(p.shape)) for p in at[1:]]

    @jax.jit
    def both(*parts: Array) -> Any:
        """Value and gradient, and their forward derivatives."""
        return jax.jvp(jax.value_and_grad(f, argnums=tuple(range(len(at)))), parts, tuple(along))

    (value, gradient), (change, second) = both(*at)
    assert gradient[0].sharding.is_equivalent_to(NamedSharding(devices, spec), len(shape))
    assert [g.shape for g in gradient] == [p.shape for p in at]
    parts = [float(np.real(np.sum(np.asarray(g) * np.asarray(v)))) for g, v in zip(gradient, along, strict=True)]
    for j, part in enumerate(parts):
        only = [v if i == j else 0 * v for i, v in enumerate(along)]
        assert part == pytest.approx(
            slope(lambda *q: float(both(*q)[0][0]), at, only), rel=1e-6, abs=1e-6 * float(value)
        )
    assert float(change) == pytest.approx(sum(parts), rel=1e-9)
    curved = slope(lambda *q: both(*q)[0][1], at, along)
    for a, b in zip(second, curved, strict=True):
        assert np.linalg.norm(b) > 0 and error(a, np.asarray(b)) <= 1e-6


def _all_reduced(text: str) -> list[int]:
    """Elements of each array that a compiled program all-reduces."""
    found = re.findall(r"= (.*?) all-reduce(?:-start)?\(", text)
    sizes = [re.findall(r"\w+\[([\d,]*)\]", types) for types in found]
    return [int(np.prod([int(n) for n in size.split(",") if n])) for many in sizes for size in many]


@pytest.mark.quick(1)
@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize(("shape", "sizes", "spec"), [((16,), (8,), P("x")), ((8, 16, 8), (2, 2, 2), P("x", "y", "z"))])
def test_gradients_of_sharded_arrays_and_their_collectives(shape: tuple, sizes: tuple, spec: P, planes: bool) -> None:
    """Catches an array that is gathered, or summed, for its points' sake: only sums of as many numbers may be."""
    with chips_without_caches(planes):
        _gradients_and_their_collectives(shape, sizes, spec)


def _gradients_and_their_collectives(shape: tuple, sizes: tuple, spec: P) -> None:
    devices, m = mesh(sizes), 8
    angles = [jnp.asarray(np.random.default_rng().random(m), jnp.float32) for _ in shape]
    x, z = (mf.shard(noise(n, seed=1), devices, spec) for n in (shape, [m] * len(shape)))

    def f(x: Array, angles: list[Array], z: Array) -> Array:
        return jnp.sum(jnp.real(z * mf.kdftn(x, [Points.turns(t) for t in angles], spec=spec)))

    hops = mf.plan(shape, mesh=devices, spec=spec, points=[Points.uniform(m)] * len(shape), method="kdft").collectives
    in_x = jax.jit(jax.grad(f)).lower(x, angles, z).compile()
    assert collectives(in_x) == hops
    program = jax.jit(jax.grad(f, argnums=1)).lower(x, angles, z).compile()
    counts = collectives(program)
    assert set(counts) <= {"collective-permute", "all-reduce"} and counts.get("all-reduce", 0) <= len(shape)
    assert sum(_all_reduced(program.as_text() or "")) <= 2 * m * len(shape)
    matrices, weights = [powers(t, None, n) for t, n in zip(angles, shape, strict=True)], np.asarray(z).astype(complex)
    assert error(in_x(x, angles, z), separable(weights, [v.T for v in matrices])) <= 1e-6
    for dim, found in enumerate(program(x, angles, z)):
        moved = [v * (-2j * np.pi * np.arange(v.shape[1])) ** (d == dim) for d, v in enumerate(matrices)]
        product = np.real(weights * separable(np.asarray(x).astype(complex), moved))
        others = tuple(d for d in range(len(shape)) if d != dim)
        assert error(found, product.sum(others)) <= 2e-6


@pytest.mark.more
def test_vmap_over_arrays_and_points() -> None:
    """Catches a batch of points that shares the first one's, and a batch dimension that is transformed."""
    devices, spec = mesh((4,)), P("x")
    x, turns = noise((3, 8)), np.random.default_rng().random((3, 12))
    a, t = mf.shard(x, devices, P(None, "x")), jnp.asarray(turns, jnp.float32)
    one = powers(t[0], None, 8)
    each = np.stack([powers(row, None, 8) @ v for row, v in zip(t, x.astype(complex), strict=True)])

    def run(x: Array, t: Array) -> Array:
        return mf.kdftn(x, Points.turns(t), axes=[0], spec=spec)

    assert error(jax.jit(jax.vmap(run, (0, None)))(a, t[0]), x.astype(complex) @ one.T) <= 4e-7
    over_points = np.stack([powers(row, None, 8) @ x[0].astype(complex) for row in t])
    assert error(jax.jit(jax.vmap(run, (None, 0)))(a[0], t), over_points) <= 4e-7
    assert error(jax.jit(jax.vmap(run))(a, t), each) <= 4e-7
    energy = jax.grad(lambda t, x: jnp.sum(jnp.abs(run(x, t)) ** 2))
    together = jax.jit(jax.vmap(energy))(t, a)
    for j in range(3):
        assert error(together[j], np.asarray(energy(t[j], mf.shard(x[j], devices, spec)))) <= 2e-5


def test_inside_jit_under_auto_axes() -> None:
    """Catches an array whose sharding is guessed where JAX hides it, and one that is captured instead of given."""
    devices, spec = mesh((8,)), P("x")
    x, points = noise((16, 2)), drawn("z", 8, 5)
    a, truth = mf.shard(x, devices, spec), matrix(points, 16) @ x.astype(complex)
    y = jax.jit(lambda a: mf.kdftn(a, points, axes=[0], spec=spec))(a)
    assert error(y, truth) <= 4e-7 and y.sharding.is_equivalent_to(NamedSharding(devices, spec), 2)
    y = jax.jit(lambda a: mf.kdftn(a, points, axes=[0]))(a)
    assert error(y, truth) <= 4e-7 and y.sharding.is_equivalent_to(NamedSharding(devices, spec), 2)


@pytest.mark.more
def test_inside_jit_an_array_may_be_captured() -> None:
    """Catches a program that does not know of the mesh, because no array that is given to it is on one."""
    devices, spec = mesh((8,)), P("x")
    x, turns = noise((16,)), jnp.asarray(np.arange(8) / 9, jnp.float32)
    a = mf.shard(x, devices, spec)
    y = jax.jit(lambda t: mf.kdftn(a, Points.turns(t), spec=spec))(turns)
    assert error(y, powers(turns, None, 16) @ x.astype(complex)) <= 4e-7


@pytest.mark.more
def test_explicit_axes_need_no_annotation() -> None:
    """Catches a type that lost its sharding, and gradients that do not pass under Explicit axes."""
    devices, spec = mesh((2, 4), AxisType.Explicit), P("x", "y")
    x, w = noise((4, 8)), np.random.default_rng().uniform(-3, 3, 12).astype(np.float32)
    v = powers(in_turns(w), None, 8)
    with jax.set_mesh(devices):
        a = jax.device_put(x, NamedSharding(devices, spec))

        def run(a: Array, w: Array) -> Array:
            return mf.kdftn(a, [None, Points.radians(w)])

        y = jax.jit(run)(a, jnp.asarray(w))
        assert jax.typeof(y).sharding.spec == spec
        truth = separable(x.astype(complex), [matrix(None, 4), v])
        assert error(y, truth) <= 6e-7
        gradients = jax.jit(jax.grad(lambda a, w: jnp.sum(jnp.abs(run(a, w)) ** 2), argnums=(0, 1)))(a, jnp.asarray(w))
    back = separable(truth, [matrix(None, 4).conj().T, v.conj().T])
    assert error(gradients[0], 2 * back.conj()) <= 1e-6 and jax.typeof(gradients[0]).sharding.spec == spec
    moved = -1j * separable(x.astype(complex), [matrix(None, 4), v * np.arange(8)])
    assert error(gradients[1], 2 * np.real(np.conj(truth) * moved).sum(0)) <= 2e-6


@pytest.mark.more
@pytest.mark.parametrize("tier", slow_but(["bf16x3"], ["bf16x6", "bf16x3"]))
def test_traced_points_in_every_tier(tier: str) -> None:
    """Catches traced points that are looked up in a cache of tables, and a tier that is dropped in the gradient."""
    x, turns = noise((16,)), jnp.asarray(np.random.default_rng().random(8), jnp.float32)
    a, bound = (
        jax.device_put(x, NamedSharding(mesh((8,)), P("x"))),
        1.5 * TIERS[tier].limit,
    )  # of one short vector, by either form

    def run(t: Array, precision: str | None) -> Array:
        return mf.kdftn(a, Points.turns(t), precision=precision)

    assert error(run(turns, tier), powers(turns, None, 16) @ x.astype(complex)) <= bound
    grad = jax.grad(lambda t, p: jnp.sum(jnp.abs(run(t, p)) ** 2))
    assert error(grad(turns, tier), np.asarray(grad(turns, None))) <= 10 * bound, "an energy's slope may cancel"


@pytest.mark.more
@pytest.mark.parametrize(("shape", "counts", "sizes"), [((17,), (11,), (8,)), slow_case((7, 5), (5, 11), (2, 4))])
def test_planes_in_planes_out(shape: tuple, counts: tuple, sizes: tuple) -> None:
    """Catches planes that are joined on the way, and a gradient that is not the adjoint in real numbers."""
    spec = P(*"xy"[: len(shape)])
    points = [drawn(kind, m, m) for kind, m in zip(("z", "turns"), counts, strict=False)]
    with chips_without_caches():
        plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, points=points, method="kdft")
    x = noise(shape)
    a = mf.shard(x, mesh(sizes), spec)
    planes = (a.real, a.imag)
    program = jax.jit(plan).lower(planes).compile()
    y = program(planes)
    assert isinstance(y, PlanePair) and all(p.dtype == np.float32 and sharded(p, plan, plan.out_layout) for p in y)
    assert collectives(program) == plan.collectives and "c64" not in (program.as_text() or "")
    assert error(_joined(y), np.asarray(plan(a))) <= 1e-7
    back: Any = plan.adjoint(y)
    assert isinstance(back, PlanePair)
    assert error(_joined(back), np.asarray(plan.adjoint(_joined(y)))) <= 1e-7
    (gradient,) = jax.vjp(plan, planes)[1](y)
    assert error(_joined(gradient), np.asarray(_joined(back))) <= 1e-6


def _joined(planes: Any) -> Any:
    return mapped(jax.lax.complex, *planes)


@pytest.mark.more
def test_planes_through_the_call_and_traced_points() -> None:
    """Catches planes whose gradient in points takes the real part for the imaginary one."""
    x, turns = noise((16,)), jnp.asarray(np.random.default_rng().random(8), jnp.float32)
    a = jax.device_put(x, NamedSharding(mesh((8,)), P("x")))
    y: Any = mf.kdftn((jnp.real(a), jnp.imag(a)), Points.turns(np.asarray(turns)))
    assert type(y).__name__ == "PlanePair"
    assert error(jax.lax.complex(*y), powers(turns, None, 16) @ x.astype(complex)) <= 4e-7

    def energy(t: Array, planar: bool) -> Array:
        y: Any = mf.kdftn((jnp.real(a), jnp.imag(a)) if planar else a, Points.turns(t))
        return jnp.sum(jnp.square(y.re if planar else y.real) + 4 * jnp.square(y.im if planar else y.imag))

    assert error(jax.grad(energy)(turns, True), np.asarray(jax.grad(energy)(turns, False))) <= 1e-6


def test_planes_that_do_not_match_are_refused() -> None:
    """Catches planes of two shapes, types or shardings that are silently broadcast, promoted or gathered."""
    points, re = Points.uniform(8), jnp.ones(8)
    with pytest.raises(ValueError, match=r"planes have shapes \(8,\) and \(4,\)"):
        mf.kdftn((re, jnp.ones(4)), points)
    with pytest.raises(TypeError, match="planes are float32 and int32"):
        mf.kdftn((re, jnp.ones(8, "int32")), points)
    with pytest.raises(TypeError, match="planes are complex64: give real ones"):
        mf.kdftn((re.astype(complex), re.astype(complex)), points)
    cut = mf.shard(np.ones(8, np.float32), mesh((8,)), P("x"))
    with pytest.raises(ValueError, match=r"planes are sharded as .*: shard them alike"):
        mf.kdftn((cut, mf.shard(np.ones(8, np.float32), mesh((8,)), P())), points)


@pytest.mark.quick(7)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bf16", "bf16x3", "bf16x6"])
@pytest.mark.parametrize("multiplications", [3, 4])
def test_gradient_of_planes_in_every_tier(precision: str, multiplications: int, cached: bool) -> None:
    """Catches a table of split terms that is not conjugated: of planes the transpose is the adjoint."""
    x, ct = noise((8,), seed=1), noise((5,), seed=2)
    turns = np.random.default_rng(3).random(5)

    def planes(re: jax.Array, im: jax.Array) -> tuple[jax.Array, ...]:
        way = {"precision": precision, "multiplications": multiplications}
        return tuple(mf.kdftn((re, im), mf.Points.turns(turns), **way))  # type: ignore[call-overload]

    with chips_without_caches(not cached):
        _, pull = jax.vjp(planes, jnp.asarray(x.real), jnp.asarray(x.imag))
    re, im = pull((jnp.asarray(ct.real), jnp.asarray(ct.imag)))
    adjoint = np.exp(2j * np.pi * np.outer(np.arange(8), turns)) @ ct
    assert error(np.asarray(re) + 1j * np.asarray(im), adjoint) <= {"bf16": 1e-2, "bf16x3": 2e-5}.get(precision, 1e-6)


@pytest.mark.quick(1)
@pytest.mark.parametrize("precision", ["bf16x6", "float32"])
def test_more_uniform_samples_than_inputs_in_every_tier(precision: str) -> None:
    """Catches a table wider than the inputs."""
    x = noise((4,))
    y = mf.kdftn(x, mf.Points.uniform(9), precision=precision)
    assert error(y, np.fft.fft(x.astype(complex), 9)) <= 4e-7
    assert error(mf.ikdftn(y, s=(4,), precision=precision).value, x) <= 1e-6


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("precision", ["float32", "bf16x3"])
def test_inside_a_users_shard_map(kind: AxisType, precision: str) -> None:
    """Catches a loop whose carry does not vary over the mesh axes that shard_map, by default, keeps account of."""
    devices, x, turns = mesh((2, 4), kind), noise((4, 8, 6)), np.random.default_rng(0).random(5)

    def body(block: jax.Array) -> jax.Array:
        return mf.kdftn(block, mf.Points.turns(turns), axes=(2,), precision=precision)

    run = jax.shard_map(body, mesh=devices, in_specs=P("x", "y"), out_specs=P("x", "y"))
    y = jax.jit(run)(jax.device_put(x, jax.sharding.NamedSharding(devices, P("x", "y"))))
    truth = x.astype(complex) @ np.exp(-2j * np.pi * np.outer(np.arange(6), turns))
    assert error(y, truth) <= (4e-7 if precision == "float32" else 1e-5)


@pytest.mark.more
def test_points_that_came_back_from_jax_are_numbers_again() -> None:
    """Catches concrete arrays taken for traced ones: an optimiser's points must serve ikdftn, hash and compare."""
    points = mf.Points.turns([0.1, 0.3, 0.6], radius=0.99)
    back = jax.tree.map(jnp.asarray, points)
    x = noise((3,))
    solved = mf.ikdftn(mf.kdftn(x, back), back)
    assert error(solved.value, x) <= 1e-6 and hash(back.settled) == hash(back.settled)


@pytest.mark.more
def test_stages_solve_their_own_dimension() -> None:
    """Catches a stage that keeps the points of other dimensions."""
    points = [mf.Points.turns(np.arange(8) / 8 + 0.01), None]
    plan = mf.plan((8, 8), mesh=mesh((2, 4)), spec=P("x", "y"), points=points, method="kdft")
    x = noise((8, 8))
    for stage in plan.stages:
        assert error(mf.gather(stage.solve(stage(x)).value), x) <= 1e-6


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", ["kdft", "cooley-tukey"])
def test_the_mode_of_a_ring_is_in_the_text(method: str) -> None:
    """Catches a mode that is lost on the way, or a plan that contradicts the compiled program."""
    x = mf.shard(noise((16, 3), seed=1), mesh((8,)), P("x"))
    back, forth = {(i, (i - 1) % 8) for i in range(8)}, {(i, (i + 1) % 8) for i in range(8)}
    for ring, ways in (("one-way", [back]), ("two-way", [back, forth])):
        plan = mf.plan((16, 3), mesh=mesh((8,)), axes=(0,), method=method, ring=ring)
        run = jax.jit(functools.partial(mf.fftn, axes=(0,), spec=P("x"), method=method, ring=ring)).lower(x).compile()
        texts = re.findall(r"source_target_pairs=\{(.*?)\}\}", run.as_text() or "")
        seen = [{tuple(map(int, pair)) for pair in re.findall(r"(\d+),(\d+)", text)} for text in texts]
        assert all(way in seen for way in ways) and all(one in ways for one in seen)
        assert collectives(run) == plan.collectives
        assert ("two-way" in plan.name) == (ring == "two-way")
        assert error(run(x), np.fft.fft(np.asarray(x), axis=0)) <= 4e-7
    with pytest.raises(ValueError, match="ring 'both' is unknown: use one of 'auto', 'one-way', 'two-way'"):
        mf.kdftn(x, ring="both")
    with pytest.raises(ValueError, match="method 'transpose' has no ring"):
        mf.fftn(x, method="transpose", ring="one-way")


@pytest.mark.more
def test_on_cpus_a_ring_of_two_reads_and_writes_blocks_once() -> None:
    """Catches blocks copied, taken apart or filled with zeros as wholes: only hops make them, and loops in place."""
    plan = mf.plan((64,) * 3, mesh=mesh((2, 2, 2)), spec=P("x", "y", "z"), method="kdft")
    x = jax.ShapeDtypeStruct((64,) * 3, np.complex64, sharding=NamedSharding(mesh((2, 2, 2)), P("x", "y", "z")))
    text = jax.jit(plan).lower(x).compile().as_text() or ""
    made = re.findall(r"^ +(?:ROOT )?%([\w.-]+) = \w+\[([\d,]+)\]\S* ([\w-]+)\(", _outside_of_fusions(text), re.M)
    whole = [(name, kind) for name, shape, kind in made if math.prod(map(int, shape.split(","))) == 32**3]
    views = {"parameter", "get-tuple-element", "bitcast"}
    others = [name for name, kind in whole if kind not in {*views, "collective-permute"}]
    assert sum(kind == "collective-permute" for _, kind in whole) == 3
    assert len(others) == 3 and all("dynamic-update-slice_fusion" in name for name in others), others


def test_nothing_at_uniform_points_is_nothing() -> None:
    """Catches a point made up for an axis of none: fftn leaves it empty."""
    x = np.zeros((4, 0), np.float32)
    assert mf.kdftn(x).shape == mf.fftn(x).shape == (4, 0)
    np.testing.assert_array_equal(mf.kdftn(np.zeros(0), mf.Points.turns([0.0, 0.2])), np.zeros(2))


def _outside_of_fusions(text: str) -> str:
    """A compiled program without the bodies of its fusions, which make no arrays in memory."""
    return "\n".join(
        part
        for part in text.split("\n\n")
        if not part.startswith("%fused") and "_computation" not in part.split("(")[0]
    )
