"""Pages that are made, not written: the start from README, tutorials from programs, reference from names, rows."""

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docstrings import rewritten

ROOT = Path(__file__).parent.parent.parent
MORE = {  # what people import besides the public names
    "meshfft.io": ("open_array", "write_array", "Record", "record_of", "inverse_options"),
    "meshfft.out_of_core": ("run_passes", "chunk_of"),
    "meshfft.nufft.solvers": ("Problem", "of_unit", "descent", "penalised", "relative"),
}


IMPORTS = "import jax, jax.numpy as jnp, numpy as np, meshfft as mf"


class Group(NamedTuple):
    """A page of the reference: its file, title, subject, and the modules that define its names."""

    page: str
    title: str
    about: str
    modules: tuple[str, ...]


GROUPS = (
    Group("fourier", "Fourier transforms", "NumPy's and SciPy's names and arguments.", ("functions.fourier",)),
    Group("cosine", "Cosine and sine transforms", "SciPy's names, types I to IV.", ("functions.cosine",)),
    Group(
        "plans",
        "Plans and arrays",
        "A transform chosen before any array exists, and arrays that a mesh does not divide.",
        ("plans.plan", "plans.planning", "functions.shard", "functions.halo", "layout.padded_array"),
    ),
    Group(
        "dense",
        "Any points, any matrix",
        "Dense products for each dimension: the paper's KDFT, its inverse, and your own operators.",
        ("functions.dense", "operators.points", "operators.operands", "plans.inverse_solve", "collectives.ring"),
    ),
    Group(
        "scattered",
        "Scattered points",
        "The nonuniform FFT, types 1, 2 and 3, sharded on both sides.",
        ("nufft.functions", "nufft.type3.functions", "functions.reconstruct", "nufft.points", "nufft.plan"),
    ),
    Group(
        "spectral",
        "Spectral methods",
        "What solvers do with spectra.",
        (
            *("spectral.convolution", "spectral.elliptic", "spectral.fields", "spectral.modes"),
            *("spectral.multipliers", "spectral.power"),
        ),
    ),
    Group("frequencies", "Frequencies and shifts", "", ("functions.helpers",)),
    Group("cache", "Kept programs", "Compiled programs on the disk.", ("kept",)),
    Group("passes", "Larger than memory", "Passes over the disk.", ("out_of_core.passes", "out_of_core.tiles")),
    Group(
        "libraries",
        "Under other libraries' names",
        "`jnp.fft`, `scipy.fft` and the array API standard.",
        ("functions.protocols",),
    ),
)


def start() -> str:
    """The first page: the README without its part for developers."""
    text = (ROOT / "README.md").read_text()
    return _relinked(text[: text.index("\n## Test")], {"docs/": "", "examples/README.md": "tutorials/index.md"})


def tutorials() -> Iterator[tuple[str, str]]:
    """The gallery, and a page for each of its programs: its docstring, its picture, and the program."""
    links = {"../docs/": "../", "mri/README.md": "mri.md"}
    programs = sorted((ROOT / "examples").glob("*.py"))
    links |= {f"{path.stem}.py": f"{path.stem}.md" for path in programs}
    yield (
        "tutorials/index.md",
        _relinked((ROOT / "examples/README.md").read_text(), links).replace("# Gallery", "# Tutorials", 1),
    )
    yield "tutorials/mri.md", _relinked((ROOT / "examples/mri/README.md").read_text(), {"../../docs/": "../"})
    for path in programs:
        yield f"tutorials/{path.stem}.md", _tutorial(path)


def _tutorial(path: Path) -> str:
    source = path.read_text()
    text = ast.get_docstring(ast.parse(source)) or ""
    title, rest = text.split("\n", 1)
    code = source.split('"""', 2)[2].strip()
    picture = f"figures/{path.stem}.png"
    shown = f"![{title}](../{picture})\n\n" if (ROOT / "docs" / picture).exists() else ""
    rest = rewritten(rest)
    program = f"## The program\n\n`examples/{path.name}`:\n\n```python\n{code}\n```\n"
    return f"# {title.rstrip('.')}\n\n{shown}{rest.strip()}\n\n{program}"


