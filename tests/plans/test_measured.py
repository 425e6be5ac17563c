"""effort="measure": the ranks of a search, the choice among them, and where it is kept."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from unittest import mock

import jax
import numpy as np
import pytest
from addresses import free_address
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import cheapest, error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import Layout, from_spec
from meshfft.machine.chips import CPU
from meshfft.machine.machine import Machine
from meshfft.numerics.dtypes import Dot
from meshfft.operators.transform import transform_of
from meshfft.plans import measured
from meshfft.plans.options import records_of
from meshfft.plans.plan import Plan
from meshfft.plans.planning import Placement, candidates
from meshfft.steps.base import Step
from meshfft.steps.problem import Options, Problem
from meshfft.walks.search import offered, search

Priced = tuple[float, tuple[Step, ...]]


def _problem(shape: tuple[int, ...], sizes: dict[str, int], goal: bool) -> Problem:
    start = from_spec(shape, sizes, P(*sizes))
    transform = transform_of(tuple(range(len(shape))), shape, None, False)
    return Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(), start if goal else None)


def _every(
    problem: Problem, layout: Layout, done: frozenset[int], most: float, before: tuple[Any, ...]
) -> Iterator[float]:
    """The prices of all walks below `most` that visit no node twice, by brute force."""
    todo = problem.todo(done)
    if not todo and (layout == problem.goal if problem.goal else layout.tail):
        yield 0.0
        return
    for step in offered(problem, layout, todo):
        node = step.after(layout), done.union(step.dims)
        price = problem.machine.price(step.work(layout, problem.bytes_at(todo), problem.machine.chip))
        if price <= most and node not in before:
            yield from (price + rest for rest in _every(problem, *node, most - price, (*before, node)))


@pytest.mark.parametrize(("shape", "sizes"), [((64, 48), {"x": 2}), ((12, 35), {"x": 3}), ((16, 8, 12), {"x": 2})])
def test_ranks_are_the_cheapest_walks(shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Catches a walk that is lost as a second way to some node, one that runs in a circle, and two alike."""
    problem = _problem(shape, sizes, goal=True)
    found = [sum(_prices(problem, steps)) for steps in search(problem, 5)]
    assert found[0] == pytest.approx(cheapest(problem), rel=1e-9) and len(found) == 5
    node = problem.start, frozenset[int]()
    every = sorted(_every(problem, *node, found[-1] * 1.001, (node,)))
    apart = [one for one, other in zip(every, [0.0, *every], strict=False) if one > other * (1 + 1e-9)]
    assert found == pytest.approx(apart[:5], rel=1e-9)


def _prices(problem: Problem, steps: Sequence[Step]) -> Iterator[float]:
    layout, done = problem.start, frozenset[int]()
    for step in steps:
        nbytes = problem.bytes_at(problem.todo(done))
        yield problem.machine.price(step.work(layout, nbytes, problem.machine.chip))
        layout, done = step.after(layout), done.union(step.dims)


@pytest.mark.more
@pytest.mark.parametrize(
    ("shape", "how"),
    [((16, 12, 10), {}), ((14, 9), {"kind": "rfft", "order": "any"}), ((12, 8), {"kind": "dct-2"})],
    ids=str,
)
def test_every_candidate_is_the_transform(shape: tuple[int, ...], how: dict[str, Any]) -> None:
    """Catches a walk of a higher rank that computes something else, gathers, or is given twice."""
    where, x = mesh((2, 2)), noise(shape, "complex64" if not how.get("kind") else "float32")
    plans = candidates(Placement(shape, where, P("x", "y")), *records_of(how))
    assert len({plan.walk for plan in plans}) > 2
    truth = plans[0]
    for plan in plans:
        y = plan(x)
        assert error(y, np.asarray(truth(x))) < 1e-6
        assert error(plan.inverse(y), x) < 1e-6
        if not how.get("order"):
            assert plan.out_layout.spec == truth.out_layout.spec
    assert error(truth(x), {None: np.fft.fftn, "rfft": np.fft.rfftn}.get(how.get("kind"), _dct)(x)) < 1e-6


