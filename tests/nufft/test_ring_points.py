"""The paper's equation at scattered points, on one ring: values, adjoint, sharding, collectives, gradients, maps."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise
from scattered_sums import coordinates, direct, direct_back
from shard_maps import mapped, only, put

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import stored_of

# name: (shape, axes, points, mesh, spec of the image, spec of the values)
TABLE = {
    "1-D": ((24,), (0,), (16,), (8,), P("x"), P("x")),
    "1-D, prime": ((17,), (0,), (13,), (8,), P("x"), P("x")),
    "2-D, points as a grid": ((8, 12), (0, 1), (6, 12), (2, 4), P("x", "y"), P("x", "y")),
    "2-D, coordinates turned, batch between": (
        (8, 3, 12),
        (2, 0),
        (16,),
        (2, 4),
        P("x", None, "y"),
        P(None, ("x", "y")),
    ),
    "2-D, batch cut, idle axis": ((4, 6, 10), (1, 2), (9,), (2, 2, 2), P("x", None, "z"), P("x", "z")),
    "3-D, uneven": ((7, 5, 6), (0, 1, 2), (37,), (2, 2, 2), P("x", "y", "z"), P(("x", "y", "z"))),
    "3-D, fewer points than devices": (
        (4, 1, 9),
        (0, 1, 2),
        (3,),
        (2, 2, 2),
        P(("y", "x"), None, "z"),
        P(("y", "x", "z")),
    ),
    "not cut": ((6, 5), (0, 1), (7,), (2, 4), P(), P()),
}
DOUBLE = ("1-D, prime", "2-D, coordinates turned, batch between", "3-D, uneven")


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", TABLE)
def test_values_and_their_adjoint(name: str, x64: None) -> None:
    """Catches a block read at another's place, coordinates mixed up, padding that is summed, a gather, lost hops."""
    shape, axes, count, sizes, spec, after = TABLE[name]
    devices, k, double = mesh(sizes), coordinates(count, len(axes)), name in DOUBLE
    x = noise(shape, "complex128" if double else "complex64", 1)
    truth = direct(x, k, axes)
    c = noise(truth.shape, str(x.dtype), 2)
    a, z, points = mf.shard(x, devices, spec), stored_of(mf.shard(c, devices, after)), mf.Scattered.turns(k)

    def both(a: Any, z: Array) -> Any:
        y, pull = jax.vjp(lambda a: mf.kdftn(a, points, axes=axes, spec=spec), a)
        return y, pull(jax.tree.map(lambda _: z, y))[0]

    program = jax.jit(both).lower(a, z).compile()
    y, back = program(a, z)
    many = math.prod(
        devices.shape[axis] for entry in after[truth.ndim - len(count) :] for axis in np.ravel(entry or [])
    )
    assert collectives(program) == ({"collective-permute": 2 * (many - 1)} if many > 1 else {})
    limit = 2e-15 if double else 4e-7
    for found, exact, cut in ((y, truth, after), (back, direct_back(c, k, axes, shape), spec)):
        assert stored_of(found).sharding.is_equivalent_to(NamedSharding(devices, cut), exact.ndim)
        assert error(mf.gather(found), exact) <= limit
        assert np.count_nonzero(stored_of(found)) == np.count_nonzero(mf.gather(found)), "padding is not zero"


def _slopes(transform: Any, x: Array, k: Array) -> tuple[Array, ...]:
    """The gradients of a loss in the image and in the coordinates, and its slope along the latter."""

    def loss(x: Array, k: Array) -> Array:
        y = transform(x, k)
        return jnp.sum(jnp.abs(y) ** 2 * jnp.arange(1, y.size + 1, dtype=y.real.dtype).reshape(y.shape))

    return (*jax.grad(loss, (0, 1))(x, k), jax.jvp(lambda k: loss(x, k), (k,), (k,))[1])


def _true_slopes(x: np.ndarray, k: np.ndarray, unit: float) -> tuple[np.ndarray, ...]:
    """Slopes in two dimensions by direct sums, for coordinates with period `unit`."""
    y, n = direct(x, k, (0, 1)), np.meshgrid(*map(np.arange, x.shape), indexing="ij")
    weight = 2 * np.conj(y) * np.arange(1, y.size + 1).reshape(y.shape)
    along = np.stack([(weight * -2j * np.pi / unit * direct(x * m, k, (0, 1))).real for m in n], -1)
    return direct_back(weight, k, (0, 1), x.shape), along, np.sum(along * k * unit)


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_traced_coordinates(kind: AxisType) -> None:
    """Catches gradients of another dimension, sign or unit, points that leave their device, and a lost precision."""
    devices, auto = mesh((2, 4), kind), kind == AxisType.Auto
    x, k = noise((8, 12)), coordinates((6, 4), 2, dtype="float32")
    make = mf.Scattered.turns if auto else mf.Scattered.radians

    def transform(a: Array, k: Array) -> Any:
        return mf.kdftn(a, make(k), spec=P("x", "y") if auto else None)

    with jax.set_mesh(devices):
        a, b = put(x, devices, P("x", "y")), put(k, devices, P("x", "y"))
        program = jax.jit(lambda a, b: (transform(a, b), _slopes(transform, a, b))).lower(a, b).compile()
        y, found = program(a, b)
    unit = 1.0 if auto else 2 * np.pi
    turns = k.astype(float) / unit
    assert error(y, direct(x, turns, (0, 1))) <= 4e-7
    for one, exact in zip(found, _true_slopes(x, turns, unit), strict=True):
        assert error(one, exact) <= 5e-6
    assert set(collectives(program)) <= {"collective-permute", "all-reduce"}  # of one number, the loss
    assert y.sharding.is_equivalent_to(NamedSharding(devices, P("x", "y")), 2)
    assert found[1].sharding.is_equivalent_to(NamedSharding(devices, P("x", "y")), 3)


