"""Bounds that plans print, against equal numbers: they round the same way each time, and so in every dimension."""

import functools
from typing import Any

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.nufft.planning import plan_to_points
from meshfft.nufft.problem import problem_of
from meshfft.numerics.phases import host_roots
from meshfft.plans.request import read
from meshfft.steps.problem import Options

CONSTANT = 1.96949  # 128 of it, added up one by one in float32, are off by 1.9e-6


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("precision", "n", "lines", "devices"),
    [
        ("float32", 16384, (), 8),
        ("float32", 4096, (128,), 1),
        ("float32", 2048, (3, 2), 8),
        ("float64", 2048, (), 8),
        ("bf16x6", 1024, (), 1),
    ],
)
def test_constant_lines_stay_within_what_is_printed(
    x64: None, precision: str, n: int, lines: tuple[int, ...], devices: int
) -> None:
    """Catches runs added up in one float, by one device or round a ring, and long sums in a product: equal numbers
    round the same way each time, which lost 6e-7 of the first line and 2e-6 of the second for 3.9e-7 printed.
    """
    k, dtype = np.array([0, 1, n // 2, n // 3]), "complex128" if precision == "float64" else "complex64"
    x = np.full((n, *lines), CONSTANT if lines else 0.1 + 0.7j, dtype)
    way = mesh((devices,)), P("x")
    plan = mf.plan(
        x.shape, mesh=way[0], spec=way[1], axes=[0], points=[mf.Points.turns(k / n)], precision=precision, dtype=x.dtype
    )
    roots, one = host_roots(np.outer(k, np.arange(n)) % n, n, -1), complex(x.ravel()[0])
    truth = np.multiply.outer(roots.sum(1) * one, np.ones(lines))  # added in pairs, which longdouble needs too
    assert error(mf.gather(plan(mf.shard(x, *way))), truth) <= plan.error


def test_sums_that_travel_say_what_adding_them_up_loses() -> None:
    """Catches the bound of a transpose that leaves out its ring, which adds up a float for each device."""
    x, points = np.full(8, CONSTANT, np.complex64), mf.Points.turns(np.zeros(8))
    plan = mf.plan((8,), mesh=mesh((8,)), spec=P("x"), points=[points])
    stated = plan.walk.adjoint().error(8)
    assert stated >= plan.error + 2.5 * 2.0**-24
    assert error(mf.gather(plan.adjoint(mf.shard(x, mesh((8,)), P("x")))), np.full(8, 8 * complex(x[0]))) <= stated


@pytest.mark.quick(0, 2)
@pytest.mark.parametrize(
    ("shape", "sizes", "value", "how"),
    [
        ((128, 128), (2, 2), 1.8824329, {"method": "kdft"}),  # 8.9e-7, where 5.5e-7 was printed
        ((16,), (8,), 1.6021142, {"method": "cooley-tukey"}),  # sums of eight, 1.50e-7 for 1.49e-7
        ((35, 35), (1, 1), 1.9463613, {}),  # odd radices, 2.6e-7 for 2.1e-7
        ((257, 257), (1, 1), 1.0038, {"method": "kdft", "precision": "bf16"}),  # two roundings, 7.8e-3 for 4.5e-3
    ],
    ids=["dense", "ring", "odd", "terms"],
)
def test_errors_of_equal_numbers_add_up(
    shape: tuple[int, ...], sizes: tuple[int, ...], value: float, how: dict[str, Any]
) -> None:
    """Catches errors of dimensions and of devices taken for independent: of a constant array they add up."""
    x, (here, spec) = np.full(shape, value, np.complex64), (mesh(sizes), P(*"xyz"[: len(shape)]))
    plan = mf.plan(shape, mesh=here, spec=spec, **how)
    truth = np.zeros(shape, complex)
    truth.flat[0] = complex(x.flat[0]) * x.size
    assert error(mf.gather(plan(mf.shard(x, here, spec))), truth) <= plan.error


@pytest.mark.parametrize("precision", ["float32", "bf16x3", "bf16"])
def test_short_lines(precision: str) -> None:
    """Catches bounds that hold in the mean of many lines alone: one of five lost 5.3e-3 in bf16, for 3.2e-3 printed."""
    x = noise((20000, 5)) * 10.0 ** np.random.default_rng(5).uniform(-3, 3, (20000, 5)).astype(np.float32)
    plan = mf.plan(x.shape, axes=[1], method="kdft", precision=precision, multiplications=4)
    truth = np.fft.fft(x.astype(complex))
    off = np.linalg.norm(np.asarray(plan(x)) - truth, axis=1) / np.linalg.norm(truth, axis=1)
    assert off.max() <= plan.error


@pytest.mark.quick(0)
@pytest.mark.parametrize("back", [False, True])
def test_sums_at_scattered_points(back: bool) -> None:
    """Catches sums along the sides of an image, or over points, that lose more than is printed."""
    points, value = mf.Scattered.turns(np.zeros((65536 if back else 16, 2))), np.complex64(1.8824329)
    x = np.full(65536 if back else (64, 64), value)
    y = mf.nufftn_adjoint(x, points, (4, 4), method="kdft") if back else mf.nufftn(x, points, method="kdft")
    setting = read(np.zeros((4, 4) if back else (64, 64), np.complex64)).setting
    plan = plan_to_points(problem_of(setting, points, None, Options("kdft")))
    stated = plan.walk.adjoint().error(8) if back else plan.error
    assert error(np.asarray(y), np.full(y.shape, complex(value) * x.size)) <= stated


def test_a_small_error_takes_ffts_where_dense_products_lose_more() -> None:
    """Catches an error that is refused, or made float64, because the cheapest plan has dense products."""
    how: dict[str, Any] = {"mesh": mesh((2, 4)), "spec": P("x", "y"), "kind": "dct-2"}
    plan = functools.partial(mf.plan, (32, 32, 64), **how)
    assert plan().error > 1e-6 >= plan(precision=1e-6).error and plan(precision=1e-6).dtype == np.complex64
    with pytest.raises(ValueError, match="precision 1e-06 is out of reach"):
        plan(precision=1e-6, method="kdft")
