"""Products of complex matrices and blocks, and what type a transform computes in."""

import functools

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import dft, error, mesh, noise, powers, separable
from strategies import Case, cases

import meshfft as mf
from meshfft.numerics.dtypes import TIERS, Dot, complex_dtype
from meshfft.numerics.products import TERMS, planes_of, product, terms_of
from meshfft.numerics.split_complex import Planes, join, split
from meshfft.numerics.tiles import COLUMNS, TILE, in_two_floats, product_in_tiles, sum_of
from meshfft.operators import operands
from meshfft.operators.matrices import Dense
from meshfft.plans.execute import furnish
from meshfft.steps import RingDense

pytestmark = pytest.mark.optimised

FLOAT32 = Dot("float32", 4)


def _columns(matrix: Array, start: Array | int, size: int) -> Planes:
    """Some columns of a matrix held whole."""
    return tuple(jax.lax.dynamic_slice_in_dim(plane, start, size, 1) for plane in split(matrix))


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _product(matrix: Array, block: Array, dim: int, dot: Dot, tiled: bool = True) -> Array:
    """A product with a matrix held whole."""
    columns = functools.partial(_columns, matrix)
    if tiled:
        two = in_two_floats(block.shape[dim])
        return sum_of(product_in_tiles([(columns, block)], dim, dot, two=two), two)
    return join(planes_of(product([(columns, split(block))], dim, dot)))


@pytest.mark.parametrize(("tier", "precision"), [("bf16", "DEFAULT"), ("bf16x3", "HIGH"), ("bf16x6", "HIGHEST")])
def test_tpus_are_told_a_precision(tier: str, precision: str) -> None:
    """Catches a preset in programs for TPUs, which their compiler may drop, to multiply bfloat16 numbers once."""

    def run(planes: Planes) -> Planes:
        return planes_of(product([(lambda start, size: planes, planes)], 0, Dot(tier, 3)))

    planes = (jax.ShapeDtypeStruct((8, 8), np.float32),) * 2
    text = jax.jit(run).trace(planes).lower(lowering_platforms=("tpu",)).as_text()
    found = [line for line in text.splitlines() if "dot_general" in line]
    assert len(found) == 3 and all(f"[{precision}, {precision}]" in line and "algorithm" not in line for line in found)


@pytest.mark.parametrize("gauss", [False, True])
@pytest.mark.parametrize("n", [5, 9, 10, 64])
def test_three_terms_lose_less_than_one_rounding(n: int, gauss: bool) -> None:
    """Catches a bound that is too low for equal numbers, on machines that sum exactly: the worst, halfway between two
    bfloat16 in both parts, lose 0.55 roundings in the products that are left out.
    """
    ends = np.ldexp([1, -1, 1, -1], [-8, -8, -9, -9]) - np.ldexp([1, -1, 0, 0], [-17, -17, 0, 0])
    near = (np.arange(128, 256)[:, None] / 128 + ends).astype(np.float32).ravel()
    rng, roots = np.random.default_rng(3), np.exp(2j * np.pi * np.arange(n) / n).astype(np.complex64)
    x, v = (rng.permutation(near) + 1j * rng.permutation(near)).astype(np.complex64)[:, None], roots[None]

    def lost(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        (_, a2, a3), (_, b2, b3) = (np.asarray(terms_of(jax.numpy.asarray(part), 3), np.float64) for part in (a, b))
        return a2 * b3 + a3 * b2 + a3 * b3

    if gauss:
        a, c = lost(x.real, v.real + v.imag), lost(x.real + x.imag, v.imag)
        re, im = a - c, a + lost(x.imag - x.real, v.real)
    else:
        re = lost(x.real, v.real) - lost(x.imag, v.imag)
        im = lost(x.real, v.imag) + lost(x.imag, v.real)
    size = np.linalg.norm(x.astype(complex) * v, axis=1)
    assert (np.sqrt((re**2 + im**2).sum(1)) / size).max() <= 2.0**-24


@pytest.mark.quick(1, 3, 19, 32, 33, 34, 35, 39, 47)
@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("n", [1, 7, TERMS - 1, TERMS, TERMS + 1, COLUMNS + 1, 3 * TERMS, 4000])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_product_contracts_any_dimension_with_the_error_of_one_run(n: int, dim: int, tiled: bool) -> None:
    """Catches a run left out or taken twice, a dimension in the wrong place, and one long float sum (4e-7 at 4000)."""
    shape = [3, 4, 2]
    shape[dim] = n
    matrix, block = noise((5, n), seed=1), noise(shape, seed=2)
    truth = np.moveaxis(np.tensordot(matrix.astype(complex), block.astype(complex), (1, dim)), 0, dim)
    assert error(_product(matrix, block, dim, FLOAT32, tiled), truth) <= 4e-7


@pytest.mark.quick(16)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((130, TILE + 7), 0), ((3, 130, TILE + 7), 1), ((2, 9, 5, 130), 3), ((TILE + 5, 130), 1), ((7, 130, 100), 1)],
    ids=["leading, whole", "parts of lines", "short trailing", "trailing", "some lines to a tile"],
)
@pytest.mark.parametrize("dot", [FLOAT32, Dot("float32", 3), Dot("bf16x6", 4), Dot("bf16x6", 3)], ids=str)
def test_every_kind_of_tile(shape: tuple[int, ...], dim: int, dot: Dot) -> None:
    """Catches a tile left out, taken twice or put in the wrong place, above all the rest that fills no tile."""
    matrix, block = noise((4, 130), seed=1), noise(shape, seed=2)
    truth = np.moveaxis(np.tensordot(matrix.astype(complex), block.astype(complex), (1, dim)), 0, dim)
    assert error(_product(matrix, block, dim, dot), truth) <= 6e-7


