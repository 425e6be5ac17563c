"""The house: modules import only from lines above their own, and files stay short."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "meshfft"

# The order of the house. A folder may import only from folders above it, the files in the root above all; within a
# folder a file only from those before the stroke in front of it.
HOUSE = """
.: extras stacks / atomic / kept
numerics: units split_complex / chunks dtypes phases / slices / products / tiles
layout: in_flight layout / memory moves placement / batches elements / padded_numpy / padded_array / storage / reading
machine: chip torus / chips network / machine machine_file / topology
collectives: bins processes words / wires / all_to_all levels ring
operators: matrices / trig inverses / transform / lowest points / conjugate_gradients operands
kernels: bluestein / base factors / xla / real sliced stockham / trig engines
nufft.grid: window / form / binning / balance point_grid / gridding
tpu.lines: radices / memory / along / blocks real / long_columns long_lanes / short
tpu: passes price strips wires / fft gridding / trials / engines
steps: problem / base / sends / exchange halo local_fft ring_dense rows / phase_fft pipeline kept_dense
    / real_fft / shared_memory
walks: cpu_memory / walk / picture search / choice
plans: deferred / deferred_primitive / primitive request table / execute options / iterative_solve
    / inverse_solve / plan / measured / planning
nufft.steps: point_step / grid_steps known_points ring_points / traced_points
nufft: penalties points / problem / post_transform moving / solvers / inverse / plan / planning / functions
nufft.type3: traced / known / functions
functions: calls shard / cosine dense fourier halo helpers / protocols reconstruct
spectral: fields picture / operand walls / convolution elliptic modes multipliers / power
inspect: schedule / hlo rates / aot / trace
io: grid refusals / source / flat record / labels nifti / hdf5 zarr / hdf5_writer ismrmrd / writing
out_of_core: tiles / journal passes transfer / run
cli: output / flags / cluster points / request scattered / measure / plan reconstruct transform / app
"""


def _ranks() -> dict[str, tuple[int, int]]:
    """Rank of every module: its folder's place, and its place in the folder."""
    ranks = dict[str, tuple[int, int]]()
    for folder, line in enumerate(HOUSE.replace("\n    ", " ").strip().split("\n")):
        name, _, rest = line.partition(":")
        ranks[name] = (folder, -1)
        for level, modules in enumerate(rest.split("/")):
            ranks |= {module if name == "." else f"{name}.{module}": (folder, level) for module in modules.split()}
    return ranks


RANK = _ranks()


def _imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in the file."""
    folder, found = path.relative_to(SOURCE).parts[:-1], set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*folder[: len(folder) + 1 - node.level], *(node.module or "").split(".")]
            names = [".".join(filter(None, [*base, alias.name])) for alias in node.names]
            found |= {name if name in RANK else ".".join(filter(None, base)) for name in names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("meshfft"):
            found.add((node.module or "").removeprefix("meshfft").removeprefix("."))
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_only_downwards(path: Path) -> None:
    """Catches an upward import, a module that the house does not list, and a file that outgrew one idea."""
    assert len(path.read_text().splitlines()) <= 300, f"{path.name} is over 300 lines: split it"
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    if path.name != "__init__.py":
        for imported in _imports(path):
            assert RANK[imported] < RANK[name], f"{name} imports {imported}, which is not above it"


def test_doors_open_only_their_own_folder_and_those_above() -> None:
    """Catches a folder's `__init__` that imports from a folder below it."""
    for path in SOURCE.rglob("*/__init__.py"):
        name = ".".join(path.relative_to(SOURCE).parts[:-1])
        for imported in _imports(path):
            assert RANK[imported][0] <= RANK[name][0], f"{name} imports {imported}, which is not above it"


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


def test_a_type_name_is_defined_once() -> None:
    """Catches two classes or aliases of types that share a name, which a reader takes for one."""
    found = Counter[str]()
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] += 1
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
                found.update(t.id for t in node.targets if isinstance(t, ast.Name) and re.match("[A-Z][a-z]", t.id))
    assert [name for name, times in found.items() if times > 1] == []


def test_only_the_command_line_prints_or_reads_the_environment() -> None:
    """Catches an effect below the command line."""
    for path in SOURCE.rglob("*.py"):
        if "cli" in path.parts:
            continue
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not any(isinstance(f, ast.Name) and f.id in ("print", "input") for f in calls), path
        assert "os.environ" not in path.read_text(), path
