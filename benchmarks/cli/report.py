"""`python -m benchmarks report`: one HTML page from rows of every kind, and the walk of a plan as a picture.

Whatever can be refused is refused before anything is drawn.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from meshfft.cli import flags, parse
from meshfft.cli.guard import guarded
from meshfft.cli.info import version_of
from meshfft.cli.say import say
from meshfft.errors import check

SUFFIXES = (".html", ".htm")


@guarded
def report(
    rows: Annotated[list[Path] | None, typer.Argument(metavar="ROWS...", help="Files that --rows wrote.")] = None,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The page: .html.")] = Path("report.html"),
    shape: Annotated[
        str | None,
        typer.Option("--plan", metavar="N,N,...", help="Draw the walk of this array; by default of a row's."),
    ] = None,
    mesh: flags.KnownMesh = None,
    spec: flags.Spec = None,
    axes: flags.Axes = None,
    method: flags.KnownMethod = None,
    order: flags.KnownOrder = None,
    kind: flags.KnownKind = None,
    topology: Annotated[str | None, typer.Option(metavar="NAME", help="Plan for this machine: v3:32x32.")] = None,
) -> None:
    """Write one HTML page of rows: scaling, peers, breakdowns, errors, models, and the walk of a plan as a picture.

    The page needs no network and no script, and can be read on a phone. Rows tell by themselves what they are; those of
    no known kind are counted and told. A page that is there is replaced.
    """
    made = _plan(shape, mesh, spec, topology, {"axes": axes, "method": method, "order": order, "kind": kind})
    _check(rows or [], output, shape)
    _write(rows or [], output, made)


def _check(rows: list[Path], output: Path, shape: str | None) -> None:
    """Refuses a page that could not be written, or would be of nothing."""
    from meshfft.extras import need

    check(
        bool(rows) or shape is not None, "neither ROWS nor --plan is given: name a file that --rows wrote, or a shape"
    )
    check(output.suffix in SUFFIXES, f"--output {output} is no page: end it in {' or '.join(SUFFIXES)}")
    folder = output.resolve().parent
    check(folder.is_dir(), f"{folder} is not a folder: make it first, or write elsewhere", FileNotFoundError)
    check(not output.is_dir(), f"{output} is a folder: name a file for the page", IsADirectoryError)
    for module in ("matplotlib", "jinja2"):
        need(module, "a report")


def _plan(
    shape: str | None, mesh: str | None, spec: str | None, topology: str | None, named: dict[str, str | None]
) -> Any:
    """The plan whose walk is to be drawn; None where the rows are to tell one."""
    from meshfft.cli.devices import describe_mesh
    from meshfft.plans.planning import plan

    given = {name: value for name, value in named.items() if value is not None}
    if shape is None:
        flag = next(iter({"mesh": mesh, "spec": spec, "topology": topology} | named), "")
        loose = mesh is not None or spec is not None or topology is not None or bool(given)
        check(not loose, f"flags of a plan, as --{flag}, need its shape: add --plan 256,256,256")
        return None
    check(mesh is not None or topology is not None, "--plan needs a mesh: add --mesh 2,2,2, or a machine by --topology")
    lengths, axes_text = parse.sizes(shape, "--plan", "256,256,256"), given.pop("axes", None)
    options = {name: value for name, value in parse.given(axes_text, **given).items() if value is not None}
    if mesh is None:
        return plan(lengths, topology=topology, **options)
    sizes = parse.mesh(mesh)
    laid: dict[str, Any] = {"mesh": describe_mesh(sizes), "spec": parse.spec(spec, sizes, len(lengths))}
    return plan(lengths, topology=topology, **laid, **options)


def _write(rows: list[Path], output: Path, made: Any) -> None:
    """Reads, draws, writes the page whole, and says what is in it."""
    from meshfft.atomic import replacing

    from ..report.kinds import sort
    from ..report.page import counts, page, unknown_words
    from ..report.reading import read

    lines = read(rows)
    text = page(lines, made, version_of("meshfft"))
    with replacing(output, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    found = sort(lines)
    for words, count in counts(found).items():
        say(f"{count:6d} {words}")
    if left_out := unknown_words(found.unknown):
        say(left_out)
    say(f"Wrote {output}: {len(text.encode()) / 1e3:.0f} kB.")
