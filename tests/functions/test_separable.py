"""Separable operators: any matrix along each dimension, with the DFT, its adjoint and its inverse among them."""

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
from reference import error, mesh, noise, powers, separable

import meshfft as mf
from meshfft.inspect.hlo import collectives

KINDS = st.sampled_from(["none", "numpy", "jax", "blocks", "points"])
MESHES = [((8,), P("x")), ((2, 4), P("x", "y")), ((4, 2), P("y", "x")), ((2, 2, 2), P("x", "y", "z")), ((3,), P("x"))]


def blocks(matrix: np.ndarray) -> mf.BlockMatrix:
    """The matrix as a function of indices; JAX clips indices beyond its end."""
    return mf.BlockMatrix(matrix.shape, lambda rows, columns: jnp.asarray(matrix)[rows[:, None], columns[None, :]])


def of_kind(kind: str, m: int, n: int, dtype: str, seed: int) -> tuple[Any, np.ndarray | None]:
    """A matrix as a caller gives it, and as an array."""
    matrix = noise((m, n), dtype, seed)
    if kind == "points":
        turns = np.random.default_rng(seed).random(m)
        return mf.Points.turns(turns), powers(turns, None, n)
    given = {"none": None, "numpy": matrix, "jax": jnp.asarray(matrix), "blocks": blocks(matrix)}[kind]
    return given, None if kind == "none" else matrix.astype(complex)


