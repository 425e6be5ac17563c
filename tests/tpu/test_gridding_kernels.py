"""The kernels for scattered points on TPUs: values by Pallas's interpreter, and that the TPU's compiler takes them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow_case

from meshfft.nufft.grid.form import Form, Slots, tpu_form
from meshfft.nufft.grid.window import fitted
from meshfft.tpu.gridding import interpolated, spread_out
from meshfft.tpu.strips import Task

K = 128
CASES = [
    # # block with halo, tile or the host's choice, width, slack, coils, points, relative error
    ((67, 140), None, 4, 0, 2, 900, 2e-7),
    ((11, 21, 37), (4, 13, 20), 4, 0, 1, 500, 2e-7),
    slow_case((67, 150), None, 7, 0, 1, 3000, 3e-7),
    slow_case((9, 260), (3, 40), 4, 1, 3, 700, 2e-7),
    slow_case((20, 36, 140), None, 4, 0, 1, 4000, 2e-7),
    slow_case((27, 30, 40), None, 7, 0, 2, 4000, 3e-7),
    slow_case((20, 36, 140), None, 4, 1, 5, 2000, 2e-7),
]
PROGRAM = Path(__file__).parent.parent / "tpu_programs.py"
COMPILER = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason='needs the TPU compiler: pip install ".[tpu]"'
)
ENVIRONMENT = {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


def placed(rng: np.random.Generator, owned: np.ndarray, form: Form, points: int) -> Slots:
    """Random points in chunks by tile, tiles at the far end moved back into the block, and two empty chunks."""
    cell, tile = rng.integers(0, owned, (points, len(owned))), np.array(form.tile)
    corner = cell // tile
    cells, starts = [], []
    for one in np.unique(corner, axis=0):
        mine = cell[(corner == one).all(1)]
        for k in range(0, len(mine), K):
            part = mine[k : k + K]
            cells.append(np.concatenate([part, np.full((K - len(part), len(owned)), -1)]))
            starts.append(np.minimum(one * tile, owned - tile))
    count = len(cells)
    cells += [np.full((K, len(owned)), -1)] * 2
    starts += [np.zeros(len(owned), int)] * 2
    where = np.concatenate(cells)
    offset = rng.uniform(-0.5, 0.5, where.shape) + form.slack * rng.integers(-1, 2, where.shape)
    offset[where[:, 0] < 0] = np.nan
    arrays = (jnp.asarray(where, jnp.int32), jnp.asarray(offset, jnp.float32), jnp.asarray(starts, jnp.int32))
    return Slots(*arrays, jnp.int32(count))


def windows(form: Form, offset: np.ndarray) -> list[np.ndarray]:
    """Weights (reach,) of a point in every dimension, in float64."""
    z = (np.arange(form.reach) - (form.reach - 1) / 2 - offset[:, None]) * 2 / form.width
    s = np.maximum(1 - z * z, 0)
    product = np.polynomial.Polynomial(form.coefficients) * np.polynomial.Polynomial([0.5, 1])
    return list(product(s - 0.5) * (s > 0))


def by_loops(x: np.ndarray, values: np.ndarray, tables: Slots, form: Form) -> tuple[np.ndarray, np.ndarray]:
    """Interpolated from x, and spread from values, one point after the other."""
    out, block = np.zeros(values.shape, complex), np.zeros(x.shape, complex)
    for k, cell in enumerate(np.asarray(tables.cell)):
        if cell[0] >= 0:
            weight = np.ones(())
            for one in windows(form, np.asarray(tables.offset, float)[k]):
                weight = np.multiply.outer(weight, one)
            at = (slice(None), *(slice(c, c + form.reach) for c in cell))
            out[:, k] = (x[at] * weight).sum(tuple(range(1, x.ndim)))
            block[at] += np.multiply.outer(values[:, k], weight)
    return out, block


def error(made: jax.Array, true: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(made) - true) / np.linalg.norm(true))


@pytest.mark.more
@pytest.mark.parametrize("block, tile, width, slack, coils, points, limit", CASES)
def test_values_and_their_transpose(
    block: tuple[int, ...],
    tile: tuple[int, ...] | None,
    width: int,
    slack: int,
    coils: int,
    points: int,
    limit: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Catches a tile that starts off a register's edge, another strip than a chunk's, one whose neighbour's sums are
    lost, a part of a product left out (an error of 1e-5), coils mixed up, and the content of an empty slot (NaN) read.
    Copies are done immediately here, so a missing wait is not caught."""
    monkeypatch.setattr(Task, "unrolled", 2)  # the same loops, compiled in less time
    rng, owned = np.random.default_rng(), np.array(block) - (width + 2 * slack) + 1
    sides = tile or tpu_form(width + 2 * slack, len(block))[0]
    form = Form("strips", tuple(np.minimum(sides, owned)), K, width, slack, fitted(width, 2.0).coefficients)
    tables = placed(rng, owned, form, points)
    shapes = ((coils, *block), (coils, len(tables.cell)))
    x, values = (np.asarray(rng.standard_normal(s) + 1j * rng.standard_normal(s), np.complex64) for s in shapes)
    empty = np.asarray(tables.cell)[:, 0] < 0
    true_out, true_block = by_loops(x, values, tables, form)
    given = jnp.where(empty[None], jnp.nan, values)
    out = interpolated(jnp.asarray(x), tables, form, interpret=True)
    back = spread_out(given, tables, form, block, interpret=True)
    assert not np.asarray(out)[:, empty].any()
    assert error(out, true_out) <= limit
    assert error(back, true_block) <= limit


def compiled(what: str, topology: str) -> dict[str, Any]:
    """Output of a process with the TPU compiler."""
    command = [sys.executable, str(PROGRAM), what, topology]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@COMPILER
@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"])
def test_the_compiler_takes_them(topology: str) -> None:
    """Catches what only the TPU's compiler refuses: a shape, an alignment, more memory than the chip has; on a device
    of a mesh, where values vary over its axes."""
    assert compiled("gridding", topology) == {f"{d}-D w {w}": 2 for d in (2, 3) for w in (4, 7)}


@pytest.mark.slow
@COMPILER
def test_plans_take_them_on_tpus() -> None:
    """Catches a plan for TPUs that interpolates otherwise, and collectives that it does not print."""
    found = compiled("scattered", "v5e:2x2")
    assert found["kernels"] == 1
    assert found["collectives"] == found["plan"]
