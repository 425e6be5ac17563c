"""The recipe for Slurm in docs/hosts.md, under a real Slurm on four virtual nodes, as the page has it."""

import re
from pathlib import Path

import numpy as np
import pytest
from reference import error

from benchmarks.virtual_nodes import missing, started

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"
N = 32
FILLED_IN = {  # four nodes of CPUs with one task of two devices each
    "--nodes=2": "--nodes=4",
    "--ntasks-per-node=4": "--ntasks-per-node=1",
    "#SBATCH --gpus-per-node=4": "#",
    "JAX_NUM_CPU_DEVICES=1": "JAX_NUM_CPU_DEVICES=2",
}


def _block(after: str, language: str) -> str:
    found = re.search(rf"{re.escape(after)}\n\n```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, f"docs/hosts.md has no block of {language} after {after}"
    return found[1]


def test_ip_reads_the_names_of_the_check() -> None:
    """Catches interfaces named as abbreviations of `ip`'s own words, so that no machine passes."""
    if (why := missing()).startswith("not installed"):
        pytest.skip(why)
    assert "is invalid" not in why


def test_the_recipe_for_slurm(tmp_path: Path) -> None:
    """Catches a recipe that Slurm or JAX refuses, and values that depend on which node holds a block."""
    zarr = pytest.importorskip("zarr")
    if why := missing():
        pytest.skip(why)
    recipe = _block("## Slurm", "sh")
    for written, filled in FILLED_IN.items():
        assert recipe.count(written) == 1, f"the recipe has {written} not once"
        recipe = recipe.replace(written, filled)
    x = np.random.default_rng(0).standard_normal((N, N, N), dtype="f4")
    np.save(tmp_path / "volume.npy", x)
    zarr.save_array(tmp_path / "in.zarr", x)
    (tmp_path / "power.py").write_text(_block("`power.py`:", "python"))
    (tmp_path / "job.sh").write_text(recipe)
    with started() as nodes:
        ran = nodes.run("sbatch --wait job.sh", folder=tmp_path, seconds=300, check=False)
        printed = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
        assert ran.returncode == 0, ran.stderr + printed
        counts = " ".join(f"/sys/class/net/to{i}/statistics/rx_bytes" for i in range(1, 5))
        sent = list(map(int, nodes.run(f"cat {counts}").stdout.split()))
    truth, power = np.fft.fftn(x.astype(float)), re.search(r"^\[(\d.*)\]$", printed, re.MULTILINE)
    assert power, printed
    k = np.fft.fftfreq(N, 1 / N)
    shell = np.rint(np.sqrt(k[:, None, None] ** 2 + k[:, None] ** 2 + k**2))
    expected = [np.mean(abs(truth[shell == j] / N**3) ** 2) for j in (1, 2, 3)]
    np.testing.assert_allclose(np.fromstring(power[1], sep=" "), expected, rtol=1e-5)
    found = zarr.open_array(tmp_path / "out.zarr" / "data", mode="r")[...]
    assert error(found, truth) < 1e-6
    assert min(sent) > 8 * N**3 // 4 // 4, sent  # all nodes take part
