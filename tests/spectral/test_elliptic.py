"""Poisson's and Helmholtz' equations between walls and in open space, and plans with a kind for each axis."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise
from scipy.special import erf

import meshfft as mf
from meshfft.inspect.hlo import collectives

SIZES, BOX = (8, 12, 10), (1.5, 2.0, 3.0)
WAVES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "periodic": (lambda t: np.cos(4 * np.pi * t + 1), 4 * np.pi),
    "dirichlet": (lambda t: np.sin(3 * np.pi * t), 3 * np.pi),
    "neumann": (lambda t: np.cos(2 * np.pi * t), 2 * np.pi),
}
BOUNDARIES = [
    ("dirichlet",) * 3,
    ("neumann",) * 3,
    ("periodic", "dirichlet", "neumann"),
    ("neumann", "periodic", "periodic"),
]


def _wave(boundary: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """A wave with these boundaries, on the grid, and its squared wavenumber."""
    lines, square = [], 0.0
    for kind, n, length in zip(boundary, sizes, BOX, strict=True):
        wave, k = WAVES[kind]
        lines.append(wave((np.arange(n) + 0.5 * (kind != "periodic")) / n))
        square += (k / length) ** 2
    return functools.reduce(np.multiply.outer, lines), square


@pytest.mark.quick(1)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_waves_between_walls(x64: None, boundary: tuple[str, ...]) -> None:
    """Catches a wall in another place, a wavenumber of another axis, a mean that is dropped, and a gather."""
    u, square = _wave(boundary, SIZES)
    solve = jax.jit(lambda f: mf.poisson(f, BOX, boundary=boundary))
    f = jax.device_put(-square * u, NamedSharding(mesh((2, 4)), P("x", "y")))
    program = solve.lower(f).compile()
    assert np.abs(program(f) - u).max() <= 1e-12 and program(f).sharding.is_equivalent_to(f.sharding, 3)
    assert not {"all-gather", "all-reduce"} & collectives(program).keys()
    found = mf.helmholtz((7.0 - square) * f / -square, 7.0, BOX, boundary=boundary)
    assert np.abs(np.asarray(found) - u).max() <= 1e-12


def test_one_length_is_for_all_axes(x64: None) -> None:
    """Catches a number that is taken for the first axis, or refused where `derivative` takes it."""
    f = noise(SIZES, "float64")
    for call in (mf.poisson, functools.partial(mf.poisson, boundary="open"), mf.power_spectrum):
        one, three = (jax.tree.leaves(call(f, lengths=length)) for length in (2.5, (2.5,) * 3))
        assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))
    plan = mf.plan(SIZES, kind="rfft")
    assert all(
        np.array_equal(*pair) for pair in zip(mf.wavenumbers(plan, 3), mf.wavenumbers(plan, (3,) * 3), strict=True)
    )


def test_any_sizes_axes_and_types(x64: None) -> None:
    """Catches padding that enters a wall, axes in another order than their lengths, complex arrays and planes."""
    sizes, boundary = (7, 11, 5), ("dirichlet", "periodic", "neumann")
    u, square = _wave(boundary, sizes)
    f = mf.shard(-square * u, mesh((2, 4)), P("x", None, "y"))
    assert np.abs(mf.gather(mf.poisson(f, BOX, boundary=boundary)) - u).max() <= 1e-12
    turned = mf.poisson(f, BOX[::-1], axes=(2, 1, 0), boundary=boundary[::-1])
    assert np.abs(mf.gather(turned) - u).max() <= 1e-12
    assert np.abs(mf.poisson(-square * 1j * u, BOX, boundary=boundary) - 1j * u).max() <= 1e-12
    re, im = mf.poisson((jnp.asarray(-square * u), jnp.asarray(2 * square * u)), BOX, boundary=boundary)
    assert np.abs(re - u).max() <= 1e-12 and np.abs(im + 2 * u).max() <= 1e-12


def test_the_solution_is_its_own_gradient() -> None:
    """Catches a transpose of mixed kinds: the operator is symmetric on these grids."""
    x, ct = noise(SIZES, "float32"), noise(SIZES, "float32", 1)
    a = jax.device_put(x, NamedSharding(mesh((2, 4)), P("x", "y")))
    solve = functools.partial(mf.poisson, lengths=BOX, boundary=("neumann", "dirichlet", "periodic"))
    _, back = jax.vjp(jax.jit(solve), a)
    assert error(back(jnp.asarray(ct))[0], np.asarray(solve(ct))) <= 1e-5


@pytest.mark.quick(2)
@pytest.mark.parametrize(("n", "most"), [(8, 1e-1), (16, 1e-5), (22, 1e-8)])
def test_a_charge_in_open_space(x64: None, n: int, most: float) -> None:
    """Catches images of a periodic box, and a Green's function of finite order: the error falls faster than any."""
    edge, width = 10.0, 0.7
    t = (np.arange(n) + 0.5) * edge / n - edge / 2
    r = np.sqrt(functools.reduce(np.add.outer, [t**2] * 3))
    charge = np.exp(-((r / width) ** 2) / 2) / (2 * np.pi * width**2) ** 1.5
    u = -erf(r / (np.sqrt(2) * width)) / (4 * np.pi * r)
    f = mf.shard(charge, mesh((2, 4)), P("x", "y"))
    assert np.abs(mf.gather(mf.poisson(f, (edge,) * 3, boundary="open")) - u).max() <= most * np.abs(u).max()