@pytest.mark.quick(5, 14)
@pytest.mark.parametrize("n", [8, TERMS, TERMS + 1, COLUMNS, COLUMNS + 1])
@pytest.mark.parametrize("multiplications", [3, 4])
@pytest.mark.parametrize("added", [False, True])
def test_two_blocks_at_a_time_and_in_place(n: int, multiplications: int, added: bool) -> None:
    """Catches one of two blocks left out, columns met by another's, and a total that is not added to."""
    blocks = [noise((3, n, 5), seed=j) for j in range(2)]
    matrices, total = [noise((n, n), seed=2 + j) for j in range(2)], noise((3, n, 5), seed=4) * np.float32(n) ** 0.5
    truth = sum(np.einsum("kn,anb->akb", m.astype(complex), x) for m, x in zip(matrices, blocks, strict=True))
    dot = Dot("float32", multiplications)

    @functools.partial(jax.jit, static_argnums=3)
    def run(matrices: list[Array], blocks: list[Array], total: Array | None, tiled: bool) -> Array:
        makers = [functools.partial(_columns, m) for m in matrices]
        if tiled:
            given = None if total is None else (total,)
            return product_in_tiles(list(zip(makers, blocks, strict=True)), 1, dot, given)[0]
        sums = planes_of(product(list(zip(makers, map(split, blocks), strict=True)), 1, dot))
        return join(sums) if total is None else join(sums) + total

    for tiled in (True, False):
        assert error(run(matrices, blocks, total if added else None, tiled), truth + total * added) <= 5e-7


def test_long_sums_lose_no_more_than_short_ones() -> None:
    """Catches the error growing with n: dense float32 transforms promise 4e-7 at N = 8192."""
    k = np.arange(64) * 127
    turns = np.outer(k, np.arange(8192)) % 8192 / 8192
    matrix, x = np.exp(-2j * np.pi * turns), noise((8192, 16))
    y = _product(matrix.astype(np.complex64), x, 0, FLOAT32)
    assert error(y, matrix @ x.astype(complex)) <= 3.5e-7


