"""Static schedules of TPU programs: hand-counted examples, and the cycles of matrix units."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchmarks.tpu.bundles import Loop, Schedule
from benchmarks.tpu.kernels import job, write
from benchmarks.tpu.scheduled import read, schedules
from meshfft.machine.chips import CHIPS

DUMPS = Path(__file__).parent / "dumps"
GRID, OUTER, INNER = 11, 5, 7  # of the kernel that was dumped for a v5e
TPU = pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason='needs the TPU compiler: pip install ".[tpu]"')


def product(m: int, k: int, n: int) -> tuple[Callable[..., jax.Array], tuple[tuple[int, int], ...]]:
    """A float32 product, in six of bfloat16."""
    return lambda a, b: jnp.matmul(a, b, precision="highest"), ((m, k), (k, n))


def broken(how: str) -> None:
    if how == "ends":
        os._exit(3)
    raise ValueError(f"this is {how}")


def test_loops_multiply_what_stands_in_them() -> None:
    """Catches misread trip counts, a grid's two extra iterations, and bundles lost after a branch.

    for 11 blocks of 40 rows: for 5 registers: s = 2 x + 1, and for 7 times: s = s / 2; then y = s.
    """
    (schedule,) = read(DUMPS, delay=4).values()

    def turns(loops: list[Loop]) -> list[object]:
        return [(loop.turns, turns(loop.inside)) for loop in loops]

    assert turns(schedule.loops) == [(GRID, [(OUTER, [(INNER, [])])])]
    spent = schedule.spent()
    assert spent.unknown == 0
    assert spent.cycles == 9 + GRID * (77 - 20 + OUTER * (20 - 9 + INNER * 9))


@pytest.mark.parametrize("kind, rows", [("f32", 8), ("bf16", 16)])
def test_products_take_as_long_as_their_rows(kind: str, rows: int) -> None:
    """Catches products closer together than the matrix unit takes rows, and units added up that work side by side."""
    text = [f"{at:#5x} : {{ %{at} = vmatmul.{kind}.gmra.mxu{at % 2} %v1 }}" for at in range(1, 8)]
    assert Schedule("\n".join(text), 4).spent().cycles == 4 * rows


def test_loops_that_cannot_be_followed_are_counted() -> None:
    """Catches a schedule that counts as complete although a loop's trip count is unknown."""
    text = (
        "0 : { %s1 = sld [smem:[#a]] } /* Start region 3 */\n0x1 : { %2 = sbr.rel (%p1) target = $region3 }\n0x2 : {}"
    )
    assert Schedule(text, 1).spent().unknown == 1


def test_table_has_what_has_a_price(tmp_path: Path) -> None:
    """Catches a price of a kernel that the compiler refused, and one of a schedule that is not known."""
    rows = [
        {"topology": "v5e:2x2", "shape": [4, 8], "passes": [{"name": name, "bundles": 8, "unknown": unknown}]}
        for name, unknown in {"fft_plane_4x8.1": 0, "fft_lane_8": 0, "fft_first_8": 1}.items()
    ]
    rows[1]["error"] = "refused"
    write(tmp_path / "table.json", rows)
    assert '"bundles": {\n  "v5e": {\n   "plane": { "4x8": 0.25 }\n  }\n }' in (tmp_path / "table.json").read_text()


@TPU
@pytest.mark.slow
def test_product_takes_what_the_matrix_units_can_do() -> None:
    """Catches lost loops or products, and a compiler failure that affects later jobs."""
    m, k, n = 4096, 2048, 4096
    (row,) = schedules("tests.benchmarks.test_bundles:product", [{"m": m, "k": k, "n": n}], "v5e:2x2")
    bundles = sum(one["bundles"] for one in row["passes"])
    assert bundles == pytest.approx(6 * m * k * n / (4 * 128**2), rel=0.001)
    assert bundles == pytest.approx(row["estimate"], rel=0.05)
    assert not any(one["unknown"] for one in row["passes"])
    jobs = [{"how": "refused"}, {"how": "ends"}, {"how": "wrong"}]
    found = [one["error"] for one in schedules("tests.benchmarks.test_bundles:broken", jobs, "v5e:2x2")]
    assert ["refused" in found[0], "ended" in found[1], "wrong" in found[2]] == [True] * 3


@TPU
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lane", "sublane", "first", "plane"])
def test_kernels_compile_and_their_schedules_are_known(kind: str) -> None:
    """Catches a kernel that the compiler refuses, a copy beside it, and a cost far above the documented one."""
    (row,) = schedules("benchmarks.tpu.kernels:program", [job("kernel", kind, 512, CHIPS["v5e"])], "v5e:2x2")
    points, (found,) = 2**23, row["passes"]
    assert found["name"].startswith(f"fft_{kind}_512") and found["unknown"] == 0
    assert 16 * points <= found["bytes"] < 16.5 * points and row["estimate"] < points / 1e4
    assert 0.005 < found["bundles"] / points < 0.035