def names_of(group: Group) -> list[str]:
    """The public names that a page of the reference has, in the order of its modules."""
    package = importlib.import_module("meshfft")
    homes = {name: importlib.import_module(f"meshfft.{module}") for module in group.modules for name in [module]}
    found = []
    for home in homes.values():
        own = [name for name in package.__all__ if _home(package, name) == home.__name__]
        lines = Path(home.__file__ or "").read_text()
        found += sorted(own, key=lambda name: re.search(rf"^(def|class) {name}\b|^{name}\b", lines, re.M).start())  # type: ignore[union-attr]
    return found


def _home(package: object, name: str) -> str:
    """The module that defines a public name."""
    value = getattr(package, name)
    return str(getattr(value, "__module__", type(value).__module__))


def reference() -> Iterator[tuple[str, str]]:
    """A page for each group of public names, and one that lists them."""
    lines = [
        f"# Reference\n\nEvery public name. Examples, which run as tests, begin with\n\n```python\n{IMPORTS}\n```\n"
    ]
    made = {}
    for group in GROUPS:
        names = names_of(group)
        links = ", ".join(f"[`{name}`]({group.page}.md#meshfft.{name})" for name in names)
        lines.append(f"**[{group.title}]({group.page}.md)**: {links}\n")
        blocks = "\n\n".join(f"::: meshfft.{name}" for name in names)
        made[f"reference/{group.page}.md"] = f"# {group.title}\n\n{group.about}\n\n{blocks}\n"
    for module, names in MORE.items():
        page, links = module.rpartition(".")[2], ", ".join(f"`{name}`" for name in names)
        lines.append(f"**[{module}]({page}.md)**: {links}\n")
        blocks = "\n\n".join(f"::: {module}.{name}" for name in names)
        made[f"reference/{page}.md"] = (
            f"# {module}\n\nImported by itself: `from {module} import {', '.join(names)}`.\n\n{blocks}\n"
        )
    commands = "`meshfft transform`, `plan`, `profile`, `measure`, `nufft`, `reconstruct`, `info`"
    lines.append(f"**[Command line](cli.md)**: {commands}\n")
    yield "reference/index.md", "\n".join(lines)
    yield from made.items()
    yield "reference/cli.md", _command_line()


def _command_line() -> str:
    """The commands with their arguments, from what `--help` has."""
    app, typer = importlib.import_module("meshfft.cli.app").app, importlib.import_module("typer.main")
    commands = typer.get_command(app).commands
    parts = [f"## meshfft {name}\n\n{one.help}\n\n{_parameters(one.params)}\n" for name, one in commands.items()]
    about = (
        "Exit code 0: done; 1: standard output was closed before all was printed; 2: bad input, said in one line; 3: "
        "another process refused; 130: interrupted. `meshfft COMMAND --help` has the same tables."
    )
    return f"# Command line\n\n{about}\n\n" + "\n".join(parts)


def _parameters(parameters: Iterable[Any]) -> str:
    """Arguments and options as a table."""
    rows = ["| | | |", "|---|---|---|"]
    for one in parameters:
        names = [name for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]
        value = "" if getattr(one, "is_flag", False) else one.metavar or ""
        default = f" Default: {one.default}." if isinstance(one.default, str | int | float) and one.default else ""
        if "--help" not in names:
            about = re.sub(r"[|*]", r"\\\g<0>", one.help or "") + (default if "efault" not in (one.help or "") else "")
            rows.append(f"| `{', '.join(names) or value}` | {f'`{value}`' if names and value else ''} | {about} |")
    return "\n".join(rows)


def measurements() -> Iterator[tuple[str, str]]:
    """The tables of all rows there are: a page of measured ones, and one of modelled ones."""
    report = importlib.import_module("benchmarks.report")
    made = {}
    lines = ["# Rows\n\nEvery number in these pages is a row of `benchmarks/results`; each names its command.\n"]
    for known, tables in report.sections():
        title = f"{known.capitalize()} rows"
        lines.append(f"- [{title}]({known}.md)")
        text = "\n".join(map(report.html, tables))
        made[f"rows/{known}.md"] = f"---\nsearch:\n  exclude: true\n---\n\n# {title}\n\n{text}\n"
    yield "rows/index.md", "\n".join(lines) + "\n"
    yield from made.items()


def _relinked(text: str, changes: dict[str, str]) -> str:
    """Markdown with the beginnings of its links changed."""
    for old, new in changes.items():
        text = text.replace(f"]({old}", f"]({new}")
    return text
