"""Tables of plans: in 80 columns, one line a step, whatever the steps and the mesh axes are called."""

import random
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.plans.table import WIDTH, brief, ruled

AXES = ("x", "y", "data", "model", "replica", "tensor_parallel", "pipeline_stage", "rows")
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "transpose"},
    {"method": "cooley-tukey"},
    {"method": "kdft"},
    {"topology": "h100:8"},
)
KINDS = ("fft", "rfft", "dct-2", "dst-1")


def drawn(rng: random.Random) -> mf.Plan | None:
    """A plan of a drawn array and mesh; None if that method has no walk for it."""
    ndim, parts = rng.randint(1, 7), [2, 2, 2] if rng.random() < 0.5 else [2, 4]
    names = rng.sample(AXES, len(parts))
    mesh = AbstractMesh(tuple(parts), tuple(names))
    entries: list[tuple[str, ...]] = [() for _ in range(ndim)]
    for name in names:
        at = rng.randrange(ndim)
        entries[at] = (*entries[at], name)
    shape = tuple(rng.choice((24, 64, 97, 2**12)) for _ in range(ndim))
    how = dict(rng.choice(WAYS), kind=rng.choice(KINDS), order=rng.choice(("natural", "any")))
    try:
        return mf.plan(shape, mesh=mesh, spec=P(*(entry or None for entry in entries)), **how)
    except ValueError:
        return None


@pytest.mark.parametrize("shape", [(64,), (24, 97), (64, 24, 97), (24, 24, 24, 64)])
@pytest.mark.parametrize("way", WAYS[1:4], ids=lambda way: way["method"])
def test_steps_of_every_method_have_one_line(shape: tuple[int, ...], way: dict[str, Any]) -> None:
    """Catches a step on two lines, and a table that long names of mesh axes make too wide."""
    names = ("data_parallel", "model")
    mesh, spec = AbstractMesh((2, 4), names), P(*names) if len(shape) > 1 else P(names)
    try:
        check(mf.plan(shape, mesh=mesh, spec=spec, **way))
    except ValueError as refused:
        assert way["method"] == "transpose" and len(shape) == 1, refused


def check(plan: mf.Plan) -> None:
    """No line is longer than 80 columns, and between the rules each step has one."""
    lines = str(plan).splitlines()
    assert max(map(len, lines)) <= WIDTH, plan
    first, last = (i for i, line in enumerate(lines) if line and set(line) == {"-"})
    assert last - first - 2 == len(plan.walk.steps), plan


@pytest.mark.slow
def test_tables_of_drawn_plans() -> None:
    """Catches any mixture of steps, and seven dimensions, that make a table too wide or break a line."""
    rng, seen = random.Random(0), 0
    while seen < 15:
        if (plan := drawn(rng)) is None:
            continue
        seen += 1
        check(plan)


def test_long_names_of_mesh_axes_are_letters() -> None:
    """Catches a letter that the title does not explain, and two mesh axes with the same one."""
    mesh = AbstractMesh((2, 2, 2), ("tensor", "time", "pipeline_stage"))
    text = str(mf.plan((64, 64, 64), mesh=mesh, spec=P("tensor", "time", "pipeline_stage"), method="kdft"))
    assert "tensor=2 (a), time=2 (b), pipeline_stage=2 (c)" in " ".join(text.split())
    assert "A[X'_a, Y'_b, Z'_c]" in text and "ring X (dense); ring Y (dense); ring Z (dense)" in text


def test_scattered_plans_and_passes_are_as_narrow() -> None:
    """Catches the tables that other plans print with the same function."""
    mesh = AbstractMesh((2, 4), ("data_parallel", "tensor_parallel"))
    passes = mf.passes((64, 64, 64), budget=10**6, mesh=mesh)
    assert max(map(len, str(passes).splitlines())) <= WIDTH
    points = mf.Scattered.turns(np.random.default_rng(0).random((64, 3)) - 0.5)
    on = jax.make_mesh((2, 4), ("data_parallel", "tensor_parallel"))
    plan = mf.scattered_plan((16, 16, 16), points, mesh=on, spec=P("data_parallel", "tensor_parallel"))
    assert max(map(len, str(plan).splitlines())) <= WIDTH


def test_words_are_short_or_cut() -> None:
    """Catches a brief step that drops its kind, and a row that is cut without dots."""
    assert brief("fft Z (vector), all-to-all z: X -> Z, in 8 chunks of Y") == "fft Z, all-to-all"
    assert brief("all-to-all data: X -> Z, model: Y -> Z") == "all-to-all"
    assert brief("all-to-all x: X -> Y, fft Y, Z (xla), and back, in place in 4 chunks of W") == (
        "all-to-all, fft Y, Z, back"
    )
    assert brief("all-to-all y: Y -> X, real fft Y, and all-to-all y: X -> Z, in 2 chunks of X") == (
        "all-to-all, real fft Y, all-to-all"
    )
    assert brief("pad X: 5 -> 8") == "pad X: 5 -> 8"
    lines = ruled([("step", "layout", "n"), ("s" * 70, "l" * 30, "1"), ("all", "", "1")]).splitlines()
    assert max(map(len, lines)) == WIDTH and lines[2].count("...") == 1 and "l" * 30 in lines[2]
