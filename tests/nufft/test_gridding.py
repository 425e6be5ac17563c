"""One device's interpolation and spreading, against a loop over points in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.typing import DTypeLike

import meshfft as mf
from meshfft.nufft.grid import gridding, point_grid
from meshfft.nufft.grid.form import Form, Slots, chosen, cost
from meshfft.nufft.grid.gridding import interpolate, spread
from meshfft.nufft.grid.window import fitted

Q = (0.31, 0.72, 0.55, 0.18)  # any polynomial is a window here
CASES = [
    # kind, block with halo, tile, chunk, width, slack, coils, points, double
    ("points", (23,), (8,), 4, 3, 0, 1, 40, True),
    ("points", (13, 17), (4, 8), 3, 4, 0, 2, 60, False),
    ("points", (16, 19), (4, 4), 5, 5, 1, 1, 60, True),
    ("points", (12, 13, 16), (4, 4, 4), 4, 7, 0, 2, 70, True),
    ("gather", (23,), (8,), 4, 3, 0, 1, 40, True),
    ("gather", (13, 17), (4, 8), 3, 4, 0, 2, 60, False),
    ("gather", (16, 19), (4, 4), 5, 5, 1, 1, 60, True),
    ("gather", (9, 11, 15), (2, 4, 8), 4, 4, 0, 1, 50, False),
    ("gather", (12, 13, 16), (4, 4, 4), 4, 7, 0, 2, 70, True),
    ("tiles", (23,), (8,), 4, 3, 0, 2, 40, False),
    ("tiles", (16, 19), (4, 8), 5, 4, 1, 3, 60, True),
    ("tiles", (13, 11, 15), (4, 4, 8), 4, 6, 0, 1, 50, False),
]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several groups of points; the last one overlaps another."""
    monkeypatch.setattr(gridding, "GROUP", 32)
    monkeypatch.setattr(point_grid, "GROUP", 32)


def placed(rng: np.random.Generator, block: tuple[int, ...], form: Form, points: int, real: DTypeLike) -> Slots:
    """Random points in chunks by tile, some slots of each empty, and two chunks more that hold nothing."""
    inner = [b - form.reach + 1 for b in block]
    cell = np.stack([rng.integers(0, b, points) for b in inner], 1)
    corners = np.stack(
        [np.minimum(cell[:, j] // t * t, b - t) for j, (t, b) in enumerate(zip(form.tile, inner, strict=True))], 1
    )
    rows, starts = [], []
    for corner in np.unique(corners, axis=0):
        mine = np.nonzero((corners == corner).all(1))[0]
        for k in range(0, len(mine), form.chunk):
            part = mine[k : k + form.chunk]
            rows.append(np.concatenate([cell[part], np.full((form.chunk - len(part), len(block)), -1)]))
            starts.append(corner)
    count = len(rows)
    rows += [np.full((form.chunk, len(block)), -1)] * 2
    starts += [np.zeros(len(block), int)] * 2
    cell = np.concatenate(rows)
    offset = rng.uniform(-0.5, 0.5, cell.shape) + form.slack * rng.integers(-1, 2, cell.shape)
    offset[cell[:, 0] < 0] = np.nan
    return Slots(
        jnp.asarray(cell, jnp.int32), jnp.asarray(offset, real), jnp.asarray(starts, jnp.int32), jnp.int32(count)
    )


def phi(form: Form, offset: float, order: int) -> np.ndarray:
    """Weights of one point and dimension, or a derivative of them, in float64."""
    z = (np.arange(form.reach) - (form.reach - 1) / 2 - offset) * 2 / form.width
    s = np.maximum(1 - z * z, 0)
    product = np.polynomial.Polynomial(form.coefficients) * np.polynomial.Polynomial([0.5, 1])
    in_z = product(np.polynomial.Polynomial([0.5, 0.0, -1.0]))
    return np.where(s > 0, in_z.deriv(order)(z) * (-2 / form.width) ** order, 0)


def by_loop(block: jax.Array, tables: Slots, form: Form, along: tuple[int, ...]) -> np.ndarray:
    """The sum over cells, one point after the other."""
    out = np.zeros((block.shape[0], len(tables.cell)), complex)
    for j, (cell, offset) in enumerate(zip(np.asarray(tables.cell), np.asarray(tables.offset, float), strict=True)):
        if cell[0] >= 0:
            part = np.asarray(block, complex)[(slice(None), *(slice(c, c + form.reach) for c in cell))]
            for i in range(len(cell)):
                part = np.tensordot(part, phi(form, offset[i], along.count(i)), (1, 0))
            out[:, j] = part
    return out


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    return jnp.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape), dtype)


