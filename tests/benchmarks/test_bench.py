"""The paper's evaluation as modelled rows: floors, marks, tables, figures, and the command."""

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from jax.sharding import AbstractMesh
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.paper.cases import (
    ALGORITHMS,
    BEST,
    CUBES,
    FFT,
    KDFT,
    OWN,
    PAPER_FFT,
    PAPER_KDFT,
    SCALINGS,
    cases,
    slice_of,
    works,
)
from benchmarks.paper.floors import exchange_seconds, floor, ring_seconds
from benchmarks.paper.modelled import known_rows, modelled_rows
from benchmarks.paper.tables import entries, tables
from benchmarks.rows import Values, find, read, write
from benchmarks.tables.figures import draw
from meshfft.layout.layout import meshes
from meshfft.machine.topology import topology
from meshfft.plans import planning
from meshfft.plans.planning import plan

V3 = "v3:32x32"
FEW = tuple(scaling._replace(cores=scaling.cores[:2]) for scaling in SCALINGS)
small = functools.partial(cases, FEW, (1024,))


@pytest.fixture(scope="module")
def rows() -> list[Values]:
    """The rows of two points of every figure, and of one size of Table I: there of 2 of the 15 meshes."""
    with mock.patch.object(planning, "meshes", lambda *asked: [*meshes(*asked)][::-14]):
        return [*known_rows([1024]), *modelled_rows(small())]


def row(**changes: Any) -> Values:
    """A row with some given values."""
    plain: dict[str, Any] = {
        "figure": "table-v3", "family": "KDFT", "shape": [1024] * 3, "cores": 2048, "topology": V3,
        "algorithm": KDFT.name, "quantity": "total", "seconds": 1.0, "known": "modelled", "how": "cost model",
        "note": f"mesh: {BEST}",
    }  # fmt: skip
    return {**plain, **changes}


@pytest.mark.parametrize(
    ("family", "n", "seconds"),
    [
        ("KDFT", 8192, 3.862),
        ("KDFT", 4096, 0.241),
        ("KDFT", 2048, 0.0151),
        ("FFT", 8192, 0.2095),
        ("FFT", 4096, 0.0262),
        ("FFT", 2048, 0.0033),
        ("FFT", 1024, 0.00041),
    ],
)
def test_floors_are_those_worked_out_by_hand(family: str, n: int, seconds: float) -> None:
    """Catches a factor of two in operations, passes, bytes or links."""
    assert max(floor(family, n).values()) == pytest.approx(seconds, rel=0.02)


def test_every_part_of_a_floor() -> None:
    """Catches a part that is wrong and hidden under another one."""
    parts = floor("FFT", 8192)
    assert parts == pytest.approx({"links": 0.2095, "products": 0.1207, "memory": 0.0286}, rel=0.01)
    assert floor("KDFT", 1024)["products"] == pytest.approx(0.00094, rel=0.01)


@pytest.mark.parametrize(
    ("n", "parts", "one_way"),
    [
        (8192, (8, 16, 16), 1.75),
        (8192, (8, 8, 32), 2.17),
        (8192, (4, 4, 128), 6.89),
        (2048, (8, 16, 16), 0.0274),
        (8192, (2, 32, 32), 62 * 2 * 2.1475 / 82),
    ],
)
def test_rings_worked_out_by_hand(n: int, parts: tuple[int, int, int], one_way: float) -> None:
    """Catches links that two cores of a chip share counted once, and hops within a chip counted as links."""
    assert ring_seconds(n, parts, 0) == pytest.approx(one_way / 2, rel=0.01)


def test_an_exchange_is_limited_by_its_bisection() -> None:
    """Catches an all-to-all faster than half of the pod's data over the links in its middle."""
    half = 8192**3 * 8 / 2 / 2  # half of the data is on one side, and half of that must cross
    assert exchange_seconds(8192) == pytest.approx(half / (2 * 32 * 82e9))


@pytest.mark.parametrize("cores", [2**j for j in range(1, 12)])
def test_slices_have_their_cores(cores: int) -> None:
    """Catches a figure whose machine has another number of cores than its abscissa."""
    assert topology(slice_of(cores)).devices == cores


