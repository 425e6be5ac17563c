"""The rows that `fft` and `scaling` wrote."""

from pathlib import Path

from benchmarks.measure.measured import Row
from benchmarks.rows import read


def read_rows(path: Path) -> list[Row]:
    return [Row.from_dict(values) for values in read(path)]
