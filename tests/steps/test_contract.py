"""The contract of a step: one that is written in a single class is searched for, priced, run and differentiated."""

import ast
import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import Layout, from_spec, shift
from meshfft.machine.chip import Chip
from meshfft.machine.chips import GENERIC
from meshfft.machine.machine import Machine, Work
from meshfft.numerics.dtypes import Dot
from meshfft.numerics.split_complex import Block, in_complex
from meshfft.operators.matrices import Matrix, Roots
from meshfft.operators.transform import transform_of
from meshfft.steps import Exchange, Problem, Step
from meshfft.steps.base import names
from meshfft.steps.problem import Least, Options
from meshfft.walks.search import METHODS, search

SOURCE = Path(mf.__file__).parent


@dataclasses.dataclass(frozen=True)
class Direct(Step):
    """The DFT of one dimension that is not cut, as the product with its matrix: a toy with everything that a step
    needs."""

    dim: int
    sign: int
    length: int

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Direct"]:
        for dim, matrix in todo.items():
            if isinstance(matrix, Roots) and matrix.has_fft and layout.parts[dim] == 1:
                yield cls(dim, matrix.sign, matrix.length)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        rows = problem.least_rows.items()
        return Least(local={d: problem.bound(Work(matrix_flops=8 * n * problem.points)) for d, n in rows})

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        size = math.prod(layout.block)
        flops, nbytes = 8 * self.length * size, size * itemsize
        return Work(matrix_flops=flops, memory_bytes=2 * nbytes, peak_bytes=3 * nbytes)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        k = np.arange(self.length)
        matrix = np.exp(self.sign * 2j * np.pi * (np.outer(k, k) % self.length) / self.length)
        return in_complex(lambda x: self._times(matrix.astype(x.dtype), x), block)

    def _times(self, matrix: np.ndarray, x: Array) -> Array:
        return jnp.moveaxis(jnp.tensordot(matrix, x, (1, self.dim)), 0, self.dim)

    def transpose(self, layout: Layout) -> "Direct":
        return self

    def conjugate(self) -> "Direct":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "Direct":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"direct {names(self.dims, layout)}"


@pytest.mark.quick(1)
@pytest.mark.parametrize(("shape", "sizes", "spec"), [((6, 10, 5), (2, 2), P("x", "y")), ((7, 9), (4,), P("x"))])
def test_a_step_in_one_class_is_searched_for_and_run(
    shape: tuple[int, ...], sizes: tuple[int, ...], spec: P, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a search, a walk, a plan or a gradient that knows the steps there are, so that a new one is left out."""
    monkeypatch.setitem(METHODS, "direct", (Direct, Exchange))
    where, x, dims = mesh(sizes), noise(shape), tuple(range(len(shape)))
    plan = mf.plan(shape, mesh=where, spec=spec, method="direct")
    assert {type(step) for step in plan.walk.steps} == {Direct, Exchange} and "direct X" in str(plan)
    assert collectives(compile_plan(plan, where)) == plan.collectives
    y = plan(mf.shard(x, where, spec))
    assert error(mf.gather(y), dft(x, dims)) <= 4e-7
    assert error(mf.gather(plan.inverse(y)), x) <= 4e-7
    assert error(mf.gather(plan.adjoint(y)), x * math.prod(shape)) <= 4e-7
    _, pull = jax.vjp(plan, mf.shard(x, where, spec))
    assert error(mf.gather(pull(y)[0]), dft(mf.gather(y), dims)) <= 4e-7


def test_the_search_takes_a_new_step_where_it_is_cheapest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a step that a method lists and the search never prices; and bounds of other steps that hide it."""
    monkeypatch.setitem(METHODS, "auto", (*METHODS["auto"], Direct))
    found = {n: _kinds((n, 256, 256)) for n in (4, 1024)}
    assert Direct in found[4] and Direct not in found[1024]


def _kinds(shape: tuple[int, ...]) -> set[type[Step]]:
    start = from_spec(shape, {"x": 2}, P("x"))
    transform = transform_of((0, 1, 2), shape, None, False)
    problem = Problem(start, transform, Machine(GENERIC), 8, (Dot("float32", 4),), Options(), start)
    return {type(step) for steps in search(problem) for step in steps}


def test_nobody_else_asks_what_a_step_is() -> None:
    """Catches a type of step that the search, the walk, the executor or a plan tests for: they ask the step."""
    kinds = {kind.__name__ for kind in _subclasses(Step)}
    assert {"Exchange", "RingDense", "Interpolate", "Takes"} <= kinds
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "steps":
            continue
        asked = set(itertools.chain(*map(_asked, ast.walk(ast.parse(path.read_text())))))
        assert not asked & kinds, f"{path.relative_to(SOURCE)} tests for {asked & kinds}"


def test_the_contract_stays_small() -> None:
    """Catches a member that all steps must answer for the sake of a few: that belongs to a protocol of theirs."""
    members = {name for name in vars(Step) if not name.startswith("_")} | {"dims"}
    protocols = {"sends", "chunked", "takes", "kernels"}
    assert protocols < members and len(members - protocols) <= 14


def _subclasses(kind: Any) -> set[Any]:
    """All kinds of steps that the package has, protocols among them."""
    every = {kind, *itertools.chain(*map(_subclasses, kind.__subclasses__()))} - {Step, Direct}
    return {one for one in every if one.__module__.startswith("meshfft")}


def _asked(node: ast.AST) -> Iterator[str]:
    """The names of types that a call of isinstance tests for."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        yield from (part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name))