@pytest.mark.more
def test_batches_of_images_and_of_points() -> None:
    """Catches a batch that is placed behind the points, or sent separately; and points of another batch."""
    devices, spec = mesh((2, 4)), P("x", "y")
    x, k = noise((8, 4, 12)), coordinates((2, 16), 2, dtype="float32")
    a = put(np.moveaxis(x, 1, 2), devices, spec)

    def transform(a: Array, k: Array) -> Any:
        return mf.kdftn(a, mf.Scattered.turns(k), spec=spec, ring="two-way")

    with jax.set_mesh(devices):
        images = jax.jit(jax.vmap(transform, (2, None))).lower(a, k[0]).compile()
        assert collectives(images) == {"collective-permute": 7}
        truth = direct(x, k[0].astype(float), (0, 2))
        assert error(images(a, k[0]), truth) <= 4e-7
        y = jax.jit(jax.vmap(transform, (None, 0)))(a[..., 0], k)
        assert error(y, np.stack([direct(x[:, 0], one.astype(float), (0, 1)) for one in k])) <= 4e-7
        whole = mf.kdftn((a.real, a.imag), mf.Scattered.turns(k[0]), axes=(0, 1), spec=spec, out_spec=P("x", "y"))
    assert error(np.asarray(whole[0]) + 1j * np.asarray(whole[1]), truth) <= 4e-7
    assert whole[0].sharding.is_equivalent_to(NamedSharding(devices, P("x", "y")), 2)


@pytest.mark.more
@pytest.mark.parametrize("transform", [mf.nufftn, mf.kdftn])
def test_a_batch_behind_a_line_comes_first(transform: Any) -> None:
    """Catches a batch that is taken to stay behind because the values have as many dimensions as the image."""
    x, k = noise((16, 5)), coordinates((30,), 1, dtype="float32")
    for many in (5, 30):  # also the number of points
        a = np.resize(x, (16, many))
        y = jax.jit(lambda a, k: jax.vmap(lambda a: transform(a, mf.Scattered.turns(k)), 1)(a))(a, k)
        assert error(y, direct(a, k.astype(float), (0,))) <= 1e-5
        assert error(jax.vmap(lambda a: transform(a, mf.Scattered.turns(k)), 1)(a), np.asarray(y)) <= 1e-5


@pytest.mark.more
@pytest.mark.parametrize(("kind", "manual"), [(AxisType.Auto, "xy"), (AxisType.Explicit, "y")])
def test_inside_shard_map(kind: AxisType, manual: str) -> None:
    """Catches a device that takes the points of another, and gradients counted once for each device."""
    devices, spec, x, k = mesh((2, 4), kind), P("x", "y"), noise((8, 12)), coordinates((6, 4), 2, dtype="float32")
    after = P(None, "y") if manual == "y" else P("x", "y")  # manual axes cut first
    cut = only(spec, manual)
    run = mapped(
        lambda a, k: mf.kdftn(a, mf.Scattered.turns(k), spec=spec), devices, manual, (cut, P()), only(after, manual)
    )
    with jax.set_mesh(devices):
        y, found = jax.jit(lambda *v: (run(*v), _slopes(run, *v)))(put(x, devices, spec), put(k, devices, P()))
    turns = k.astype(float)
    assert error(y, direct(x, turns, (0, 1))) <= 4e-7
    for one, exact in zip(found, _true_slopes(x, turns, 1.0), strict=True):
        assert error(one, exact) <= 5e-6


def test_a_point_that_is_not_finite_is_nan_and_no_other() -> None:
    """Catches a wrong number where a coordinate is lost: infinity has no phase."""
    x, k = noise((4, 8)), coordinates((16,), 2, dtype="float32")
    k[3, 0], k[9, 1] = np.nan, -np.inf
    y = np.asarray(jax.jit(lambda x, k: mf.kdftn(x, mf.Scattered.turns(k)))(x, k))
    assert np.flatnonzero(np.isnan(y)).tolist() == [3, 9]
    keep = np.isfinite(k).all(1)
    assert error(y[keep], direct(x, k[keep].astype(float), (0, 1))) <= 4e-7


@pytest.mark.parametrize(
    ("points", "how", "message"),
    [
        ((16, 3), {}, "a coordinate for each of the 2 transformed"),
        ((16, 2), {"axes": (0,)}, "or name 2 axes"),
        ((16, 2), {"axes": (1, 1)}, "given twice"),
        ((16, 2), {"norm": "no"}, "norm 'no' is unknown"),
        ((16, 2), {"ring": "three-way"}, "ring 'three-way' is unknown"),
        ((16, 2), {"out_spec": P("x")}, "name the same axes"),
    ],
)
def test_refusals(points: tuple[int, ...], how: dict[str, Any], message: str) -> None:
    """Catches what does not fit and is computed all the same."""
    a = put(noise((4, 8)), mesh((2, 4)), P("x", "y"))
    with pytest.raises(ValueError, match=message):
        mf.kdftn(a, mf.Scattered.turns(coordinates(points[:-1], points[-1])), **how)