def test_table_one_is_the_paper_s() -> None:
    """Catches a digit of Table I copied wrongly, and a number of the paper marked as ours."""
    found = {(r["shape"][0], r["family"]): r["seconds"] for r in known_rows() if r["known"] == "published"}
    kdft, fft = [12.66, 1.07, 0.120, 0.0220], [8.30, 1.01, 0.118, 0.0148]
    for n, dense, fast in zip((8192, 4096, 2048, 1024), kdft, fft, strict=True):
        assert (found[n, "KDFT"], found[n, "FFT"]) == (dense, fast)
    assert len(found) == 8


@pytest.mark.more
def test_rows_are_complete_and_marked(rows: list[Values]) -> None:
    """Catches a modelled number without its mark, a plan without its mesh, and a row of no machine."""
    for one in rows:
        assert one["seconds"] is not None and one["seconds"] > 0 and one["how"] and one["topology"]
        assert (one["known"] == "published") == (one["algorithm"] == "paper")
        if one["quantity"] == "total" and one["known"] == "modelled":
            assert one["mesh"] and one["options"] and one["steps"] and one["note"] and one["parts"][one["binds"]] > 0
            assert one["bytes_per_core"] and one["fits"] is not None
    assert {one["quantity"] for one in rows} == {"total", "floor", "single permute", "single einsum"}
    assert {one["figure"] for one in rows} == {"kdft-2d", "kdft-3d", "fft-3d", "table-v3"}


@pytest.mark.more
def test_no_model_beats_its_floor(rows: list[Values]) -> None:
    """Catches rates of the model above published ones, and links that carry more than they can."""
    for family in ("KDFT", "FFT"):
        for one in entries(rows, family):
            assert one["meshfft"] is not None and one["floor"] is not None and one["meshfft"] > one["floor"]
            assert one["paper"] is None or one["paper"] > one["meshfft"]


def test_the_paper_s_algorithm_overlaps_nothing(rows: list[Values]) -> None:
    """Catches the paper's loop priced as if its permutes ran under its products."""
    for one in find(rows, quantity="total"):
        if one["algorithm"] in (PAPER_KDFT.name, PAPER_FFT.name):
            assert one["seconds"] == pytest.approx(sum(one["parts"].values()))
            assert "one complex" not in one["how"] and "nothing overlaps" in one["how"]
    shapes = [
        tuple(one["mesh"].values()) for one in find(rows, figure="kdft-3d", algorithm=PAPER_KDFT.name) if one["mesh"]
    ]
    assert set(shapes) == {(4, 4, 2), (4, 4, 4)}


def test_the_paper_s_fft_re_orders_by_einsums() -> None:
    """Catches products of the paper's FFT left out, worked out by hand: they are most of what the compiler finds."""
    laid = AbstractMesh((4, 4, 16), ("x", "y", "z"))
    made = plan((2048,) * 3, mesh=laid, topology="v3:8x16", **PAPER_FFT.options)
    points = 512 * 512 * 128
    added = works(made, PAPER_FFT)[len(made.walk.steps) :]
    assert sorted(one.matrix_flops for one in added) == [8 * n * points for n in (128, 512, 512)]
    einsums = sum(made.machine.seconds(one).products for one in added)
    assert einsums == pytest.approx(0.033, rel=0.1)  # by the cycles of the authors' program for v3:8x16
    assert works(made, FFT) == list(made.walk.works(8, made.machine.chip))


def test_single_operations_make_up_the_third_dimension(rows: list[Values]) -> None:
    """Catches one operation timed as all of them: p einsums and p - 1 permutes make a ring."""
    case = next(c for c in small() if c.figure == "kdft-3d" and c.algorithm == PAPER_KDFT and c.cores == 64)
    step, layout = next(pair for pair in case.plan.walk.pairs if pair[0].dims == (2,))
    spent = case.plan.machine.seconds(step.work(layout, 8, case.plan.machine.chip))
    permute, einsum = (find(rows, quantity=f"single {name}", cores=64)[0]["seconds"] for name in ("permute", "einsum"))
    assert 3 * (permute or 0) == pytest.approx(spent.links) and 4 * (einsum or 0) == pytest.approx(spent.products)


def test_rows_survive_a_file(rows: list[Values], tmp_path: Path) -> None:
    """Catches a value that JSON changes."""
    write(tmp_path / "rows.jsonl", rows)
    again = read(tmp_path / "rows.jsonl")
    assert all(one.items() <= found.items() for one, found in zip(rows, again, strict=True))


