"""Nonuniform transforms at points that JAX traces: values, adjoint, collectives, gradients, maps, and lost points."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but, slow_case
from reference import error, mesh, noise
from scattered_sums import coordinates, direct, direct_back
from shard_maps import mapped, only, put

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import stored_of
from meshfft.nufft.planning import plan_to_points
from meshfft.nufft.problem import problem_of
from meshfft.nufft.steps.point_step import located
from meshfft.numerics.phases import of_turns, times
from meshfft.plans.request import read
from meshfft.steps.problem import Options

# name: (shape, points, mesh, spec, tolerance, type)
TABLE = {
    "1-D": ((64,), (48,), (8,), P("x"), 1e-6, "complex64"),
    "2-D, uneven points": ((32, 40), (301,), (2, 4), P("x", "y"), 1e-3, "complex64"),
    "2-D, coils, double": ((3, 24, 20), (16, 8), (2, 4), P(None, "x", "y"), 1e-9, "complex128"),
    "3-D, centre": ((16, 12, 8), (256,), (2, 2, 2), P("x", "y", "z"), 1e-6, "complex64"),
}
QUICK = ("2-D, uneven points", "2-D, coils, double")


@pytest.mark.quick(3)
@pytest.mark.parametrize("capacity", [None, 4.0])
@pytest.mark.parametrize("name", slow_but(QUICK, TABLE))
def test_values_and_their_adjoint(name: str, capacity: float | None, x64: None) -> None:
    """Catches a point interpolated in another's block, an order that is not undone, a gather, and lost hops."""
    shape, count, sizes, spec, tol, dtype = TABLE[name]
    d = len(shape) - (shape[0] == 3)
    devices, x = mesh(sizes), noise(shape, dtype)
    k = coordinates(count, d, dtype="float64" if dtype == "complex128" else "float32")
    axes, origin, plans = tuple(range(len(shape) - d, len(shape))), "centre" if "centre" in name else "corner", []
    options: dict[str, Any] = {"tol": tol, "origin": origin, "capacity": capacity}

    def both(a: Array, k: Array) -> Any:
        points, setting = mf.Scattered.turns(k), read(a, spec).setting
        plans.append(plan_to_points(problem_of(setting, points, None, Options(order="any"), **options)))
        y, pull = jax.vjp(lambda a: mf.nufftn(a, points, spec=spec, **options), a)
        return y, pull(y)[0]

    program = jax.jit(both).lower(put(x, devices, spec), k).compile()
    y, back = program(put(x, devices, spec), k)
    wanted = {name: 2 * many for name, many in plans[0].collectives.items()}
    if capacity is not None:
        wanted["all-to-all"] -= 1  # the compiler sees that both ways send the same points
    assert collectives(program) == wanted
    turns = k.astype(float)
    middle = np.exp(2j * np.pi * (turns * (np.array(shape[-d:]) // 2)).sum(-1)) if origin == "centre" else 1
    assert error(mf.gather(y), direct(x, turns, axes) * middle) <= 1.2 * tol
    exact = direct_back(mf.gather(y) * middle, turns, axes, shape)
    assert error(back, exact) <= 2 * tol
    left, right = np.sum(mf.gather(y).astype(complex) ** 2), np.sum(np.asarray(back) * x.astype(complex))
    limit = 1e-14 if dtype == "complex128" else 1e-6
    assert abs(left - right) <= limit * np.linalg.norm(mf.gather(y)) ** 2
    assert stored_of(y).sharding.is_equivalent_to(NamedSharding(devices, plans[0].out_layout.spec), y.ndim)
    assert back.sharding.is_equivalent_to(NamedSharding(devices, spec), back.ndim)


@pytest.mark.more
@pytest.mark.parametrize("kind", [slow_case(AxisType.Auto), AxisType.Explicit], ids=str)
def test_gradients_batches_and_lost_points(kind: AxisType) -> None:
    """Catches a slope of another dimension or unit, a batch behind the points, and a wrong number at infinity."""
    devices, spec = mesh((2,), kind), P("x")
    x, k = noise((24, 20)), coordinates((48,), 2, dtype="float32")

    def transform(a: Array, k: Array) -> Any:
        return mf.nufftn(a, mf.Scattered.radians(k), tol=1e-5, spec=spec if kind == AxisType.Auto else None)

    def loss(a: Array, k: Array) -> Array:
        return jnp.sum(jnp.abs(transform(a, k)) ** 2 * jnp.arange(1, 49, dtype="float32"))

    finite = np.ones((48, 2), "float32")
    finite[5, 1], finite[40, 0] = 0, np.nan

    def all_of_it(a: Array, k: Array) -> Any:
        lost = transform(a, k / finite)
        images = jax.vmap(transform, (2, None))(jnp.stack([a, 2 * a], 2), k)
        return jax.grad(loss, (0, 1))(a, k), jax.jvp(lambda k: transform(a, k), (k,), (k,))[1], images, lost

    with jax.set_mesh(devices):
        program = jax.jit(all_of_it)
        found = program(put(x, devices, spec), put(k, devices, P("x")))
    (in_image, in_points), along, images, lost = found
    turns, unit = k.astype(float) / (2 * np.pi), 2 * np.pi
    y = direct(x, turns, (0, 1))
    n = np.meshgrid(*map(np.arange, x.shape), indexing="ij")
    weight, slopes = 2 * np.conj(y) * np.arange(1, 49), [-2j * np.pi / unit * direct(x * m, turns, (0, 1)) for m in n]
    assert error(images, np.stack([y, 2 * y])) <= 1.2e-5
    assert error(in_image, direct_back(weight, turns, (0, 1), x.shape)) <= 3e-5
    assert error(in_points, np.stack([(weight * slope).real for slope in slopes], -1)) <= 2e-4
    assert error(along, sum(slope * k[:, j] for j, slope in enumerate(slopes))) <= 2e-4
    assert np.flatnonzero(np.isnan(lost)).tolist() == [5, 40]


@pytest.mark.quick(1)
@pytest.mark.parametrize("method", ["auto", "kdft"])
def test_gradients_in_points_of_any_number(method: str) -> None:
    """Catches points from NumPy, in `jit` alone, that JAX does not transpose where the mesh does not divide them, and a
    second pass over the points that only finds the value."""
    x, k = noise((12, 10)), coordinates((13,), 2, dtype="float32") / 4
    a = put(x, mesh((2, 4), AxisType.Explicit), P("x"))

    def loss(k: Array) -> Array:
        points = mf.Scattered.turns(k)
        y = mf.kdftn(a, points) if method == "kdft" else mf.nufftn(a, points)
        return (abs(y) ** 2).sum()  # of a padded array

    program = jax.jit(jax.value_and_grad(loss))
    value, found = program(k)
    n = np.meshgrid(*map(np.arange, x.shape), indexing="ij")
    y, slopes = direct(x, k.astype(float), (0, 1)), [-2j * np.pi * direct(x * m, k.astype(float), (0, 1)) for m in n]
    assert abs(value - np.sum(abs(y) ** 2)) <= 1e-4 * value
    if method == "auto":  # the value is one more term of the pass that finds the derivatives
        assert str(program.trace(k).jaxpr).count("steps=(RingGrid(") == 1
    assert error(found, np.stack([2 * (np.conj(y) * slope).real for slope in slopes], -1)) <= 1e-4


@pytest.mark.more
def test_points_beyond_a_capacity() -> None:
    """Catches a point without a slot that is 0 or another's value, an image that silently lacks such points, and a
    valid point that is lost beside them."""
    devices, spec, x = mesh((2, 4)), P("x", "y"), noise((32, 32))
    k = coordinates((1024,), 2, dtype="float32")
    k[:384] = k[0]  # all of three devices' points on one owner: it has slots for 48 of each
    points = put(k, devices, P(("x", "y")))
    run = jax.jit(lambda a, k: mf.nufftn(a, mf.Scattered.turns(k), capacity=2, spec=spec))
    y = mf.gather(run(put(x, devices, spec), points))
    lost = np.isnan(y)
    assert lost[:384].sum() == lost.sum() == 3 * (128 - 2 * 16 - 16)
    assert error(y[~lost], direct(x, k.astype(float), (0, 1))[~lost]) <= 1.2e-6
    back = jax.jit(lambda c, k: mf.nufftn_adjoint(c, mf.Scattered.turns(k), (32, 32), capacity=2, spec=P(("x", "y"))))
    assert np.isnan(mf.gather(back(put(np.nan_to_num(y), devices, P(("x", "y"))), points))).all()
    with pytest.raises(ValueError, match="capacity is for points that JAX traces"):
        mf.nufftn(x, mf.Scattered.turns(k), capacity=2)
    wrongs: list[Any] = [0, "2", np.nan, np.inf]
    for wrong in wrongs:
        refused = functools.partial(mf.nufftn, x, capacity=wrong)
        with pytest.raises(ValueError, match=f"capacity is {wrong!r}: give slots"):
            jax.jit(lambda k, call=refused: call(mf.Scattered.turns(k)))(k)


@pytest.mark.more
def test_few_points_have_slots() -> None:
    """Catches NaN from points that met by chance, or all on one owner, where each pair of devices had four slots."""
    devices, spec, x = mesh((2, 4)), P("x", "y"), noise((16, 16))
    k = coordinates((16 * 8,), 2, dtype="float32")
    run = jax.jit(lambda a, k: mf.nufftn(a, mf.Scattered.turns(k), tol=1e-3, capacity=0.5, spec=spec))
    for points in (k, np.full_like(k, 0.1)):
        y = run(put(x, devices, spec), put(points, devices, P(("x", "y"))))
        assert error(mf.gather(y), direct(x, points.astype(float), (0, 1))) <= 1.2e-3


@pytest.mark.more
@pytest.mark.parametrize("known", [False, True])
def test_inside_shard_map_of_the_inner_axis(known: bool) -> None:
    """Catches values cut by other axes before those that are mapped: out_specs puts them together wrongly."""
    devices, spec, x, k = mesh((2, 4)), P("x", "y"), noise((16, 24)), coordinates((48,), 2, dtype="float32")
    a, cut = put(x, devices, spec), only(spec, "y")
    run = mapped(
        lambda a, t: mf.nufftn(a, mf.Scattered.turns(k if known else t), spec=spec), devices, "y", (cut, P()), P("y")
    )
    with jax.set_mesh(devices):
        assert error(jax.jit(run)(a, k), direct(x, k.astype(float), (0, 1))) <= 1.2e-6
    parted = mapped(lambda a, t: mf.nufftn(a, mf.Scattered.turns(t), spec=spec), devices, "y", (cut, P("y")), P("y"))
    with jax.set_mesh(devices), pytest.raises(ValueError, match="points differ along the mesh axes"):
        parted(a, k)  # they would be taken for all the points


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_points_in_narrow_floats(dtype: Any) -> None:
    """Catches digits taken from float16, where 2^16 is infinite, and bfloat16 refused."""
    x, k = noise((6, 8)), jnp.asarray(coordinates((9,), 2), dtype)
    exact = np.asarray(k, float)

    def run(k: Any) -> Any:
        return mf.nufftn(x, mf.Scattered.turns(k))

    for found in (run(k), jax.jit(run)(k)):
        assert error(found, direct(x, exact, (0, 1))) <= 1e-6
    sums = jax.jit(lambda c, k: mf.nufftn_type3(c, k, mf.Scattered.turns(k), space_bandwidth=4.0))
    assert error(sums(x[0, :1].repeat(9), k), x[0, 0] * np.exp(-2j * np.pi * exact @ exact.T).sum(1)) <= 1e-5
    made = mf.Scattered
    scaled: list[Any] = [lambda k: made.field_of_view(k, (6, 8)), lambda k: made.turns(np.ones((9, 2)), k)]
    for make in (made.turns, made.radians, made.z, made.lengths, *scaled):
        leaves = jax.tree.leaves(jax.eval_shape(make, k))
        assert leaves[-1].dtype == np.float32


def test_long_lines_lose_nothing() -> None:
    """Catches cells and offsets separated in float32, whose rounding is 4e-3 cells on a line of this length."""
    x, k = noise((2**15,)), coordinates((64, 1), 1, dtype="float32")[:, 0]
    y = jax.jit(lambda x, k: mf.nufftn(x, mf.Scattered.turns(k)))(x, k)
    assert error(y, direct(x, k.astype(float), (0,))) <= 1e-6


@pytest.mark.quick(1)
@pytest.mark.parametrize("width", [4, 7])
def test_cells_and_offsets(width: int) -> None:
    """Catches a window that starts a cell off at the ends of the ring, or of a cell."""
    tiny = 2.0**-24
    turns = np.array([0, 0.5, -0.5, 1 - tiny, -tiny, 0.25, 1 / 20, 0.125 + tiny, 0.975, 3.3, -1e6 - 1 / 3], np.float32)
    cell, offset = located(
        times(jnp.uint32(20), (jnp.zeros(11, "uint32"), *of_turns(jnp.asarray(turns), 2))),
        20,
        width,
        np.dtype("float32"),
    )
    u = np.mod(turns.astype(float) * 20, 20)
    apart = u - (np.asarray(cell) + (width - 1) / 2 + np.asarray(offset, float))
    assert np.abs(apart - 20 * np.round(apart / 20)).max() <= 4e-8
    assert np.abs(offset).max() <= 0.5 and cell.min() >= 0 and cell.max() < 20


def test_a_plan_needs_points() -> None:
    """Catches points that are traced where they are to be placed on the host, refused without a remedy."""

    def planned(k: Array) -> Any:
        return mf.scattered_plan((8, 8), mf.Scattered.turns(k)).collectives

    with pytest.raises(ValueError, match=r"points are traced.*nufftn"):
        jax.jit(planned)(jnp.ones((3, 2)))


@pytest.mark.more
def test_second_derivatives_in_points() -> None:
    """Catches a first derivative in place of a second one, and mixed ones that are lost."""
    devices, spec = mesh((2,)), P("x")
    x, k, way = noise((24, 20)), coordinates((48,), 2, dtype="float32"), noise((48, 2)).real
    n = np.stack(np.meshgrid(*map(np.arange, x.shape), indexing="ij"))

    def along(k: Array) -> Any:
        return jax.jvp(lambda k: mf.nufftn(stored, mf.Scattered.turns(k), tol=1e-5, spec=spec), (k,), (way,))[1]

    stored = put(x, devices, spec)
    twice = jax.jit(lambda k: jax.jvp(along, (k,), (way,))[1])(put(k, devices, spec))
    once = [[direct(x * n[i] * n[j], k, (0, 1)) * way[:, i] * way[:, j] for i in range(2)] for j in range(2)]
    assert error(twice, -4 * np.pi**2 * np.sum(once, axis=(0, 1))) <= 2e-3
