"""`python -m benchmarks report`: one HTML page from rows of every kind, and the walk of a plan as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from meshfft.atomic import replacing
from meshfft.cli import flags
from meshfft.cli.devices import describe_mesh
from meshfft.cli.output import guarded, say
from meshfft.extras import need, version_of
from meshfft.plans.plan import Plan
from meshfft.plans.planning import plan

from . import measured, modelled
from .page import Section, page
from .reading import Rows, read

SUFFIXES = (".html", ".htm")


@guarded
def report(
    rows: Annotated[list[Path] | None, typer.Argument(metavar="ROWS...", help="Files that --rows wrote.")] = None,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The page: .html.")] = Path("report.html"),
    shape: Annotated[str | None, typer.Option("--plan", metavar="N,N,...", help="Draw the walk of this array.")] = None,
    mesh: flags.Mesh = None,
    spec: flags.Spec = None,
    method: flags.Method = "auto",
    order: flags.Order = "natural",
    kind: flags.Kind = "fft",
) -> None:
    """Write one HTML page of rows: beside baselines, scaling, errors, profiles, models, and the walk of a plan.

    The page needs no network and no script. Rows tell by themselves what they are; those of no known kind are counted.
    A page that is there is replaced.
    """
    if not rows and shape is None:
        raise ValueError("neither ROWS nor --plan is given: name a file of rows, or a shape")
    if output.suffix not in SUFFIXES:
        raise ValueError(f"--output {output} is no page: end it in {' or '.join(SUFFIXES)}")
    folder = output.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: make it first, or write elsewhere")
    need("matplotlib", "a report")
    made = None if shape is None else _plan(shape, mesh, spec, {"method": method, "order": order, "kind": kind})
    found = read(rows or [])
    text = page_of(found, made)
    with replacing(output, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    for name, count in found.counts.items():
        say(f"{count:6d} {name}")
    say(f"{found.left_out}\nWrote {output}: {len(text.encode()) / 1e3:.0f} kB.".lstrip())


def page_of(rows: Rows, made: Plan | None = None) -> str:
    origins = [f"{count} rows: {', '.join(filter(None, origin))}" for origin, count in rows.origins.items()]
    return page(sections_of(rows, made), [line for line in (rows.left_out, *origins) if line], version_of("meshfft"))


def sections_of(rows: Rows, made: Plan | None = None) -> list[Section]:
    walk = [] if made is None else [modelled.walk(made)]
    return [*walk, *measured.sections(rows), *modelled.sections(rows), *measured.others(rows)]


def _plan(shape: str, mesh: str | None, spec: str | None, names: dict[str, str | None]) -> Plan:
    if mesh is None:
        raise ValueError("--plan needs a mesh: add --mesh 2,2,2")
    lengths, sizes = flags.read_sizes(shape, "--plan", "256,256,256"), flags.read_mesh(mesh)
    laid = flags.read_spec(spec, sizes, len(lengths))
    return plan(lengths, mesh=describe_mesh(sizes), spec=laid, **flags.read_options(None, **names))