@pytest.mark.parametrize(
    ("dtype", "wide", "precision", "result"),
    [
        ("float32", False, None, "complex64"),
        ("float32", True, None, "complex64"),
        ("float16", True, "default", "complex64"),
        ("int64", True, None, "complex128"),
        ("int32", True, None, "complex64"),
        ("bool", True, None, "complex64"),
        ("int32", False, None, "complex64"),
        ("float64", True, None, "complex128"),
        ("complex128", True, "float32", "complex64"),
        ("float32", True, "float64", "complex128"),
    ],
)
def test_promotion(dtype: str, wide: bool, precision: str | None, result: str) -> None:
    """Catches a promotion that is not NumPy's, and precision= not obeyed."""
    with jax.enable_x64(wide):
        assert complex_dtype(np.dtype(dtype), precision) == result
        assert complex_dtype(np.dtype(ml_dtypes.bfloat16), None) == "complex64"


def test_types_that_cannot_be_computed_in_are_refused() -> None:
    """Catches a silent loss: 64-bit types while they are off, and types wider than JAX has."""
    for dtype in ("float64", "complex128"):
        with pytest.raises(ValueError, match=f"{dtype} needs 64-bit types"):
            complex_dtype(np.dtype(dtype), None)
    with pytest.raises(TypeError, match="use complex128 at most"):
        complex_dtype(np.dtype(np.longdouble), None)
    with pytest.raises(TypeError, match="not numeric"):
        complex_dtype(np.dtype("M8[s]"), None)


# tier and multiplications: relative L2 error of the rounding that a tier allows, measured apart from this library
EXPECTED = {
    ("bf16", 4): 2.1e-3,
    ("bf16", 3): 3.2e-3,
    ("bf16x3", 4): 3.9e-6,
    ("bf16x3", 3): 5.9e-6,
    ("bf16x6", 4): 8e-8,
    ("bf16x6", 3): 1.05e-7,
}
FLOATS = [("float32", 4), ("float32", 3)]
TIER = st.sampled_from([*EXPECTED, *FLOATS])


@pytest.mark.quick(4)
@pytest.mark.parametrize(("tier", "multiplications"), [*EXPECTED, *FLOATS])
def test_error_of_every_tier(tier: str, multiplications: int) -> None:
    """Catches a product of terms left out, taken twice or in the wrong term's place, and a tier better than it is."""
    k, x = np.random.default_rng().integers(0, 8192, 48), noise((8192, 16))
    matrix = np.exp(-2j * np.pi * (np.outer(k, np.arange(8192)) % 8192 / 8192))
    dot = Dot(tier, multiplications)
    found = error(_product(matrix.astype(np.complex64), x, 0, dot), matrix @ x.astype(complex))
    assert found <= dot.error
    expected = EXPECTED.get((tier, multiplications), found)
    assert expected / 2 <= found <= 2 * expected


@pytest.mark.parametrize("multiplications", [3, 4])
def test_error_in_double_precision(x64: None, multiplications: int) -> None:
    """Catches float32 in a product of doubles. The truth is a sum in extended precision: one in float64 is as wrong."""
    k, x = np.random.default_rng().integers(0, 8192, 24), noise((8192, 8), "complex128")
    matrix = np.exp(-2j * np.pi * (np.outer(k, np.arange(8192)) % 8192 / 8192))
    dot = Dot("float64", multiplications)
    assert error(_product(matrix, x, 0, dot), matrix.astype(np.clongdouble) @ x.astype(np.clongdouble)) <= dot.error


def test_three_terms_are_the_number() -> None:
    """Catches terms that are cut instead of rounded, or of seven bits: three of eight hold the 24 of a float32."""
    rng = np.random.default_rng()
    x = (rng.standard_normal(5000) * 10.0 ** rng.integers(-25, 25, 5000)).astype(np.float32)
    x = np.concatenate([x, np.array([0, 1, -1, 1 + 2**-23, 1 - 2**-24, 255.99998, 2**-100], np.float32)])
    for many, rest in ((1, 2.0**-8), (2, 2.0**-16), (3, 0)):
        parts = [np.asarray(part) for part in jax.jit(terms_of, static_argnums=1)(x, many)]
        assert len(parts) == many
        assert all((part.astype(ml_dtypes.bfloat16).astype(np.float32) == part).all() for part in parts)
        total = np.sum([part.astype(float) for part in parts], axis=0)
        assert (np.abs(total - x) <= rest * np.abs(x)).all()


