"""Rows of every kind that a report reads, made by what makes them; small, and no two medians alike."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure.cases import Case
from benchmarks.measure.measured import Row
from benchmarks.paper.rows import Row as PaperRow
from benchmarks.report import Rows, read
from meshfft.inspect.hlo import KINDS
from meshfft.inspect.trace import Breakdown

FACTS: dict[str, Any] = {
    "versions": {"meshfft": "0.1.0", "jax": "0.10.2"},
    "device": "cpu",
    "cpu": "a processor",
    "cores": 2,
    "load_before": 0.5,
    "date": "2026-01-02",
    "commit": "0123456789abcdef",
    "command": "meshfft bench fft 8,8,8 --rounds 3",
}
STEPS = ["fft Y, Z (xla)", "all-to-all x: X -> Y"]
PROFILE: dict[str, Any] = {
    "transform": "transform",
    "shape": [8, 8, 8],
    "dtype": "complex64",
    "mesh": {"x": 8},
    "method": "transpose",
    "order": "natural",
    "steps": STEPS,
    "device": "cpu",
    "made_by": {"meshfft": "0.1.0"},
}


def case(baseline: str, seconds: tuple[float, ...], mesh: tuple[int, ...] = (8,), **more: Any) -> dict[str, Any]:
    """A row of a case of 8 x 8 x 8, or of another."""
    own: dict[str, Any] = (
        {"method": "auto", "order": "natural", "precision": "default"} if baseline == "meshfft" else {}
    )
    facts, shape = {**FACTS, **more.pop("facts", {})}, more.pop("shape", (8, 8, 8))
    laid: dict[str, Any] = {"mesh": mesh} if mesh else {}
    absent = "" if seconds else "not here"
    return Row(
        Case(baseline, shape, **{**laid, **own, **more}), seconds, 1e-7 if seconds else None, absent, facts
    ).to_dict()


def baselines() -> list[dict[str, Any]]:
    """meshfft on two meshes, with three baselines, one of them absent."""
    return [
        case("meshfft", (2.0, 3.0, 4.0)),
        case("meshfft", (1.0, 1.5, 2.0), (2, 4)),
        case("jnp", (2.0, 2.0, 2.0), ()),
        case("scipy", (40.0,), (), method="threads"),
        case("fftw", (), ()),
    ]


def scaling(weak: bool) -> list[dict[str, Any]]:
    """Two ways on 1, 2 and 4 devices."""
    facts = {"command": "meshfft bench scaling 8,8,8" + " --weak" * weak}
    return [
        case(baseline, (first * (1 + many),), (many,), shape=(8 * many if weak else 8, 8, 8), facts=facts)
        for baseline, first in (("meshfft", 1.0), ("jnp-sharded", 3.0))
        for many in (1, 2, 4)
    ]


def profile(known: str = "measured") -> list[dict[str, Any]]:
    """A profile of two steps."""
    seconds, names = np.zeros((2, 3, len(KINDS))), ("start", *(f"{j}. {name}" for j, name in enumerate(STEPS, 1)))
    seconds[:, 1, KINDS.index("fft")], seconds[:, 1, KINDS.index("idle")] = (0.25, 0.75), 0.125
    seconds[:, 2, KINDS.index("all-to-all")] = (1.0, 2.0)
    whole = Breakdown(names, (0, 1), (2.125,), seconds, {"permute": 0.5}).to_dict()
    parts = whole.pop("parts")
    assert isinstance(parts, list)
    return [{"benchmark": "profile", **PROFILE, **whole, "known": known, **part} for part in parts]


def paper() -> list[dict[str, Any]]:
    """Some numbers of the paper's evaluation: a figure, Table I and the breakdown."""
    about: dict[str, Any] = {"family": "FFT", "topology": "v3:2x4", "known": "modelled", "how": "cost model"}
    shared: dict[str, Any] = {**about, "figure": "fft-3d", "shape": (2048,) * 3, "algorithm": "paper's FFT"}
    parts: dict[str, Any] = {"products": 1.0, "memory": 0.5, "all-to-alls": 0.25, "permutes": 0.25}
    found = [PaperRow(cores=n, quantity="total", seconds=16 / n, parts=parts, **shared) for n in (16, 32)]
    table: dict[str, Any] = {**about, "figure": "table-v3", "shape": (8192,) * 3, "cores": 2048, "quantity": "total"}
    best = {**table, "note": "mesh: best of all meshes"}
    found.append(PaperRow(seconds=0.5, algorithm="FFT, natural order", binds="links", **best))
    found.append(PaperRow(seconds=8.3, algorithm="paper", **{**table, "known": "published"}))
    return [row.to_dict() for row in found]


def others() -> list[dict[str, Any]]:
    """Rows of a script that nothing is known of."""
    return [
        {"call": name, "bytes": 1000, "seconds": [0.5, 0.25], **FACTS, "command": "python benchmarks/a.py"}
        for name in "ab"
    ]


def everything() -> list[dict[str, Any]]:
    """Rows of every kind."""
    modelled = [{**row, "known": "modelled", "devices": [0], "by_device": row["by_device"][:1]} for row in profile()]
    return [
        *baselines(),
        *scaling(False),
        *scaling(True),
        *profile(),
        *modelled,
        *paper(),
        *others(),
    ]


def sorted_rows(rows: list[dict[str, Any]], folder: Path) -> Rows:
    """Rows by kind, as they are once written and read."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read([path])
