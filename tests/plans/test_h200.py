"""Plans for GPUs beside measurements of one NVIDIA H200 (benchmarks/results/gpu.jsonl)."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import meshfft as mf
from benchmarks.rows import read

ROWS = read(Path(__file__).parent.parent.parent / "benchmarks" / "results" / "gpu.jsonl")
ROUNDED = 1.05  # the allocator rounds arrays of hundreds of megabytes to 2 MB or more
PEAKS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "512^3": ((512,) * 3, {}),
    "2^26": ((2**26,), {}),
    "8192^2": ((8192, 8192), {}),
    "512^3 along the first": ((512,) * 3, {"axes": (0,)}),
    "64 x 64 x 100 x 90": ((64, 64, 100, 90), {}),
    "512^3 rfft": ((512,) * 3, {"kind": "rfft"}),
    "500^3 rfft": ((500,) * 3, {"kind": "rfft"}),
    "512^3 dct-2": ((512,) * 3, {"kind": "dct-2"}),
    "512^3 kdft float32": ((512,) * 3, {"method": "kdft", "precision": "float32"}),
    "512^3 kdft bf16x6": ((512,) * 3, {"method": "kdft", "precision": "bf16x6"}),
    "4096 x 8192 kdft bf16x6": ((4096, 8192), {"method": "kdft", "precision": "bf16x6"}),
}


def _plan(shape: tuple[int, ...], **how: Any) -> mf.Plan:
    plan = mf.plan(shape, topology="h200:1", **how)
    assert isinstance(plan, mf.Plan)
    return plan


@pytest.mark.parametrize("row", [row for row in ROWS if row["measured"] == "draws"], ids=lambda row: str(row["shape"]))
def test_bounds_cover_what_was_measured(row: dict[str, Any]) -> None:
    """Catches a bound for GPUs below an error of an H200, as those for CPUs are."""
    given = {"precision": None if row["precision"] == "None" else row["precision"], "dtype": row["dtype"]}
    with jax.enable_x64(row["dtype"] in ("complex128", "float64")):
        method = "kdft" if "dense" in row["steps"] else "auto"
        plan = _plan(tuple(row["shape"]), kind=row["kind"], inverse=row["inverse"] == "True", method=method, **given)
    assert row["error"] <= plan.error < 1e-4


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_cover_what_the_allocator_gave(name: str) -> None:
    """Catches a peak for GPUs that leaves out cuFFT's workspace or a transposed block, and one of twice the bytes."""
    shape, how = PEAKS[name]
    dtype = np.dtype("float32" if how.get("kind") else "complex64")
    (row,) = (row for row in ROWS if row["measured"] == "peak" and row["array"] == name)
    planned = _plan(shape, dtype=dtype, **how).peak_bytes / (math.prod(shape) * dtype.itemsize)
    assert row["allocator"] <= ROUNDED * planned <= 1.8 * row["allocator"]


def test_default_products_lose_no_more_than_on_other_chips() -> None:
    """Catches dense products of an NVIDIA GPU that by default add float32 one by one, which loses 20 times as much."""
    chosen, named = (_plan((1024,), method="kdft", dtype="complex64", **how) for how in ({}, {"precision": "float32"}))
    assert chosen.error < 7e-7 < 5e-6 < named.error
    assert mf.plan((1024,), topology="mi300x:1", method="kdft", dtype="complex64").error == named.error
