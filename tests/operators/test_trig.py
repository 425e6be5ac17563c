"""Cosine and sine transforms of one device: against SciPy and the direct sum; their inverses, transposes and errors."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from reference import error, noise

from meshfft.kernels.real import Products, factors
from meshfft.kernels.trig import real_lines, transform
from meshfft.numerics.phases import MAX_LENGTH
from meshfft.operators.transform import Transform, transform_of
from meshfft.operators.trig import FAMILIES, TYPES, Trig, trig

LENGTHS = (*range(1, 10), 16, 17, 31, 64, 97, 128)
NAMES = {("cos", False): "dct", ("cos", True): "idct", ("sin", False): "dst", ("sin", True): "idst"}
CALLS = list(itertools.product(TYPES, (None, "backward", "ortho", "forward"), (None, True, False), (False, True)))
ENDS = st.tuples(*[st.sampled_from([0.25, 0.5, 0.5**0.5, 1.0, 3.0])] * 2)


@st.composite
def matrices(draw: st.DrawFn) -> Trig:
    """Any type, with any ends."""
    family, type = draw(st.sampled_from(FAMILIES)), draw(st.sampled_from(TYPES))
    least = shortest(family, type)
    return Trig(family, type, draw(st.sampled_from(LENGTHS[least - 1 :])), draw(ENDS), draw(ENDS))


def entries(family: str, type: int, rows: np.ndarray, columns: np.ndarray, length: int) -> np.ndarray:
    """The kernel by its definition, with phases reduced in 64-bit integers, and waves to 80 bits."""
    one = family == "sin"
    turn = {1: 2 * (length + (1 if one else -1)), 2: 4 * length, 3: 4 * length, 4: 8 * length}[type]
    k = 2 * rows + 1 if type in (3, 4) else rows + one
    n = 2 * columns + 1 if type in (2, 4) else columns + one
    angle = np.arctan2(np.longdouble(0), np.longdouble(-1)) * 2 * (np.outer(k, n) % turn) / turn
    return 2 * (np.sin(angle) if one else np.cos(angle))


def dense(matrix: Trig) -> np.ndarray:
    """The matrix, its ends applied, in float64."""
    index = np.arange(matrix.length)
    kernel = entries(matrix.family, matrix.type, index, index, matrix.length).astype(float)
    for ends, side in ((matrix.row_ends, kernel), (matrix.column_ends, kernel.T)):
        side[0] *= ends[0]
        side[-1] *= ends[1]
    return kernel


def blocks(matrices: list[Trig], rows: np.ndarray, columns: np.ndarray, real: type = np.float64) -> list[np.ndarray]:
    make = jax.jit(lambda rows, columns: [matrix.block(None, rows, columns, real) for matrix in matrices])
    return [np.asarray(plane) for (plane,) in make(rows.astype(np.int32), columns.astype(np.int32))]


def shortest(family: str, type: int) -> int:
    return 2 if (family, type) == ("cos", 1) else 1


def made(family: str, length: int, type: int, norm: str | None, shared: bool | None, inverse: bool) -> Transform:
    """The transform of one of SciPy's calls."""
    return transform_of((0,), (length,), norm, inverse, f"{'dct' if family == 'cos' else 'dst'}-{type}", shared)


def ffts(matrix: Trig) -> list[tuple[int, ...]]:
    """The lengths of all FFTs in a transform."""
    jaxpr = jax.make_jaxpr(lambda b: transform(b, 0, matrix))(np.zeros((matrix.length, 2), np.float32)).jaxpr
    return [tuple(eqn.params["fft_lengths"]) for eqn in _equations(jaxpr) if eqn.primitive.name == "fft"]


