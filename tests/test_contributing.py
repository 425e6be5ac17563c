"""CONTRIBUTING's table of places to extend: the places exist, and additions there work."""

import ast
import dataclasses
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

import meshfft as mf
from meshfft.collectives.all_to_all import Grid
from meshfft.collectives.wires import WIRES, Integers
from meshfft.io import check_output, open_array, write_array
from meshfft.io.source import FORMATS
from meshfft.kernels.base import Engine, Lines, Offer, Site
from meshfft.kernels.engines import ENGINES
from meshfft.machine.chip import Chip
from meshfft.machine.chips import CHIPS
from meshfft.machine.machine import Work

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
