"""Penalties of ADMM: wavelets against their definition, collectives, and minima against a direct ADMM in float64."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.nufft.penalties import LEVELS, PENALTIES, haar
from meshfft.nufft.solvers import Split, round_, split


def _basis(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of wavelet coefficients, by their definition as means of pixels, and which are details."""
    vectors, details = list[np.ndarray](), list[bool]()
    for at in itertools.product(*map(range, shape)):
        step = next((2**j for j in range(LEVELS) if any(i % 2 ** (j + 1) for i in at)), None)
        lines = [
            _line(n, i, 2**LEVELS if step is None else step, step is not None) for n, i in zip(shape, at, strict=True)
        ]
        vectors.append(functools.reduce(np.multiply.outer, lines).ravel())
        details.append(step is not None)
    return np.array(vectors), np.array(details)


def _line(size: int, i: int, step: int, detail: bool) -> np.ndarray:
    """The difference of two means of up to `step` pixels, or the mean of all of both, of length 1."""
    pixels = np.arange(size)
    if detail and i % (2 * step):
        left, right = (pixels >= i - step) & (pixels < i), (pixels >= i) & (pixels < i + step)
        line = left / left.sum() - right / right.sum()
    else:
        line = ((pixels >= i) & (pixels < i + (2 * step if detail else step))) * 1.0
    return line / np.linalg.norm(line)


@pytest.mark.quick(0, 1, 2)
@pytest.mark.parametrize("shape", [(1,), (2,), (37,), (11, 18), (5, 6, 7)])
def test_wavelets_are_their_definition(shape: tuple[int, ...], x64: None) -> None:
    """Catches a wrong pair, factor or order at any size, and coefficients that are not orthogonal."""
    basis, details = _basis(shape)
    x = noise((2, *shape), dtype="complex128")
    assert np.abs(basis @ basis.T - np.eye(len(basis))).max() < 1e-14
    y = haar(jnp.asarray(x), len(shape))
    assert error(y.reshape(2, -1), x.reshape(2, -1) @ basis.T) < 1e-14
    assert error(haar(y, len(shape), back=True), x) < 1e-14
    assert np.abs(basis[details].sum(1)).max(initial=0) < 1e-13, "details of a constant image"