def _equations(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jax.tree.leaves(eqn.params, is_leaf=lambda p: hasattr(p, "jaxpr")):
            if hasattr(inner, "jaxpr"):
                yield from _equations(inner.jaxpr)


@pytest.mark.quick(0, 15, 29)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_is_scipys(x64: None, family: str, length: int) -> None:
    """Catches a wrong kernel, end, norm, sign or order of any type, at any length, along any dimension."""
    calls = {call: made(family, length, *call) for call in CALLS if length >= shortest(family, call[0])}
    blocks = [np.moveaxis(noise((length, 3, 2), "float64", length), 0, dim) for dim in range(3)]
    used: list[Any] = list({matrix for _, (matrix,), *_ in calls.values()})
    done = jax.jit(lambda blocks: [[transform(b, dim, m) for dim, b in enumerate(blocks)] for m in used])(blocks)
    results = dict(zip(used, done, strict=True))
    for (type, norm, shared, inverse), (_, (matrix,), scale, *_) in calls.items():
        call = getattr(scipy.fft, NAMES[family, inverse])
        for dim, result in enumerate(results[matrix]):
            truth = call(blocks[dim], type, axis=dim, norm=norm, orthogonalize=shared)
            assert error(scale * np.asarray(result), truth) <= 2e-15, (matrix, norm, inverse, dim)


@pytest.mark.parametrize("length", [6, 31, 520])
@pytest.mark.parametrize("family", FAMILIES)
def test_by_products(x64: None, family: str, length: int) -> None:
    """Catches a type whose real FFT is XLA's whatever the engine, and one that weights its bins otherwise."""
    block = noise((2, length), "float64", length)
    for type in (1, 2, 3, 4):
        _, (matrix,), scale, *_ = made(family, length, type, "ortho", None, False)
        assert isinstance(matrix, Trig)
        if not factors(real_lines(matrix)[0]):
            continue
        found = jax.jit(lambda b, matrix=matrix: transform(b, 1, matrix, Products()))(block)
        assert (
            error(scale * np.asarray(found), getattr(scipy.fft, NAMES[family, False])(block, type, norm="ortho"))
            <= 2e-15
        )
        text = str(jax.make_jaxpr(lambda b, matrix=matrix: transform(b, 1, matrix, Products()))(block))
        assert "fft_type=2" not in text and "fft_type=3" not in text, "no real FFT of XLA"


@given(matrices())
def test_the_transform_is_the_matrix_and_its_gradient_the_transpose(matrix: Trig) -> None:
    """Catches ends that the fast transform leaves out or takes twice, and a transpose that is not the gradient's."""
    x, z = (noise((3, matrix.length, 2), "float32", seed) for seed in (1, 2))

    @jax.jit
    def both(x: jax.Array, z: jax.Array) -> tuple[jax.Array, ...]:
        y, pull = jax.vjp(lambda b: transform(b, 1, matrix), x)
        return y, *pull(z), transform(z, 1, matrix.transpose())

    y, slope, back = both(x, z)
    assert error(y, np.einsum("kn,anb->akb", dense(matrix), x)) <= 3e-7
    assert error(slope, np.einsum("kn,akb->anb", dense(matrix), z)) <= 3e-7
    assert error(back, np.asarray(slope, float)) <= 3e-7


@given(matrices())
def test_blocks_transposes_and_inverses(matrix: Trig) -> None:
    """Catches a kernel unlike its definition, ends on the wrong side, and an inverse that forgets them."""
    with jax.enable_x64(True):
        index, truth = np.arange(matrix.length), dense(matrix)
        back = matrix.transpose()
        block, turned, inverse = blocks([matrix, back, matrix.inverse], index, index)
        assert np.abs(block - truth).max() <= 1e-15 * np.abs(truth).max()
        assert np.abs(turned - truth.T).max() <= 1e-15 * np.abs(truth).max()
        assert back.transpose() == matrix == matrix.conjugate()
        unit = inverse @ truth / matrix.period
        assert np.abs(unit - np.eye(matrix.length)).max() <= 1e-13


@pytest.mark.quick(1, 4, 5, 6, 15)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_entries_of_long_transforms_are_right_to_a_rounding(x64: None, family: str, type: int, real: type) -> None:
    """Catches phases that wrap or round: the products of indices pass 2^53 here; and indices beyond N that break."""
    length = MAX_LENGTH // 8
    rng = np.random.default_rng(type)
    rows, columns = (np.append(rng.integers(0, length, 60), [0, length - 1]) for _ in range(2))
    beyond = np.array([length, length + 5, 2**31 - 1])
    (whole,) = blocks([Trig(family, type, length)], np.append(rows, beyond), columns, real)
    made, far = whole[: len(rows)], whole[len(rows) :]
    assert made.dtype == real and np.isfinite(far).all()
    assert np.abs(made - entries(family, type, rows, columns, length)).max() <= 4 * np.finfo(real).eps


@pytest.mark.quick(0, 4, 12, 18)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [11, 509, 1024, 2187, 4093, 4096])
def test_errors(x64: None, family: str, type: int, length: int) -> None:
    """Catches float32 tables in the float64 path, angles that lose digits, and recurrences that gather errors."""
    rng = np.random.default_rng(length)
    rows = np.append(rng.integers(0, length, 40), [0, length - 1])
    kernel = entries(family, type, rows, np.arange(length), length)
    for real, bound in (("float32", 3e-7), ("float64", 2e-15)):
        x = noise((length, 8), real, seed=length)
        y = jax.jit(lambda b: transform(b, 0, Trig(family, type, length)))(x)
        assert y.dtype == real and error(np.asarray(y)[rows], (kernel @ x).astype(float)) <= bound


@pytest.mark.parametrize("family", FAMILIES)
def test_one_fft_of_the_least_length(family: str) -> None:
    """Catches a transform by way of a longer one, or by two."""
    one = 1 if family == "sin" else -1
    for n in (7, 16, 27):
        lengths = [2 * (n + one), n, n, n if n % 2 else n // 2]
        assert [ffts(Trig(family, type, n)) for type in TYPES] == [[(length,)] for length in lengths]


def test_no_lines_make_no_result() -> None:
    """Catches an array without elements that breaks the FFT or loses its shape."""
    for family, type in itertools.product(FAMILIES, TYPES):
        assert transform(jnp.zeros((0, 6, 2)), 1, Trig(family, type, 6)).shape == (0, 6, 2)


def test_refusals() -> None:
    """Catches a wrong call that is answered, or refused without the remedy."""
    with pytest.raises(ValueError, match="type 5 of a sine transform is unknown: use 1, 2, 3 or 4"):
        trig("sin", 5, 8, False, False)
    with pytest.raises(ValueError, match="norm 'unit' is unknown: use one of 'backward'"):
        made("cos", 8, 2, "unit", None, True)
    with pytest.raises(ValueError, match="length 1 is too short for a cosine transform of type 1: give at least 2"):
        trig("cos", 1, 1, False, False)