@settings(max_examples=settings().max_examples // 2)
@given(st.sampled_from(MESHES), st.booleans(), st.booleans(), st.integers(0, 2**31), st.data())
def test_any_matrices_along_any_axes(where: Any, real: bool, two: bool, seed: int, data: st.DataObject) -> None:
    """Catches a matrix transposed, conjugated, or applied along another's axis; parts that are cut at wrong rows."""
    sizes, spec = where
    devices, entries = mesh(sizes), list(spec)
    ndim = max(len(entries), 1 + two)
    parts = [devices.shape[entries[d]] if d < len(entries) else 1 for d in range(ndim)]
    shape = [p * data.draw(st.integers(1, 4)) for p in parts]
    rows = [p * data.draw(st.integers(1, 3)) for p in parts]
    kinds = [data.draw(KINDS) for _ in shape]
    dtype = "float32" if real else "complex64"
    pairs = [of_kind(k, m, n, dtype, seed + j) for j, (k, m, n) in enumerate(zip(kinds, rows, shape, strict=True))]
    x = noise(shape, dtype, seed)
    y = mf.apply_separable([given for given, _ in pairs], mf.shard(x, devices, spec))
    truth = separable(x.astype(complex), [matrix for _, matrix in pairs])
    assert y.dtype == ("float32" if real and "points" not in kinds else "complex64")
    assert y.sharding.is_equivalent_to(NamedSharding(devices, spec), ndim)
    assert error(y, truth) <= 4e-7 * len(shape)


@pytest.mark.more
@pytest.mark.parametrize("complex_x", [False, True])
@pytest.mark.parametrize("complex_m", [False, True])
def test_types(complex_x: bool, complex_m: bool) -> None:
    """Catches a real product computed or returned as a complex one, and an imaginary part dropped."""
    x = noise((8, 3), "complex64" if complex_x else "float32")
    matrix = noise((16, 8), "complex64" if complex_m else "float32", 1)
    a, wanted = mf.shard(x, mesh((8,)), P("x")), np.result_type(x, matrix)
    for form in (matrix, jnp.asarray(matrix), blocks(matrix)):
        y = mf.apply_separable([form, None], a)
        assert y.dtype == wanted and error(y, matrix.astype(complex) @ x) <= 4e-7
    traced = jax.jit(lambda m, a: mf.apply_separable([m, None], a, spec=P("x")))(matrix, a)
    assert traced.dtype == wanted and error(traced, matrix.astype(complex) @ x) <= 4e-7
    whole = mf.apply_separable([np.arange(64).reshape(8, 8), None], jnp.ones((8, 3), "int32"))
    assert whole.dtype == np.float32 and error(whole, np.arange(64).reshape(8, 8) @ np.ones((8, 3))) <= 1e-7


@pytest.mark.more
def test_double_precision(x64: None) -> None:
    """Catches a matrix or a block rounded to float32."""
    x, matrix = noise((8, 5), "float64"), noise((16, 8), "complex128", 1)
    a = mf.shard(x, mesh((8,)), P("x"))
    for form in (matrix, blocks(matrix)):
        y = mf.apply_separable([form, noise((5, 5), "float64", 2)], a)
        assert y.dtype == np.complex128 and error(y, matrix @ x @ noise((5, 5), "float64", 2).T) <= 2e-15


@pytest.mark.more
def test_the_kdft_its_adjoint_and_its_inverse_are_instances() -> None:
    """Catches a second definition of the transform: KDFT, adjoint and inverse are V, V^H and V^-1 along each axis."""
    devices, spec, shape, counts = mesh((2, 4)), P("x", "y"), (6, 8), (6, 8)
    x = noise(shape)
    a = mf.shard(x, devices, spec)
    points = [mf.Points.turns((np.arange(m) + 0.2 * np.random.default_rng(m).random(m)) / m) for m in counts]
    v = [powers(p.angle, None, n) for p, n in zip(points, shape, strict=True)]
    y = mf.kdftn(a, points)
    assert error(mf.apply_separable(v, a), np.asarray(y)) <= 1e-6
    np.testing.assert_array_equal(mf.apply_separable(points, a), y)
    plan = mf.plan(shape, mesh=devices, spec=spec, points=points)
    assert error(mf.apply_separable([m.conj().T for m in v], y), np.asarray(plan.adjoint(y))) <= 1e-6
    back = mf.apply_separable([np.linalg.inv(m) for m in v], y)
    assert error(back, x) <= 2e-6 and error(back, np.asarray(plan.solve(y).value)) <= 2e-6


def test_a_cosine_transform_is_an_instance() -> None:
    """Catches an operator that can only be Fourier's: DCT-II, whose inverse is its transpose, and stays real."""
    n = 16
    dct = np.cos(np.pi * np.outer(np.arange(n), np.arange(n) + 0.5) / n) * np.sqrt(2 / n)
    dct[0] /= np.sqrt(2)
    x = noise((n, n), "float32")
    a = mf.shard(x, mesh((2, 4)), P("x", "y"))
    y = mf.apply_separable([dct, dct], a)
    assert y.dtype == np.float32 and error(mf.apply_separable([dct.T, dct.T], y), x) <= 1e-6
    mirrored = np.concatenate([x, x[::-1]])  # DCT-II is the DFT of the even extension
    shift = np.exp(-1j * np.pi * np.arange(n) / (2 * n))[:, None]
    one = np.real(shift * np.fft.fft(mirrored, axis=0)[:n]) / 2 * np.sqrt(2 / n)
    one[0] /= np.sqrt(2)
    assert error(mf.apply_separable([dct, None], a), one) <= 4e-7


def test_a_poisson_problem_by_fast_diagonalisation() -> None:
    """Catches matrices applied in the wrong order or untransposed: -Laplace u = f between Dirichlet walls, in 3-D."""
    shape, devices, spec = (8, 12, 16), mesh((2, 2, 2)), P("x", "y", "z")
    u = noise(shape, "float32")
    f, modes, values = np.zeros(shape), [], []
    for dim, n in enumerate(shape):
        laplace = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        f += separable(u.astype(float), [laplace if d == dim else None for d in range(3)])
        value, mode = np.linalg.eigh(laplace)
        modes.append(mode)
        values.append(value.reshape([-1 if d == dim else 1 for d in range(3)]))
    a = mf.shard(f.astype(np.float32), devices, spec)
    spectrum = mf.apply_separable([m.T for m in modes], a) / mf.shard(
        np.asarray(sum(values), np.float32), devices, spec
    )
    found = mf.apply_separable(modes, spectrum)
    assert found.dtype == np.float32 and error(found, u) <= 3e-5  # condition of the Laplacian: 100


def _given(matrices: list[Array], a: Array, spec: P) -> Array:
    return mf.apply_separable(matrices, a, spec=spec)


@pytest.mark.quick(0)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_gradients_are_those_of_one_device(dtype: str) -> None:
    """Catches a gradient in a matrix summed over too few shards, or conjugated where JAX does not."""
    devices, spec, shape, rows = mesh((2, 4)), P("x", "y"), (4, 8), (6, 12)
    x, z = noise(shape, dtype), noise(rows, dtype, 9)
    matrices = [jnp.asarray(noise((m, n), dtype, m)) for m, n in zip(rows, shape, strict=True)]
    a, b = (jax.device_put(v, NamedSharding(devices, spec)) for v in (x, z))

    def ours(matrices: list[Array], a: Array, b: Array) -> Array:
        return jnp.sum(jnp.abs(_given(matrices, a, spec) - b) ** 2)

    def theirs(matrices: list[Array], a: Any, b: Any) -> Array:
        product = jnp.einsum("km,ln,mn->kl", *matrices, a, precision="highest")
        return jnp.sum(jnp.abs(product - b) ** 2)

    found = jax.jit(jax.grad(ours, argnums=(0, 1)))(matrices, a, b)
    truth = jax.jit(jax.grad(theirs, argnums=(0, 1)))(matrices, jnp.asarray(x), jnp.asarray(z))
    assert found[1].sharding.is_equivalent_to(NamedSharding(devices, spec), 2)
    for ours_, theirs_ in zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True):
        assert ours_.dtype == theirs_.dtype and error(ours_, np.asarray(theirs_)) <= 3e-6
    change = [jnp.asarray(noise(m.shape, dtype, 20)) for m in matrices]
    ours_up = jax.jvp(lambda m: ours(m, a, b), (matrices,), (change,))[1]
    assert float(ours_up) == pytest.approx(
        float(jax.jvp(lambda m: theirs(m, x, z), (matrices,), (change,))[1]), rel=1e-4
    )