def test_the_paper_s_mesh_stands_beside_the_best(rows: list[Values]) -> None:
    """Catches a gain over the paper's way on one mesh given as that on another, and growth the wrong way round."""
    (one,) = entries(rows, "KDFT")
    found = {r["note"]: r["seconds"] for r in find(rows, figure="table-v3", algorithm=PAPER_KDFT.name)}
    assert (one["own"], one["paper"]) == (found[f"mesh: {OWN}"], found[f"mesh: {BEST}"])
    assert one["own"] == pytest.approx(0.0185, rel=0.01)
    (own,) = find(rows, figure="table-v3", algorithm=PAPER_KDFT.name, note=f"mesh: {OWN}")
    (blocks,) = find(rows, figure="table-v3", algorithm=FFT.name, note=f"mesh: {CUBES}")
    assert (tuple(own["mesh"].values()), tuple(blocks["mesh"].values())) == ((4, 4, 128), (8, 16, 16))


def test_tables_of_table_one() -> None:
    """Catches inverted gains, and measurements of the paper shown as a model."""
    of = {"KDFT": (PAPER_KDFT.name, "1.07"), "FFT": (PAPER_FFT.name, "1.01")}
    for family, (name, seconds) in of.items():
        shapes = ((4096, 0.5), (2048, 0.1))
        its = [row(algorithm=name, family=family, shape=[n] * 3, seconds=s, note=f"mesh: {OWN}") for n, s in shapes]
        best = [row(algorithm=name, family=family, shape=[n] * 3, seconds=s / 2) for n, s in shapes]
        way = {"algorithm": (KDFT if family == "KDFT" else FFT).name, "family": family}
        ours = [row(**way, shape=[n] * 3, seconds=s / 5) for n, s in shapes]
        ours += [row(**way, shape=[n] * 3, seconds=s / 4, note=f"mesh: {CUBES}") for n, s in shapes]
        known = [r for r in known_rows([4096, 2048]) if r["family"] == family]
        table, *_ = tables([*its, *best, *ours, *known])
        assert table.lines[0][1:7] == [seconds, "0.500", "0.250", "0.125", "2.0", "0.100"]


def test_tables_of_scaling(rows: list[Values]) -> None:
    """Catches an inverted efficiency."""
    found = {one.title: one.lines for one in tables(rows)}
    for title, lines in found.items():
        if "strong scaling" in title:
            made = [float(line[2]) for line in lines]
            assert lines[0][5] == lines[2][5] == "1.00"
            assert float(lines[1][5]) == pytest.approx(made[0] / 2 / made[1], rel=0.02)


def test_figures_are_drawn(rows: list[Values], tmp_path: Path) -> None:
    """Catches a figure that its rows do not fill, and one drawn of nothing."""
    pytest.importorskip("matplotlib")
    names = [path.name for path in draw({"paper": rows}, tmp_path)]
    assert names == ["kdft-3d.png", "fft-3d.png", "table-v3.png"]
    assert sorted(os.listdir(tmp_path)) == sorted(names)
    assert all((tmp_path / name).read_bytes()[1:4] == b"PNG" for name in names)
    assert draw({"paper": []}, tmp_path) == []


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Values]) -> Iterator[Path]:
    """The command on the small rows, in a private folder and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("benchmarks.paper.command.cases", lambda: iter(()))
    monkeypatch.setattr("benchmarks.paper.command.modelled_rows", lambda made: iter(rows))
    monkeypatch.setattr("benchmarks.paper.command.known_rows", lambda: iter(()))  # which those have
    yield tmp_path


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["paper", *words])


def test_the_command_prints_and_writes(command: Path) -> None:
    """Catches tables wider than a terminal, a number without its mark, and files that are not written."""
    result = call("--rows", "rows.jsonl")
    assert result.exit_code == 0, result.output
    assert all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout
    assert "0.0220" in result.stdout and "modelled" in result.stdout and "…" not in result.stdout
    written = read(command / "rows.jsonl")
    assert all(one["versions"]["jax"] and one["commit"] for one in written)
    assert len(find(written, known="published")) == 2


@pytest.mark.parametrize("words", [("--rows", "no/rows.jsonl"), ("--rows", ".")])
def test_the_command_refuses_before_it_works(command: Path, words: tuple[str, ...]) -> None:
    """Catches minutes of work whose result cannot be kept."""
    result = call(*words)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and not os.listdir(command)


def test_every_algorithm_has_its_own_name() -> None:
    """Catches two algorithms with indistinguishable rows."""
    assert len({way.name for way in ALGORITHMS}) == len(ALGORITHMS) and PAPER_FFT.apart and not FFT.apart
