"""Float64 from integer products: slices, their exact sums, and the error that is stated for every number of them."""

import functools
import re
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from marks import slow_but

from meshfft.numerics import chunks, slices
from meshfft.numerics.dtypes import ROUNDING, TIERS, UNITS, Dot, sliced_error
from meshfft.numerics.products import planes_of, product
from meshfft.numerics.slices import SlicedProduct, host_slices

pytestmark = pytest.mark.optimised

SLICES = (4, 5, 6, 7)
EDGES = (0.0, 1.0, -1.0, 1 - 2.0**-53, -1 + 2.0**-53, 127.5 / 128, -128.5 / 128, 2.0**-8, 3e-17, -0.5, 254 / 255)


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def _value(digits: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The number that slices represent, in extended precision."""
    weights = np.ldexp(np.longdouble(1), 1 - 8 * np.arange(1, len(digits) + 1))
    return np.tensordot(weights, digits.astype(np.longdouble), 1) * scale


def _lines(kind: str, n: int, seed: int) -> np.ndarray:
    """Complex lines (n, 3) of a kind."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3)) + 1j * rng.standard_normal((n, 3))
    if kind == "spike":  # half of the energy in one entry
        x[rng.integers(n)] += np.sqrt(2 * n)
    if kind == "smooth":  # a spectrum over twelve decades
        x = np.fft.ifft(x * 10.0 ** np.linspace(0, -12, n)[:, None], axis=0)
    if kind == "digits":  # nearly all of it in one entry, whose digits are no mean ones: 64, then -128
        x *= 0.01
        x[rng.integers(n)] = 127 / 128
    if kind == "one":
        x = np.eye(n, 3, -int(rng.integers(max(n - 3, 1)))) + 0j
    return x * 2.0 ** rng.integers(-900, 900)


@functools.partial(jax.jit, static_argnums=2)
def _product(matrix: jax.Array, x: jax.Array, dot: Dot) -> tuple[jax.Array, ...]:
    def columns(start: jax.Array | int, size: int) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.dynamic_slice_in_dim(plane, start, size, 1) for plane in (matrix.real, matrix.imag))

    return planes_of(product([(columns, (x.real, x.imag))], 0, dot))


def _error(matrix: np.ndarray, x: np.ndarray, dot: Dot) -> float:
    """Relative to the mean of all rows that there could be, as a transform has them; a few may be small by chance."""
    re, im = (np.asarray(plane) for plane in _product(matrix, x, dot))
    truth = matrix.astype(np.clongdouble) @ x.astype(np.clongdouble)
    off = (re - truth.real) + 1j * (im - truth.imag)
    mean = np.sqrt((np.abs(matrix) ** 2).mean() * matrix.shape[0] * (np.abs(x.astype(np.clongdouble)) ** 2).sum())
    return float(np.sqrt((np.abs(off) ** 2).sum()) / mean)


def _waves(rows: int, n: int, seed: int) -> np.ndarray:
    return np.exp(2j * np.pi * (np.outer(np.random.default_rng(seed).integers(0, n, rows), np.arange(n)) % n / n))


@pytest.mark.quick(3)
@pytest.mark.parametrize("slices", slow_but([5, 7], SLICES))
def test_slices_add_up_to_the_number(slices: int) -> None:
    """Catches a carry that is dropped, a digit of 128 that wraps, and a scale that is off by a power of two."""
    rng = np.random.default_rng(slices)
    x = np.concatenate([[*EDGES], rng.uniform(-1, 1, 4000), rng.standard_normal(50) * 10.0 ** -np.arange(50)])
    for factor, unit in ((1.0, ""), (-1.0, "int8"), (1.5, ""), (1e-200, "int8"), (3e250, "")):
        (digits,), scale = SlicedProduct(slices, unit).sliced((jnp.asarray(x * factor),), 0)
        assert len(digits) == slices and all(one.dtype == jnp.int8 and one.shape == x.shape for one in digits)
        off = _value(np.asarray(digits), np.asarray(scale)) - (x * factor).astype(np.longdouble)
        assert np.abs(off).max() <= float(np.ldexp(1.01, -8 * slices)) * float(scale[0])
    held = host_slices(x[None].astype(np.longdouble), slices)
    assert np.abs(_value(held, np.array(2.0)) - x).max() <= np.ldexp(1.0, 1 - 8 * slices)


@pytest.mark.quick(6)
@pytest.mark.parametrize("multiplications", [4, 3])
@pytest.mark.parametrize("slices", slow_but([4, 7], SLICES))
def test_error_by_number_of_slices(slices: int, multiplications: int) -> None:
    """Catches a product of slices left out, and one made that nothing needs: each slice is worth 8 bits."""
    dot = Dot(f"int8x{slices}", multiplications)
    got = _error(_waves(16, 300, 1), _lines("noise", 300, 2), dot)
    assert got <= dot.error_over(300) and TIERS[dot.tier].passes == slices * (slices + 1) // 2
    assert slices == 7 or got >= 2.0 ** (-8 * slices - 1), "an error this small needs more products than are counted"
    assert slices < 7 or got <= 4e-16


@pytest.mark.more
@settings(max_examples=8, deadline=None)
@given(
    n=st.sampled_from([1, 2, 7, 128, 1100, 5000]),
    kind=st.sampled_from(["noise", "spike", "smooth", "one", "digits"]),
    slices=st.sampled_from(SLICES),
    multiplications=st.sampled_from([3, 4]),
    seed=st.integers(0, 2**31),
)
@example(n=13, kind="digits", slices=4, multiplications=4, seed=7)
def test_the_error_stated_is_never_exceeded(n: int, kind: str, slices: int, multiplications: int, seed: int) -> None:
    """Catches a statement that holds for white noise alone: fixed-point lines lose more where one entry is large."""
    dot = Dot(f"int8x{slices}", multiplications)
    assert _error(_waves(8, n, seed), _lines(kind, n, seed), dot) <= dot.error_over(n)


