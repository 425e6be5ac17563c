"""CONTRIBUTING's table of places to extend: the places exist, and additions there work."""

import ast
import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise
from scattered_sums import coordinates, direct

import meshfft as mf
from meshfft.collectives.all_to_all import Grid
from meshfft.collectives.wires import WIRES, Integers
from meshfft.io import check_output, open_array, write_array
from meshfft.io.source import FORMATS
from meshfft.kernels.base import Engine, Lines, Offer, Site
from meshfft.kernels.engines import ENGINES
from meshfft.layout.layout import Layout
from meshfft.machine.chip import Chip
from meshfft.machine.chips import CHIPS
from meshfft.machine.machine import Work
from meshfft.nufft.grid import window
from meshfft.nufft.grid.window import WindowProfile
from meshfft.numerics.split_complex import Block, in_complex, join
from meshfft.operators.matrices import Matrix, Roots
from meshfft.steps import Exchange, Problem
from meshfft.steps.base import MatrixStep, names
from meshfft.steps.problem import Least
from meshfft.walks.search import METHODS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "meshfft"


def _defined(path: Path) -> set[str]:
    """Names that a module defines."""
    names = set[str]()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_every_place_of_the_table_is_there() -> None:
    """Catches a file or a registry that moved, or has another name, since the table was written."""
    table = re.findall(r"^\| an? .*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert len(table) == 6
    for row in table:
        places = re.findall(r"`(\w+)` \(`([\w/]+\.py)`\)", row)
        assert places, row
        for name, path in places:
            assert name in _defined(SOURCE / path), f"{path} does not define {name}"


@dataclasses.dataclass(frozen=True)
class Product(MatrixStep[Roots]):
    """The transform of an uncut dimension by a product with its matrix, which claims to cost nothing."""

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Product"]:
        for dim, one in todo.items():
            if isinstance(one, Roots) and layout.parts[dim] == 1:
                yield cls((dim,), one, (one.rows,))

    @classmethod
    def least(cls, problem: Problem) -> Least:
        return Least(local=dict.fromkeys(problem.todo(), 0.0))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        return Work(peak_bytes=2 * itemsize * math.prod(layout.block))

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        n = jnp.arange(self.matrix.length)
        matrix = join(self.matrix.block(None, n, n, np.float32))
        return in_complex(lambda x: jnp.moveaxis(jnp.tensordot(matrix, x, (1, self.dim)), 0, self.dim), block)

    def name(self, layout: Layout) -> str:
        return f"product {names(self.dims, layout)}"


def test_a_step_is_a_file_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a search, a walk, an adjoint or a table that knows the steps there are."""
    monkeypatch.setitem(METHODS, "transpose", (*METHODS["transpose"], Product))
    x, where = noise((21, 38)), mesh((2,))  # sizes that no other test plans
    plan = mf.plan(x.shape, mesh=where, spec=P("x"), method="transpose")
    assert {type(step) for step in plan.walk.steps} == {Exchange, Product} and "product X" in str(plan)
    y = plan(mf.shard(x, where, P("x")))
    assert error(mf.gather(y), dft(x, (0, 1))) <= 1e-5
    assert error(mf.gather(plan.inverse(y)), x) <= 1e-5 and error(mf.gather(plan.adjoint(y)), x * x.size) <= 1e-5


def semicircle(bandwidth: float) -> WindowProfile:
    """The exponential of a semicircle."""
    return lambda z: np.where(np.abs(z) < 1, np.exp(bandwidth * (np.sqrt(np.maximum(1 - z * z, 0)) - 1)), 0.0)


def test_a_window_is_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a window that is written twice, and a transform of it, or an error, that assumes ours."""
    x, k = noise((18, 14)), coordinates((50,), 2)
    found, truth = [], direct(x, k, (0, 1))
    for tol in (2.9e-4, 2.8e-4):  # two plans
        window.fitted.cache_clear()
        found.append(np.asarray(mf.nufftn(x, mf.Scattered.turns(k), tol=tol)))
        assert 1e-6 < error(found[-1], truth) <= tol
        monkeypatch.setattr(window, "prolate", semicircle)
    window.fitted.cache_clear()
    assert error(*found) > 1e-5


class Coarse(Integers):
    """A wire of 12 bits in words of 16."""

    name, bits, error = "int12", 12, 8 * 2.0**-12


def test_a_wire_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a branch on the name of a wire, which a new one would miss, and kernels of TPUs taken for granted."""
    monkeypatch.setitem(WIRES, "int12", Coarse)
    x, where = noise((24, 40)), mesh((8,))
    plan = mf.plan(x.shape, mesh=where, spec=P("x"), wire="int12")
    y = plan(mf.shard(x, where, P("x")))
    assert "int12 on the wire" in str(plan) and 1e-6 < error(mf.gather(y), dft(x, (0, 1))) <= plan.error
    pod = mf.plan((512, 512, 512), mesh=AbstractMesh((4,), ("x",)), spec=P("x"), topology="v5e:2x2", wire="int12")
    assert pod.seconds and pod.options.wire == "int12"


@dataclasses.dataclass(frozen=True)
class Direct(Engine[Array]):
    """An engine by the sum itself, which claims to cost nothing."""

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        yield cls(), lines.dims[:1]

    @property
    def name(self) -> str:
        return "direct"

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        return Work(peak_bytes=3 * lines.points * itemsize)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        for dim in dims:
            matrix = np.exp(2j * np.pi * sign * np.outer(*[np.arange(block.shape[dim])] * 2) / block.shape[dim])
            block = jnp.moveaxis(jnp.tensordot(matrix.astype(block.dtype), block, (1, dim)), 0, dim)
        return block


def test_an_engine_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a search, a step or a walk that knows the engines there are."""
    monkeypatch.setattr("meshfft.kernels.engines.ENGINES", [Direct, *ENGINES])
    xla = mf.plan((19, 37), mesh=mesh((2,)), spec=P("x"), method="transpose", engine="xla")
    assert "(direct)" not in str(xla), "engine='xla' keeps to XLA's own"
    x, where = noise((19, 37)), mesh((2,))  # sizes that no other test plans
    plan = mf.plan(x.shape, mesh=where, spec=P("x"), method="transpose")
    assert "(direct)" in str(plan) and error(mf.gather(plan(mf.shard(x, where, P("x")))), dft(x, (0, 1))) <= 1e-5


def test_a_chip_is_a_row_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a chip whose name is looked for anywhere but in the table."""
    monkeypatch.setitem(CHIPS, "toy", dataclasses.replace(CHIPS["h100"], name="toy", kind="Toy"))
    plan = mf.plan((64, 64), mesh=AbstractMesh((8,), ("x",)), spec=P("x"), topology="toy:8")
    assert "planned for toy devices" in str(plan) and plan.seconds is not None


def test_a_file_format_is_a_file_and_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches a list of suffixes that does not follow the registry, and a type refused only when it is written."""
    monkeypatch.setitem(FORMATS, ".toy", FORMATS[".npy"]._replace(title="Toy", lacks="F"))
    x = mf.shard(noise((24, 40)), mesh((8,)), P("x"))
    with pytest.raises(ValueError, match="complex64, which Toy has not"):
        write_array(tmp_path / "x.toy", x)
    assert list(tmp_path.iterdir()) == []
    write_array(tmp_path / "x.toy", x.real)
    with open_array(tmp_path / "x.toy") as source:
        np.testing.assert_array_equal(source[...], np.asarray(x.real))
    with pytest.raises(ValueError, match=r"end it in .*\.toy"):
        check_output(tmp_path / "x.tif", False, 0)
