"""`python -m benchmarks first_on_tpu`, which must run the first time that there is a TPU."""

from pathlib import Path

import pytest

from benchmarks.rows import read
from benchmarks.tpu.first_on_tpu import main


@pytest.mark.slow
def test_the_first_thing_to_run_on_a_tpu(tmp_path: Path) -> None:
    """Catches a script that fails where nobody can mend it, and kernels whose values it does not check."""
    main("8", points=512, rounds=1, interpret=True, rows=tmp_path / "rows.jsonl")
    rows = read(tmp_path / "rows.jsonl")
    assert [row["kernel"] for row in rows] == ["plane", "last", "middle", "first"]
    assert all(row["error"] <= 2e-7 for row in rows)