def test_a_kind_for_each_axis(x64: None) -> None:
    """Catches matrices on other axes, an inverse of the wrong kinds, and wavenumbers of walls."""
    x = noise(SIZES, "float64")
    kinds = ("dct-2", "dst-2", "rfft")
    plan = mf.plan(SIZES, mesh=mesh((2, 4)), spec=P("x", "y"), kind=kinds, order="any", dtype="float64")
    y = plan(mf.shard(x, mesh((2, 4)), P("x", "y")))
    want = scipy.fft.rfft(scipy.fft.dst(scipy.fft.dct(x, 2, axis=0), 2, axis=1), axis=2)
    assert error(mf.gather(y), want) <= 1e-14 and error(mf.gather(plan.inverse(y)), x) <= 1e-14
    kx, ky, kz = (mf.gather(k).ravel() for k in mf.wavenumbers(plan, BOX, odd=True))
    assert np.allclose(kx, np.pi * np.arange(8) / 1.5) and np.allclose(ky, np.pi * np.arange(1, 13) / 2)
    assert np.allclose(kz, 2 * np.pi * np.array([0, 1, 2, 3, 4, 0]) / 3)
    assert str(plan).startswith("cosine transform II, sine transform II, real transform of 8 x 12 x 10")


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "unknown": (lambda f: mf.poisson(f, boundary="wall"), ValueError, "use one of 'periodic', 'dirichlet'"),
    "two": (lambda f: mf.poisson(f, boundary=("open", "open")), ValueError, "2 boundaries for 3 axes"),
    "open beside": (lambda f: mf.poisson(f, boundary=("open", "open", "periodic")), ValueError, "all of them open"),
    "open plane": (lambda f: mf.poisson(f, axes=(0, 1), boundary="open"), ValueError, "has 2 axes"),
    "open waves": (lambda f: mf.helmholtz(f, 1.0, boundary="open"), ValueError, "k2 = 1.0"),
    "open lengths": (lambda f: mf.poisson(f, (1, 1), boundary="open"), ValueError, "give three positive numbers"),
    "lengths": (lambda f: mf.poisson(f, (1, 1), boundary="neumann"), ValueError, "2 lengths for 3 axes"),
    "k2": (lambda f: mf.helmholtz(f, float("nan")), ValueError, "k2 is nan"),
    "k2 of arrays": (lambda f: mf.helmholtz(f, f), TypeError, "give a real number"),
    "real first": (lambda f: mf.plan((4, 4), kind=("rfft", "dct-2")), ValueError, "name it last"),
    "kinds": (lambda f: mf.plan((4, 4), kind=("dct-2",)), ValueError, "1 names for 2 axes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    """Catches a boundary or a length that does not fit, found late or without its remedy."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call(jnp.asarray(noise((4, 4, 4), "float32")))