def _dct(x: np.ndarray) -> np.ndarray:
    for axis, n in enumerate(x.shape):
        matrix = 2 * np.cos(np.pi * np.outer(np.arange(n), np.arange(n) + 0.5) / n)
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    return x


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of compiled programs, and a process that has tried nothing."""
    before = {name: jax.config.values[name] for name in ("jax_compilation_cache_dir", "jax_enable_compilation_cache")}
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_enable_compilation_cache", True)
    measured._SECONDS.clear()
    yield tmp_path / measured.FOLDER
    measured._SECONDS.clear()
    for name, value in before.items():
        jax.config.update(name, value)


def _timed(seconds: Sequence[float]) -> Any:
    return mock.patch.object(measured, "_timed", side_effect=lambda plans, tell: list(seconds[: len(plans)]))


def _plan(**how: Any) -> Plan:
    return mf.plan((16, 12), mesh=mesh((2, 2)), **how)


def test_the_fastest_is_taken_and_kept(folder: Path) -> None:
    """Catches the first plan in place of the fastest, trials made again, a damaged file taken for a choice, and the
    choice of another transform.
    """
    seconds = (0.3, 0.2, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    with _timed(seconds) as trials:
        best = _plan(effort="measure")
        assert best.walk == candidates(Placement((16, 12), mesh((2, 2))), *records_of({}))[2].walk
        assert best.trials == (0.1, 0.3, 0.2, *seconds[3:]) and best.to_dict()["trials_seconds"] == [*best.trials]
        assert "0.1 s measured, the fastest of 10 walks" in " ".join(str(best).split())
        assert mf.plan(cast(Any, iter((16, 12))), mesh=mesh((2, 2)), spec=["x", "y"], effort="measure") == best
        assert trials.call_count == 1
        measured._SECONDS.clear()  # as in a later process
        assert _plan(effort="measure") == best and trials.call_count == 1
        (file,) = folder.glob("*.json")
        for damaged in ("{", json.dumps({"seconds": [0.1]}), json.dumps({"seconds": ["a"] * 10})):
            file.write_text(damaged)
            measured._SECONDS.clear()
            assert _plan(effort="measure") == best
        assert trials.call_count == 4
        inverse = candidates(Placement((16, 12), mesh((2, 2))), *records_of({"inverse": True}))
        assert inverse[2].name == best.name
        _plan(effort="measure", inverse=True)  # another transform, whose walks have the same names
        assert trials.call_count == 5
    assert _plan().trials == () and all(not stage.trials for stage in best.stages)


@pytest.mark.more
def test_no_run_follows_one_of_another_walk(folder: Path) -> None:
    """Catches a walk that pays for the memory that another left: XLA frees it while the next program runs."""
    ran, run = list[Plan](), cast(Any, Plan.__call__)

    def noted(plan: Plan, y: Any, **how: Any) -> Any:
        ran.append(plan)
        return run(plan, y, **how)

    with mock.patch.object(Plan, "__call__", noted), mock.patch.object(measured, "MOST_ROUNDS", 2):
        mf.plan((15, 9), mesh=mesh((2, 2)), effort="measure")
    walks = len({*ran})
    assert walks > 1 and ran[walks:] == [plan for plan in ran[:walks] for _ in range(2)] * 2


@pytest.mark.parametrize("brief, rounds", [(0.0, 5), (60.0, 7)])
def test_short_plans_run_more_often(brief: float, rounds: int) -> None:
    """Catches five runs of a millisecond, whose median scatters by more than walks differ."""
    first = mf.plan((15, 9), mesh=mesh((2, 2)))
    with (
        mock.patch.object(measured, "_run", return_value=1e-3) as runs,
        mock.patch.multiple(measured, BRIEF=brief, MOST_ROUNDS=7),
    ):
        assert measured._timed([first], lambda part, done: None) == [1e-3]
    assert runs.call_count == 1 + 2 * rounds


@pytest.mark.more
def test_walks_are_run(folder: Path) -> None:
    """Catches seconds that are not of the walks, a choice of one that fails, and no word if all fail."""
    x, run = noise((15, 11)), cast(Any, Plan.__call__)
    first = mf.plan(x.shape, mesh=mesh((2, 2)))

    def failing(plan: Plan, y: Any, **how: Any) -> Any:
        if plan.walk == first.walk:
            raise RuntimeError("no memory")
        return run(plan, y, **how)

    with mock.patch.object(Plan, "__call__", failing), mock.patch.object(measured, "MOST_ROUNDS", 2):
        best = mf.plan(x.shape, mesh=mesh((2, 2)), effort="measure")
    values = best.to_dict()["trials_seconds"]
    assert (
        isinstance(values, list)
        and values.count(None) == 1
        and f"fastest of {len(values) - 1} walks" in " ".join(str(best).split())
    )
    with mock.patch.object(measured, "LIMIT", 0.0):  # there is time for the first alone
        assert mf.plan(x.shape, mesh=mesh((2, 2)), kind="dct-3", effort="measure").trials[1:] == (float("inf"),) * 9
    assert best.walk != first.walk and max(best.trials) == float("inf") > best.trials[0] == min(best.trials) > 0
    assert error(best(x), np.fft.fftn(x)) < 1e-6 and best.out_layout == first.out_layout
    compiled = jax.jit(best).lower(mf.shard(x, mesh((2, 2)), P("x", "y"))).compile()
    assert not {"all-gather", "all-reduce"} & set(collectives(compiled))
    measured._SECONDS.clear()
    with mock.patch.object(Plan, "__call__", side_effect=RuntimeError("no memory")), pytest.raises(RuntimeError):
        mf.plan(x.shape, mesh=mesh((2, 2)), kind="dct-2", effort="measure")


def test_what_cannot_be_run_is_refused() -> None:
    """Catches trials of a machine that is not there, and of tracers."""
    with pytest.raises(ValueError, match="'try'"):
        _plan(effort="try")
    with pytest.raises(ValueError, match="has no devices: give a jax"):
        mf.plan((8, 8), mesh=AbstractMesh((2,), ("x",)), effort="measure")
    with pytest.raises(ValueError, match="v3:2x2 names devices that are not here"):
        mf.plan((8, 8), topology="v3:2x2", effort="measure")
    with pytest.raises(ValueError, match="which are cpu, and topology= names v3"):
        mf.plan((8, 8), mesh=mesh((2, 2)), topology="v3:2x1", effort="measure")
    with pytest.raises(ValueError, match="make the plan outside"):
        jax.jit(lambda x: _plan(effort="measure")(x))(noise((16, 12)))
    with pytest.raises(ValueError, match="functions always take the model's choice"):
        mf.out_spec((8, 8), effort="measure")


PROGRAM = """
import sys, jax, numpy as np
number = int(sys.argv[1])
jax.config.update("jax_num_cpu_devices", 1)
jax.distributed.initialize(sys.argv[2], 2, number)
import meshfft as mf
from meshfft.plans import measured
if sys.argv[3] == "told":
    measured._timed = lambda plans, tell: ([[0.3, 0.1], [0.1, 0.3]][number] + [0.4] * len(plans))[: len(plans)]
mesh = jax.make_mesh((2,), ("x",))
plan = mf.plan((32, 24), mesh=mesh, effort="measure")
x = np.random.default_rng(0).standard_normal((32, 24)).astype("complex64")
y = plan(mf.shard(x, mesh, jax.P("x")))
near = all(np.allclose(one.data, np.fft.fftn(x)[one.index], atol=1e-3) for one in y.addressable_shards)
print(near, len(plan.trials), plan.name, plan.trials)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["told", "run"])
def test_processes_take_the_choice_of_the_first(how: str) -> None:
    """Catches processes that choose by their own clocks, and then wait for each other in different programs."""
    address = free_address()
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    command = [sys.executable, "-c", PROGRAM]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    runs = [subprocess.Popen([*command, str(j), address, how], **pipes) for j in (0, 1)]
    said = [run.communicate(timeout=240) for run in runs]
    first, second = (out.strip().splitlines()[-1:] for out, _ in said)  # after the network library's lines
    assert first == second and first[0].startswith("True "), said
    assert how == "run" or "(0.1, 0.3, 0.4" in first[0]
