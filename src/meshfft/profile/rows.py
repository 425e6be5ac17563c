"""Breakdowns as rows: one JSON object a line for each step and kind, with what was profiled, how, and by what.

Every row tells the whole story of its breakdown, so that rows of many files can be mixed and taken apart again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..atomic import replacing
from ..plans.plan import Plan
from .breakdown import Breakdown, Part

BENCHMARK = "profile"
WHOLE = ("known", "how", "wall_seconds", "runs", "devices", "hidden")  # of the breakdown; the rest is the part's


def about(plan: Plan, device: str, made_by: Mapping[str, str]) -> dict[str, Any]:
    """What was profiled, on which kind of device or topology, by which versions."""
    facts = plan.to_dict()
    kept = {name: facts[name] for name in ("shape", "dtype", "mesh", "method", "order")}
    names = [step.name(layout) for step, layout in plan.walk.pairs]
    return {"transform": facts["kind"], **kept, "steps": names, "device": device, "made_by": dict(made_by)}


def title(facts: Mapping[str, Any]) -> str:
    """What was profiled, in a line."""
    shape, mesh = (" x ".join(map(str, values)) for values in (facts["shape"], facts["mesh"].values()))
    what = f"{facts['transform']} of {shape} {facts['dtype']}"
    return f"{what}, method {facts['method']}, mesh {mesh}, on {facts['device']}"


def to_rows(breakdown: Breakdown, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each step and kind; `facts` are those of `about`."""
    whole = breakdown.to_dict()
    shared = {"benchmark": BENCHMARK, **facts, **{name: whole[name] for name in WHOLE}}
    return [{**shared, **part} for part in whole["parts"]]


def from_rows(rows: Sequence[Mapping[str, Any]]) -> Breakdown:
    """The breakdown that the rows of one profile are of."""
    first = rows[0]
    parts = (Part(row["step"], row["kind"], tuple(row["by_device"]), row.get("cycles")) for row in rows)
    steps, devices, walls = (tuple(first[name]) for name in ("steps", "devices", "runs"))
    return Breakdown(steps, tuple(parts), devices, walls, dict(first["hidden"]), first["known"], first["how"])


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes one JSON object a line, in place of what was there."""
    with replacing(path, overwrite=True) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
