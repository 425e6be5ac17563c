"""Derivatives between walls, where a series of cosines becomes one of sines and the other way round."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise
from shard_maps import inside

import meshfft as mf
from meshfft.inspect.hlo import collectives

SIZES, BOX = (8, 12, 10), (1.5, 2.0, 3.0)
KINDS = ("periodic", "dirichlet", "neumann")
PHASES = {"periodic": 0.3, "dirichlet": -np.pi / 2, "neumann": 0.0}  # of cosines


def _wave(kind: str, n: int, length: float, order: int, j: int = 2) -> np.ndarray:
    """A derivative of cos(k x + phase) at the samples of one axis: each adds a quarter of a turn."""
    k = np.pi * j * (2 if kind == "periodic" else 1) / length
    x = (np.arange(n) + 0.5 * (kind != "periodic")) * length / n
    return np.asarray(k**order * np.cos(k * x + PHASES[kind] + order * np.pi / 2))


def _waves(kinds: tuple[str, ...], sizes: tuple[int, ...], orders: tuple[int, ...]) -> np.ndarray:
    lines = [_wave(*one) for one in zip(kinds, sizes, BOX, orders, strict=False)]
    return functools.reduce(np.multiply.outer, lines)


CASES = [(kind, order) for kind, order in itertools.product(KINDS[1:], (1, 2, 3))]


@pytest.mark.quick(2, 3, 4, 5)
@pytest.mark.parametrize(("kind", "order"), CASES)
def test_waves_between_walls(x64: None, kind: str, order: int) -> None:
    """Catches a wave of another number, a sign, samples at other points, and a gather."""
    kinds, orders = ("periodic", kind, "neumann"), (0, order, 0)
    x = jax.device_put(_waves(kinds, SIZES, (0, 0, 0)), NamedSharding(mesh((2, 4)), P("x", "y")))
    run = jax.jit(lambda x: mf.derivative(x, 1, order=order, lengths=BOX[1], boundary=kind))
    program, want = run.lower(x).compile(), _waves(kinds, SIZES, orders)
    assert np.abs(program(x) - want).max() <= 1e-13 * np.pi**order and program(x).sharding.is_equivalent_to(
        x.sharding, 3
    )
    assert not {"all-gather", "all-reduce"} & collectives(program).keys()


def test_mixed_boundaries_orders_sizes_and_types(x64: None) -> None:
    """Catches axes in another order than their orders, lengths or boundaries, padding, complex arrays and planes."""
    sizes, kinds, orders = (7, 11, 5), ("dirichlet", "periodic", "neumann"), (1, 1, 3)
    f, want = _waves(kinds, sizes, (0, 0, 0)), _waves(kinds, sizes, orders)
    x, most = mf.shard(f, mesh((2, 4)), P("x", None, "y")), 1e-13 * np.abs(want).max()
    how: Any = {"order": orders, "lengths": BOX, "boundary": kinds}
    assert np.abs(mf.gather(mf.derivative(x, (0, 1, 2), **how)) - want).max() <= most
    turned = {name: values[::-1] for name, values in how.items()}
    assert np.abs(mf.gather(mf.derivative(x, (2, 1, 0), **turned)) - want).max() <= most
    assert np.abs(np.asarray(mf.derivative(1j * f, (0, 1, 2), **how)) - 1j * want).max() <= most
    re, im = mf.derivative((jnp.asarray(f), jnp.asarray(2 * f)), (0, 1, 2), **how)
    assert np.abs(re - want).max() <= most and np.abs(im - 2 * want).max() <= 2 * most


@pytest.mark.quick(0)
@pytest.mark.parametrize(("n", "kind"), [(1, "neumann"), (24, "neumann"), (23, "dirichlet"), (16, "dirichlet")])
def test_a_line_over_eight_devices(x64: None, n: int, kind: str) -> None:
    """Catches waves that do not move to the next device, the last sine, and lines of one point."""
    x = noise((n,), "float64")
    points, waves = np.arange(n) + 0.5, np.arange(n) + (kind == "dirichlet")
    here, there = (np.cos, np.sin) if kind == "neumann" else (np.sin, np.cos)
    angles = np.pi * np.outer(waves, points) / n
    series = np.linalg.solve(here(angles).T, x)  # of one unit of length a sample
    want = (series * waves * np.pi / n * (1 if kind == "dirichlet" else -1)) @ there(angles)
    found = mf.derivative(mf.shard(x, mesh((8,)), P("x")), 0, boundary=kind)
    assert np.abs(mf.gather(found) - want).max() <= 1e-12


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_gradients_and_shard_map(kind: AxisType) -> None:
    """Catches a transpose that keeps the kinds, and a block taken for the whole array."""
    devices, how = mesh((2, 4), kind), {"order": (1, 2), "boundary": ("neumann", "dirichlet")}
    x, ct = noise((8, 12), "float32"), noise((8, 12), "float32", 1)
    run = functools.partial(mf.derivative, axis=(0, 1), **how)
    want = np.asarray(run(x))
    matrix = np.asarray(jax.vmap(lambda e: run(e).ravel())(jnp.eye(96).reshape(96, 8, 12)))
    a = jax.device_put(x, NamedSharding(devices, P("x", "y")))
    y, back = jax.vjp(jax.jit(run), a)
    (slope,) = back(jax.device_put(ct, a.sharding))
    assert error(y, want) <= 1e-5 and error(slope, (matrix @ ct.ravel()).reshape(8, 12)) <= 1e-5
    with jax.set_mesh(devices):
        mapped = jax.jit(inside(lambda a: run(a, spec=P("x", "y")), devices, ("x", "y"), P("x", "y")))(a)
    assert error(mapped, want) <= 1e-5


def test_wavenumbers_of_series(x64: None) -> None:
    """Catches waves between a wall where the function is 0 and one where its slope is, half a wave off."""
    for name in ("dct-4", "dst-4"):
        plan = mf.plan((6, 4), kind=name, axes=(0,), dtype="float64")
        (k,) = mf.wavenumbers(plan, (2.0,))
        assert np.allclose(np.ravel(k), np.pi * (np.arange(6) + 0.5) / 2.0)


def test_refusals() -> None:
    """Catches a boundary that derivatives do not have."""
    with pytest.raises(ValueError, match="use one of 'periodic', 'dirichlet', 'neumann'"):
        mf.derivative(np.ones(4), 0, boundary="wall")
    with pytest.raises(ValueError, match="differentiate f first"):
        mf.derivative(np.ones(4), 0, boundary="open")
    with pytest.raises(ValueError, match="2 boundaries for 1 axes"):
        mf.derivative(np.ones(4), 0, boundary=("neumann", "neumann"))


def test_profiles_that_are_no_series_converge_as_the_page_says(x64: None) -> None:
    """Catches docs/spectral.md being wrong about y (1 - y) between walls: N^-2, N^-1 for its slope, nothing beyond."""
    errors = []
    for n in (24, 48):
        y = (np.arange(n) + 0.5) / n
        u, force = y * (1 - y), np.full(n, -2.0)
        found = mf.poisson(force, (1.0,), boundary="dirichlet")
        slopes = [mf.derivative(u, 0, order=order, lengths=1.0, boundary="dirichlet") for order in (1, 2)]
        pairs = zip((found, *slopes), (u, 1 - 2 * y, force), strict=True)
        errors.append([float(abs(np.asarray(a) - b).max()) for a, b in pairs])
    ratios = np.divide(errors[0], errors[1])
    assert np.allclose(ratios, (4, 2, 1), rtol=0.1), ratios