@pytest.mark.more
def test_gradient_in_a_block_matrix_is_the_transpose() -> None:
    """Catches the blocks of a function taken untransposed, or unconjugated, on the way back."""
    matrix, x, z = noise((16, 8), seed=1), noise((8, 3)), noise((16, 3), seed=2)
    a, b = (jax.device_put(v, NamedSharding(mesh((8,)), P("x"))) for v in (x, z))
    (gradient,) = jax.vjp(lambda a: mf.apply_separable([blocks(matrix), None], a, spec=P("x")), a)[1](b)
    assert error(gradient, matrix.astype(complex).T @ z) <= 4e-7
    for form in (blocks(matrix), matrix):  # of planes, the adjoint
        planes = (jnp.real(a), jnp.imag(a))
        pull = jax.vjp(lambda *p, f=form: mf.apply_separable([f, None], p, spec=P("x")), *planes)[1]
        re, im = pull(mf.apply_separable([None, None], (jnp.real(b), jnp.imag(b))))
        assert error(jax.lax.complex(re, im), matrix.astype(complex).conj().T @ z) <= 4e-7


def test_collectives() -> None:
    """Catches a gather, and planes that travel apart: p - 1 blocks go along each axis, and as many in the gradient."""
    devices, spec, hops = mesh((2, 4)), P("x", "y"), {"collective-permute": 1 + 3}
    for dtype in ("float32", "complex64"):
        a = mf.shard(noise((8, 8), dtype), devices, spec)
        matrices = [noise((8, 8), dtype, 1), blocks(noise((8, 8), dtype, 2))]

        def run(a: Array, matrices: list = matrices) -> Array:
            return mf.apply_separable(matrices, a, spec=spec)

        assert collectives(jax.jit(run).lower(a).compile()) == hops
        assert collectives(jax.jit(lambda a, b, f=run: jax.vjp(f, a)[1](b)).lower(a, a).compile()) == hops
    traced = [jnp.asarray(noise((8, 8), "complex64", j)) for j in range(2)]
    program = jax.jit(lambda m, a: mf.apply_separable(m, a, spec=spec)).lower(traced, a).compile()
    assert collectives(program) == hops


@pytest.mark.more
def test_explicit_axes_and_planes() -> None:
    """Catches a type that lost its sharding under Explicit axes, and planes that are joined on the way."""
    devices, spec, x, matrix = mesh((8,), AxisType.Explicit), P("x", None), noise((16, 2)), noise((8, 16), "float32", 1)
    with jax.set_mesh(devices):
        a = jax.device_put(x, NamedSharding(devices, spec))
        y = jax.jit(lambda m, a: mf.apply_separable([m, None], a))(matrix, a)
        assert jax.typeof(y).sharding.spec == spec and error(y, matrix.astype(complex) @ x) <= 4e-7
        planes: Any = mf.apply_separable([matrix, None], (jnp.real(a), jnp.imag(a)))
    re, im = planes
    assert re.dtype == np.float32 and error(jax.lax.complex(re, im), matrix.astype(complex) @ x) <= 4e-7


def test_what_does_not_fit_is_refused() -> None:
    """Catches a matrix that is broadcast, transposed to fit, or cut, and errors from deep inside."""
    x, square = jnp.ones((4, 3)), np.ones((4, 4))
    for matrices, message in (
        ([square], "1 matrices for 2 axes: give one for each, or None"),
        ([square, square], r"axis 1 has shape \(4, 4\), the dimension 3: give \(m, 3\)"),
        ([np.ones((3, 4)).T, None], r"axis 0 has shape \(4, 3\), the dimension 4"),
        ([np.ones(4), None], r"axis 0 has shape \(4,\): give two dimensions"),
        ([np.ones((0, 4)), None], "axis 0 has no rows"),
        ([mf.BlockMatrix((4, 5), lambda r, c: jnp.ones((len(r), len(c)))), None], r"shape \(4, 5\), the dimension 4"),
    ):
        with pytest.raises(ValueError, match=message):
            mf.apply_separable(matrices, x)
    with pytest.raises(TypeError, match="not numeric"):
        mf.apply_separable([np.full((4, 4), "a"), None], x)
    with pytest.raises(ValueError, match="axis 0 is given twice"):
        mf.apply_separable([square, square], x, axes=(0, 0))
    with pytest.raises(ValueError, match="give two dimensions"):
        jax.jit(lambda m: mf.apply_separable([m, None], x))(jnp.ones(4))
    cut = mf.shard(np.ones((8, 3), np.float32), mesh((8,)), P("x"))
    uneven: Any = mf.apply_separable([np.ones((5, 8)), None], cut)
    assert isinstance(uneven, mf.PaddedArray) and uneven.shape == (5, 3)


def test_nothing_to_do_is_nothing_done() -> None:
    """Catches an error, or a copy to complex, where every entry is None."""
    x = noise((4, 3), "float32")
    y = mf.apply_separable([None, None], x)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, x)


def test_a_sum_of_no_terms_is_zero() -> None:
    """Catches an index into no columns: NumPy multiplies by a matrix (16, 0) all the same."""
    y = mf.apply_separable([np.ones((16, 0)), None], np.zeros((0, 2)))
    np.testing.assert_array_equal(y, np.zeros((16, 2)))
