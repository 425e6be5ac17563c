"""The benchmark of scattered points: its rows, and the direct sums that its errors are of."""

from pathlib import Path

import pytest

from benchmarks.rows import read
from benchmarks.scattered import main


@pytest.mark.more
@pytest.mark.parametrize("shape", ["16,24", "8,8,12"])
def test_rows_are_of_right_transforms(shape: str, tmp_path: Path) -> None:
    """Catches a sign, an origin or an order that differs from the direct sum's, in any case of either type."""
    main(shape, "1e-3", points=600, rounds=1, rows=tmp_path / "rows.jsonl")
    rows = read(tmp_path / "rows.jsonl")
    assert {(row["case"], row["type"]) for row in rows} >= {
        (f"meshfft{o}", t) for o in ("", ", placed") for t in (1, 2)
    }
    assert all(row["error"] < 3e-3 and row["cpu_ms"] > 0 and row["plan_s"] > 0 for row in rows)
