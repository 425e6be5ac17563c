"""What `tol` promises: no entry of the matrix errs by more, wherever the points lie."""

from typing import Any

import jax
import numpy as np
import pytest
from reference import error

import meshfft as mf
from benchmarks import tolerance


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_points_at_the_edges_of_cells_keep_the_tolerance(tol: float) -> None:
    """Catches a window chosen by its mean error over points, which is a few times larger at the edges of cells.

    The image of one point is a row of the matrix; the samples at the end of the band err most.
    """
    n, cells = 32, 64
    for edge in (0.0, 0.5, 1e-9, 0.25):
        k = mf.Scattered.turns(np.full((3, 1), (5 + edge) / cells))
        wave = np.exp(2j * np.pi * (5 + edge) / cells * np.arange(n))
        row = np.asarray(mf.nufftn_adjoint(np.ones(3, np.complex64), k, n, tol=tol, sigma=2.0))
        assert np.abs(row / 3 - wave).max() <= tol
        assert error(row / 3, wave) <= tol
        last = np.asarray(mf.nufftn(np.eye(n, dtype=np.complex64)[:1], k, tol=tol, sigma=2.0, origin="centre"))
        assert np.abs(last - np.exp(2j * np.pi * (5 + edge) / cells * (n // 2))).max() <= tol


def test_two_windows_keep_the_tolerance() -> None:
    """Catches type 3 whose two windows have an error of `tol` each, at positions and frequencies that both err most."""
    s = np.array([[1.6578488042038755], [-2.5684262399119895], [1.6350880476625758]])
    x = np.array([[-0.4451686263851543]])
    sums = mf.nufftn_type3(np.ones(1, np.complex64), x, mf.Scattered.turns(s), tol=1e-3)
    assert error(sums, np.exp(-2j * np.pi * s @ x.T).sum(1)) <= 1e-3


def test_type_3_refuses_what_two_windows_cannot_hold() -> None:
    """Catches a tolerance at which each window alone has all of it."""
    s = mf.Scattered.turns([[1.0], [0.5]])
    with pytest.raises(ValueError, match=r"tol=1e-06 is below.* use tol >= 2e-06"):
        mf.nufftn_type3(np.ones(2, np.complex64), np.array([[0.0], [2.5]]), s, tol=1e-6)
    wrong: Any
    for wrong in (1.0, 1.5, 0, float("nan"), "fine", None):
        with pytest.raises(ValueError, match=r"tol is .*: give a relative error"):
            mf.nufftn_type3(np.ones(2), np.array([[0.0], [2.5]]), s, tol=wrong)
    with jax.enable_x64(True), pytest.raises(ValueError, match="use tol >= 2e-12"):
        mf.nufftn_type3(np.ones(2, complex), np.array([[0.0], [2.5]]), s, tol=1e-12)


@pytest.mark.slow
def test_drawn_sets_keep_the_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches an error above `tol`: 110 sets of all types, precisions and decades; the benchmark draws 5,000."""
    rows = list(tolerance.measured(110, 1, each=2))
    assert {(row["kind"], row["dtype"]) for row in rows} == {(k, d) for k in (1, 2, 3) for d in tolerance.LEAST_TOL}
    assert max(max(row["error"], row["single"]) for row in rows) <= 1
    tolerance.show(rows)
    assert "| 3 | 1e-12 | 2 |" in capsys.readouterr().out
