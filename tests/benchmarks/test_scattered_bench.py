"""The benchmark of scattered points: its rows, and the direct sums that its errors are of."""

import json

import pytest

from benchmarks.scattered import main


@pytest.mark.parametrize(("shape", "trajectory"), [("16,24", "spiral"), ("8,8,12", "koosh")])
def test_rows_are_of_right_transforms(shape: str, trajectory: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a sign, an origin or an order that differs from the direct sum's, in any case of either type."""
    main(shape, "1e-3", trajectory, points=600, rounds=1, json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(row["case"], row["type"]) for row in rows} >= {
        (f"meshfft{o}", t) for o in ("", ", placed") for t in (1, 2)
    }
    assert all(row["error"] < 3e-3 and row["cpu_ms"] > 0 and row["plan_s"] > 0 for row in rows)
