"""The house: modules import only from lines above their own, and files stay short."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "meshfft"

# One line a layer; a module may import only names from the lines above its own.
LAYERS = """
errors release
layout work norms quantities tiers planes limbs zplane extras atomic processes schedule hardware torus
dtypes phase precision chirp groups chips orders hlo ring swap apart spread binned whole inverting picture
holding manual
stockham tiles padding
padded
machine matrices local storage frequencies trig cutting
real trig_local
topology arguments meshes steps bring
points walk moves
entries
search primitive table placement operands
choice
dispatch intake
calls solving resharding
plan api cosine hermitian sampling separable shifts modes
planning aot array_api scipy_backend budget
wavenumbers fields pieces
passes
spectral convolution multiplier
power
replay calibrate
profile
bench
measure files
report
cli
"""
RANK = {name: rank for rank, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def _imports(path: Path) -> set[str]:
    """First-level module names of the package that a file imports, wherever in the file."""
    depth = len(path.relative_to(SOURCE).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("meshfft"):
            found.add((node.module or "").removeprefix("meshfft").removeprefix(".").split(".")[0])
    return found - {""}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_only_downwards(path: Path) -> None:
    """Catches an upward import, a module that no layer lists, and a file that outgrew one idea."""
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert len(path.read_text().splitlines()) <= 300, f"{path.name} is over 300 lines: split it"
    if name != "__init__":
        for imported in _imports(path) - {name}:
            assert RANK[imported] < RANK[name], f"{name} imports {imported}, which is not below it"


def test_no_private_jax_and_no_package_root() -> None:
    """Catches jax._src, and modules that reach for the package root instead of the module they need."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "jax._src" not in text, path
        assert (
            "import meshfft" not in text.replace('"""', "").split("import", 1)[-1]
            or "cli" in path.relative_to(SOURCE).parts
            or ">>>" in text
        ), path


def test_only_the_command_line_prints_or_reads_the_environment() -> None:
    """Catches an effect below the command line."""
    for path in SOURCE.rglob("*.py"):
        if "cli" in path.parts:
            continue
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not any(isinstance(f, ast.Name) and f.id in ("print", "input") for f in calls), path
        assert "os.environ" not in path.read_text(), path