@pytest.mark.quick(9)
@pytest.mark.parametrize("kind, block, tile, chunk, width, slack, coils, points, double", CASES)
def test_interpolate_and_its_transpose(
    kind: str,
    block: tuple[int, ...],
    tile: tuple[int, ...],
    chunk: int,
    width: int,
    slack: int,
    coils: int,
    points: int,
    double: bool,
) -> None:
    """Catches a wrong cell, weight or derivative, a value that an empty slot leaks (they hold NaN), a chunk done twice
    or left out, and a spread that is not the transpose."""
    rng = np.random.default_rng()
    dtype, real, eps = (jnp.complex128, jnp.float64, 1e-14) if double else (jnp.complex64, jnp.float32, 1e-6)
    with jax.enable_x64(double):
        form = Form(kind, tile, chunk, width, slack, Q)
        tables = placed(rng, block, form, points, real)
        x = drawn(rng, (coils, *block), dtype)
        given = drawn(rng, (coils, len(tables.cell)), dtype)
        empty = np.asarray(tables.cell)[:, 0] < 0
        given = jnp.where(empty[None], jnp.nan, given)
        for along in ((), (len(block) - 1,), (len(block) - 1, 0)):
            made = np.asarray(jax.jit(interpolate, static_argnums=(2, 3))(x, tables, form, along))
            true = by_loop(x, tables, form, along)
            scale = np.abs(true).max()
            assert np.abs(made - true).max() <= 8 * eps * scale
            assert not made[:, empty].any()
            back = np.asarray(jax.jit(spread, static_argnums=(2, 3, 4))(given, tables, form, block, along))
            values = np.where(empty, 0, np.asarray(given, complex))
            gap = (values * made).sum() - (back * np.asarray(x, complex)).sum()
            assert abs(gap) <= 8 * eps * np.linalg.norm(values) * np.linalg.norm(made)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="how XLA compiles for a CPU")
def test_a_loop_over_points_is_one_function() -> None:
    """Catches a loop that XLA runs call by call, at twice the time: an iteration touches more than XLA's limit."""
    form = Form("points", (4, 4, 4), 4, 7, 0, Q)
    tables = placed(np.random.default_rng(), (12, 13, 16), form, 8, jnp.float32)
    lowered = jax.jit(spread, static_argnums=(2, 3)).lower(
        jnp.zeros((1, len(tables.cell)), jnp.complex64), tables, form, (12, 13, 16)
    )
    lines = (lowered.compile().as_text() or "").splitlines()  # newer XLA calls the loops around it, too
    (call,) = [line for line in lines if " call(" in line and 'inlineable="false"' in line]
    assert 'xla_cpu_small_call="true"' in call


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu", "elsewhere"])
@pytest.mark.parametrize("block", [(2000,), (128, 9), (2, 64, 64), (4, 4, 4, 4)])
def test_a_form_fits_its_block_and_has_a_price(platform: str, block: tuple[int, ...]) -> None:
    """Catches a form that does not exist, a tile that is larger than the block, and a price that forgets the coils."""
    form = chosen(fitted(4, 2.0), 0, block, platform)
    assert form.kind in gridding.KINDS and len(form.tile) == len(block)
    assert all(t <= b for t, b in zip(form.tile, block, strict=True))
    one, many = (np.array(cost(form, 1000, coils, 8)) for coils in (1, 8))
    assert (many > one).all() and (many <= 8 * one).all()


@pytest.mark.parametrize("topology", ["v5e:2x4", "h200:8", "cpu:8"])
def test_plans_take_the_form_of_their_platform(topology: str) -> None:
    """Catches a form that is chosen by the name of a chip: every TPU would gather, as GPUs do."""
    k = mf.Scattered.turns(np.random.default_rng(0).random((1000, 2)))
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"))
    plan = mf.scattered_plan((64, 64), k, mesh=mesh, spec=P("x", "y"), topology=topology, tol=1e-3)
    assert ("(gather, " in " ".join(str(plan).split())) is topology.startswith("h200")