@pytest.mark.more
@pytest.mark.parametrize("n", slow_but([130], [130, 1500]))
def test_all_units_agree_to_the_last_bit_and_pairs_to_theirs(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a sum that a unit does not add exactly, as of bfloat16 products beyond 2^24, a weight that a host's one
    product makes wrong, and bits that pairs of float32 lose where they are sliced or put together.
    """
    matrix, x = np.full((3, n), 1 - 2.0**-30), np.full((n, 2), -1 + 2.0**-40)
    x[:, 1] = np.random.default_rng(0).standard_normal(n)
    ways = [SlicedProduct(7, unit, pairs) for unit in ("", *UNITS) for pairs in (False, True)]

    def made(way: SlicedProduct, some: slice) -> np.ndarray:
        return np.asarray(jax.jit(lambda a, b: way.along(way.laid(way.parts(a)), b, 0))(matrix[:, some], x[some]))

    for some in (slice(k, min(k + ways[-1].run, n)) for k in range(0, n, ways[-1].run)):
        one, pairs, *others = (made(way, some) for way in ways)
        assert all(np.array_equal(one, other) for other in others[::2])
        assert all(np.array_equal(pairs, other) for other in others[1::2])
        assert np.abs(pairs - one).max() <= 2.0**-46 * np.abs(one).max()
        with monkeypatch.context() as patch:
            patch.setattr(slices, "WHOLE", 0)
            assert np.array_equal(one, made(ways[0], some)), "a matrix too large for one product"
    assert _error(_waves(3, n, 0), x + 0j, Dot("int8x7", 4)) <= sliced_error(7, 4, n) + ROUNDING[""]


@pytest.mark.quick(0)
@pytest.mark.parametrize("power", [-70, 0, 120])
def test_pairs(power: int) -> None:
    """Catches an exponent read wrong from the bits of a float32, and errors beyond what plans for TPUs state."""
    way, n = SlicedProduct(7, "int8", True), 200
    matrix, x = _waves(20, n, 3), _lines("spike", n, 1)
    x = x / np.abs(x).max() * 2.0**power
    planes = jax.jit(lambda m, a: way.complex_along(way.complex_parts(m.real, m.imag), (a.real, a.imag), 0))(matrix, x)
    truth = matrix.astype(np.clongdouble) @ x.astype(np.clongdouble)
    off = np.asarray(planes[0]) - truth.real + 1j * (np.asarray(planes[1]) - truth.imag)
    assert np.linalg.norm((off / 2.0**power).astype(complex)) <= Dot("int8x7", 4, "int8").error_over(
        n
    ) * np.linalg.norm((truth / 2.0**power).astype(complex))


@pytest.mark.more
def test_what_is_not_finite_stays_in_its_line() -> None:
    """Catches NaN or infinity that becomes a finite number, and lines without one that are spoilt by it."""
    x = np.random.default_rng(0).standard_normal((9, 6))
    x[3, 1], x[4, 2], x[5, 3], x[0, 4], x[:, 5] = np.nan, np.inf, -np.inf, 1.7e308, 0.0
    for way in (SlicedProduct(7, "int8"), SlicedProduct(7, "int8", pairs=True)):
        y = np.asarray(way.along(way.parts(jnp.eye(9)[:4]), jnp.asarray(x), 0))
        assert np.isnan(y[:, 1:5]).all() and (y[:, 5] == 0).all()
        assert np.abs(y[:, 0] - x[:4, 0]).max() <= (2.0**-46 if way.pairs else 1e-16) * np.abs(x[:, 0]).max()


@pytest.mark.quick(0, 2)
@pytest.mark.parametrize(
    ("shape", "dim", "parts"), [((64, 256), 1, (0, 16)), ((3, 8, 7), 0, (1, 4)), ((16, 256), 0, (1, 2))]
)
def test_chunks(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dim: int, parts: tuple[int, int]) -> None:
    """Catches lines of no chunk or of two, sums that a chunk does not add to, and lanes cut within a register."""
    monkeypatch.setattr(chunks, "CHUNK", np.prod(shape) // parts[1])
    x, total = np.arange(np.prod(shape), dtype=float).reshape(shape), np.ones((*shape,))
    assert chunks.chunks(shape, dim) == parts
    added = chunks.in_chunks((jnp.asarray(x),), (jnp.asarray(total),), dim, lambda a, t: (a[0] * 2 + (t or (0,))[0],))
    alone = chunks.in_chunks((jnp.asarray(x),), None, dim, lambda a, t: (a[0] * 2,))
    assert np.array_equal(added[0], 2 * x + 1) and np.array_equal(alone[0], 2 * x)


def test_slices_for_tpus_are_lines_side_by_side() -> None:
    """Catches slices and sums of a block's own dimensions, the short ones of which TPUs pad to tiles of 8 x 128."""

    def run(planes: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        matrix = tuple(jnp.ones((6, 4)) for _ in range(2))
        return planes_of(product([(lambda start, size: matrix, planes)], 1, Dot("int8x7", 4, "int8")))

    planes = (jax.ShapeDtypeStruct((2, 4, 3, 5), np.float64),) * 2
    text = jax.jit(run).trace(planes).lower(lowering_platforms=("tpu",)).as_text()
    blocks = set(re.findall(r"tensor<(\w+)xi(?:8|32)>", text))
    assert "4x30" in blocks and not any(block.startswith("2x4x") or block.endswith("x3x5") for block in blocks)