@settings(max_examples=settings().max_examples // 2)
@given(cases(), st.sampled_from(["kdft", "auto"]), TIER, st.integers(0, 2**31))
def test_a_walk_states_its_error(case: Case, method: str, way: tuple[str, int], seed: int) -> None:
    """Catches an error stated for one dimension instead of three, and a tier or a count that a step ignores."""
    plan = mf.plan(
        case.shape,
        mesh=mesh(case.mesh),
        spec=case.spec,
        axes=case.axes,
        method=method,
        precision=way[0],
        multiplications=way[1],
    )
    rings = [step for step in plan.walk.steps if isinstance(step, RingDense)]
    assert all(step.dot == Dot(*way) for step in rings) and (rings or method == "auto")
    x = noise(case.shape, seed=seed)
    found = error(mf.gather(plan(x)), dft(x, case.axes))
    assert found <= plan.error * (1 if x.size > 200 else 2)  # rounding of a few numbers is not the mean one


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("source", "way"),
    slow_rows(
        lambda source, way: source == "points" or way[0] == "bf16x3",
        ("uniform", "points", "matrix"),
        (("bf16x6", 3), ("bf16x3", 4), ("bf16", 3)),
    ),
    ids=str,
)
def test_tables_are_the_matrices(source: str, way: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a table with its terms, forms or rows out of place, or made where it should not be."""
    n, m, turns = 24, 11, np.random.default_rng().random(11)
    x, devices = noise((n, 3)), mesh((8,))
    chosen = mf.Points.uniform(m) if source == "uniform" else mf.Points.turns(turns)
    matrix = powers(np.arange(m) / m if source == "uniform" else turns, None, n)
    plan = mf.plan((n, 3), mesh=devices, spec=P("x"), axes=[0], points=chosen, precision=way[0], multiplications=way[1])
    found = {}
    for size in (operands.TABLE_BYTES, 0):
        monkeypatch.setattr(operands, "TABLE_BYTES", size)
        walk, tables = furnish(plan.walk, plan.sources, "cpu", np.dtype("float32"))
        made = [t for t in tables if isinstance(t, np.ndarray) and t.dtype == ml_dtypes.bfloat16]
        dense = [s for s in walk.steps if isinstance(s, RingDense) and isinstance(s.matrix, Dense)]
        assert len(made) == len(dense) == (size > 0)
        if made:
            assert made[0].shape == (2 + (way[1] == 3), _terms(way[0]), m, n)
            total = made[0].astype(float).sum(1)
            assert error(total[-2] + 1j * total[-1], matrix) <= 2.0 ** (-8 * _terms(way[0]))
        if source == "matrix":
            y = mf.apply_separable(
                [np.concatenate([matrix] * 8), None],
                mf.shard(x, devices, P("x")),
                precision=way[0],
                multiplications=way[1],
            )
            found[size] = np.asarray(y)[:m]
        else:
            found[size] = mf.gather(plan(x))
            back = mf.gather(plan.adjoint(mf.shard(noise((m, 3)), devices, P("x"))))
            assert error(back, matrix.conj().T @ noise((m, 3)).astype(complex)) <= plan.error
        assert error(found[size], separable(x.astype(complex), [matrix, None])) <= plan.error
    few, many = found.values()
    assert error(few, many) <= 2 * plan.error


def _terms(tier: str) -> int:
    return TIERS[tier].terms


def test_unknown_ways_to_multiply_are_refused() -> None:
    """Catches a misspelt precision taken for the default, and five real products for a complex one."""
    x = np.ones((8, 8), np.complex64)
    for options, message in (
        ({"precision": "bf17"}, "precision 'bf17' is unknown: use one of .*'bf16x3'"),
        ({"precision": "highest"}, "precision 'highest' is unknown"),
        ({"multiplications": 5}, "multiplications is 5: use 3 or 4"),
        ({"multiplications": "3"}, "multiplications is .*3.*: use 3 or 4"),
    ):
        for call in (
            lambda o: mf.kdftn(x, **o),
            lambda o: mf.plan((8, 8), **o),
            lambda o: mf.apply_separable([x, None], x, **o),
            lambda o: mf.ikdftn(x, **o),
        ):
            with pytest.raises(ValueError, match=message):
                call(options)