@pytest.mark.quick(0, 2)
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize(("shape", "spec"), [((26, 36), P("x", "y")), ((3, 8, 15, 12), P(None, "x", None, "y"))])
def test_steps_send_halos_alone(name: str, shape: tuple[int, ...], spec: P) -> None:
    """Catches a gather, messages of more than rows, another layout, and values that depend on the mesh."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    penalty = PENALTIES[name](len(shape) - len(shape) // 4)

    def all_steps(x: jax.Array) -> jax.Array:
        return penalty.back(penalty.nearest(penalty.onto(x), 0.7))

    x = noise(shape)
    stored = jax.device_put(x, NamedSharding(mesh, spec))
    compiled = jax.jit(all_steps).lower(stored).compile()
    assert set(collectives(compiled)) == {"collective-permute"}
    found = compiled(stored)
    assert found.sharding.is_equivalent_to(stored.sharding, x.ndim)
    assert error(found, np.asarray(all_steps(jnp.asarray(x)))) < 1e-6
    if name == "tv":
        assert collectives(jax.jit(penalty.onto).lower(stored).compile()) == {"collective-permute": 2}


def _minimum(name: str, normal: np.ndarray, b: np.ndarray, weight: float, shape: tuple[int, ...]) -> np.ndarray:
    """The x of least x^H N x / 2 - Re b^H x + weight f(K x), by ADMM with exact solves, in float64."""
    eye, basis_details = np.eye(len(b)).reshape(-1, *shape), _basis(shape)
    slopes = [(np.roll(eye, -1, d + 1) - eye).reshape(len(b), -1).T for d in range(len(shape))]
    rows = np.concatenate(slopes) if name == "tv" else basis_details[0]
    rho = 30 * weight
    back = np.linalg.inv(normal + rho * rows.T @ rows)
    first, back, rows = back @ b, back @ (rho * rows.T), rows.astype(complex)
    z = u = np.zeros(len(rows), complex)
    for _ in range(600):
        x = first + back @ (z - u)
        y = rows @ x + u
        size = np.abs(y)
        if name == "tv":
            size = np.tile(np.linalg.norm(y.reshape(len(shape), -1), axis=0), len(shape))
        shorter = y * np.maximum(1 - weight / rho / np.maximum(size, 1e-300), 0)
        z = shorter if name == "tv" else np.where(basis_details[1], shorter, y)
        u = y - z
    return x


class Small(NamedTuple):
    """Samples of few pixels along few spokes, and the matrix that takes them."""

    data: np.ndarray
    k: mf.Scattered
    maps: np.ndarray
    matrix: np.ndarray


def _small(shape: tuple[int, ...], coils: int, spokes: int) -> Small:
    rng, d = np.random.default_rng(3), len(shape)
    ways = rng.standard_normal((spokes, 1, d))
    k = ways / np.linalg.norm(ways, axis=-1, keepdims=True) * (np.arange(12)[:, None] / 12 - 0.5)
    maps = rng.standard_normal((coils, *shape)) + 1j * rng.standard_normal((coils, *shape)) + 2
    pixels = np.stack(np.meshgrid(*[np.arange(n) - n // 2 for n in shape], indexing="ij"), -1).reshape(-1, d)
    phase = np.exp(-2j * np.pi * k.reshape(-1, d) @ pixels.T)
    matrix = np.concatenate([phase * one.ravel() for one in maps])
    block = (np.indices(shape) > np.reshape(shape, (-1, *[1] * d)) // 3).all(0) + 0.3j
    return Small((matrix @ block.ravel()).reshape(coils, *k.shape[:-1]), mf.Scattered.turns(k), maps, matrix)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("case", [((11, 7), 1, 9), ((3, 4, 5), 2, 25)])
def test_admm_finds_the_minimum(case: tuple[tuple[int, ...], int, int], name: str) -> None:
    """Catches a wrong shrinkage, multiplier or dimension: against a direct ADMM in float64; odd sizes, 3-D."""
    shape, small, penalty = case[0], _small(*case), PENALTIES[name](len(case[0]))
    matrix = small.matrix / np.linalg.norm(small.matrix, 2)
    normal, b = matrix.conj().T @ matrix, matrix.conj().T @ (small.data.ravel() / np.abs(small.data).max())
    truth = _minimum(name, normal, b, 1e-2 * np.abs(b).max(), shape).reshape(shape)
    held, right = jnp.asarray(normal, jnp.complex64), jnp.asarray(b.reshape(shape), jnp.complex64)

    @jax.jit
    def found(right: jax.Array) -> jax.Array:
        def one(_: int, now: Split) -> Split:
            weight = 1e-2 * float(np.abs(b).max())
            return round_(lambda x: (held @ x.ravel()).reshape(shape), right, now, penalty, weight, 0.1)

        return jax.lax.fori_loop(0, 400, one, split(right, penalty)).image

    assert error(found(right), truth) < 1e-3
    assert error(np.linalg.solve(normal, b).reshape(shape), truth) > 1e-2, "the penalty does something"


@pytest.mark.slow
def test_reconstruct_finds_the_minimum_in_its_units() -> None:
    """Catches a weight, a map or an origin that `reconstruct` takes otherwise than it says."""
    shape, small = (12, 9), _small((12, 9), 3, 9)
    mesh = jax.make_mesh((2,), ("x",), (AxisType.Auto,), devices=jax.devices()[:2])
    ask: dict[str, Any] = {"maps": small.maps, "tol": 1e-6, "mesh": mesh, "spec": P(None, "x")}
    found = functools.partial(mf.reconstruct, small.data.astype("complex64"), small.k, shape, **ask)
    start = np.abs(np.asarray(found(iterations=0).image)).max()
    normal, b = small.matrix.conj().T @ small.matrix, small.matrix.conj().T @ small.data.ravel()
    x = b
    for _ in range(10):  # the power method, as the library has it
        x = normal @ (x / np.linalg.norm(x))
    truth = _minimum("wavelet", normal, b, 1e-2 * float(np.linalg.norm(x)) * start, shape).reshape(shape)
    assert error(found(iterations=50, wavelet=1e-2).image, truth) < 3e-3


def test_divergence_is_the_transpose_of_the_gradient() -> None:
    """Catches a sign or a direction, on which ADMM would diverge slowly."""
    x, y, tv = noise((4, 5, 6)), noise((3, 4, 5, 6), seed=1), PENALTIES["tv"](3)
    assert abs(np.vdot(y, tv.onto(jnp.asarray(x))) - np.vdot(tv.back(jnp.asarray(y)), x)) < 1e-4
