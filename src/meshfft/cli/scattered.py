"""Scattered points from the command line: the flags, files and checks that `nufft` and `reconstruct` share.

    turns          cycles per pixel            radians   per pixel
    field-of-view  cycles per field of view, from -N/2 to N/2 along a dimension of N pixels

Points have the shape (..., d), coordinate j for dimension j of the image. Units are never guessed: numbers that can
hardly be of theirs are refused, or said.
"""

import contextlib
import hashlib
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import numpy as np
import typer
from jax.sharding import Mesh

import meshfft

from ..io import Source, check_disjoint, check_output, open_array
from ..io.formats.record import PACKAGES, versions_of
from ..layout.memory import check_held
from ..nufft.plan import ScatteredPlan
from ..nufft.planning import ORIGINS
from ..nufft.points import Scattered
from ..operators.transform import NORMS
from .info import version_of
from .request import say_unfinished
from .terminal import flags as read
from .terminal import output
from .terminal.output import Progress, Timing, print_json, print_timings, say, warn

UNITS = ("turns", "radians", "field-of-view")
PRECISIONS = ("float32", "float64")
SEVERAL = (".h5", ".hdf5", ".nc", ".zarr")  # kinds of files that hold several arrays
FREE = (
    "source",
    "target",
    "points",
    "as_json",
    "log_json",
    "quiet",
)  # without effect on the result, or compared otherwise
TURN, HALF = 1 + 1e-6, 0.5 + 1e-6
KEY = "meshfft_scattered"  # the attribute of a Zarr array

POINTS = typer.Option(metavar="FILE", help="Coordinates (..., d): .npy, .h5 (dataset traj), .zarr.")
Points = Annotated[Path | None, POINTS]
UNIT = typer.Option(metavar="NAME", help="turns (per pixel), radians or field-of-view.")
Unit = Annotated[str | None, UNIT]
Mesh_ = Annotated[str | None, typer.Option(metavar="P,P,...", help="Devices along mesh axes x, y, z, w; else one.")]
SPEC = typer.Option(metavar="A,A,...", help="Mesh axes that cut each dimension of the image: -,x,y.")
ImageSpec = Annotated[str | None, SPEC]
Shape = Annotated[str | None, typer.Option(metavar="N,N,...", help="Pixels along each dimension: 128,128.")]
Tol = Annotated[float, typer.Option(metavar="X", help="Relative error: 1e-2 to 1e-6, of doubles to 1e-12.")]
Sigma = Annotated[float | None, typer.Option(metavar="X", help="Cells of the fine grid for a pixel: 2 or less.")]
Origin = Annotated[str, typer.Option(metavar="NAME", help="Pixels count from the corner or the centre (N // 2).")]
Precision = Annotated[str | None, typer.Option(metavar="NAME", help="float32 or float64; by default that of IN.")]


class Asked(NamedTuple):
    """The flags of both commands; `more` has those of one."""

    source: Path
    target: Path
    dataset: str | None
    points: Path | None
    points_unit: str | None
    shape: tuple[int, ...] | None
    mesh: dict[str, int]
    spec: str | None
    tol: float
    sigma: float | None
    origin: str
    norm: str | None
    precision: str | None
    overwrite: bool
    as_json: bool
    log_json: bool
    quiet: bool
    more: read.Keywords

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    def deciding(self, points: Scattered, kind: str) -> dict[str, str]:
        """What decides the result, by name."""
        values = {name: value for name, value in self._asdict().items() if name not in FREE}
        named = {f"--{name.replace('_', '-')}": str(value) for name, value in values.items()}
        versions = {name: version_of(name) for name in PACKAGES}
        digest = hashlib.sha256(np.ascontiguousarray(points.in_turns).data).hexdigest()[:16]
        return {"the command": kind, "OUT": str(self.target.resolve()), **named, "--points": digest, **versions}


def asked_for(
    mesh: str | None,
    shape: str | None,
    unit: str | None,
    origin: str,
    norm: str | None,
    precision: str | None,
    scan: bool = False,
) -> read.Keywords:
    """The flags that have to be read, or are one of some names; points of a scan may need no unit."""
    for flag, text, names in (("norm", norm, NORMS), ("precision", precision, PRECISIONS), ("origin", origin, ORIGINS)):
        if text is not None:
            read.check_choice(text, names, f"--{flag}")
    if not (scan and unit is None):
        check_unit_name(unit)
    sizes = None if shape is None else read.read_sizes(shape, "--shape", "128,128")
    return {"mesh": read.read_mesh(mesh or "1"), "shape": sizes, "points_unit": unit}


def check_unit_name(unit: str | None) -> None:
    if unit is None:
        choices = "turns (cycles per pixel), radians (per pixel) or field-of-view (cycles per field of view)"
        raise ValueError(f"no unit of the points is given: give --points-unit {choices}")
    read.check_choice(unit, UNITS, "--points-unit")


def check_files(asked: Asked, kinds: Sequence[str], *others: Path) -> None:
    """Refuses an output that could not be written; says what runs that were killed left beside it."""
    check_output(asked.target, asked.overwrite, 0, kinds)
    for path in (asked.source, *others):
        check_disjoint(path, asked.target)
    say_unfinished(asked.target)


def dataset_in(path: Path, given: str | None, usual: str) -> str | None:
    """Which array of a file to read: the one given, else the one of the usual name, else the only one."""
    if given is None and path.suffix in SEVERAL:
        with contextlib.suppress(ValueError), open_array(path, usual):
            return usual
    return given


def held(path: Path, dataset: str | None, remedy: str) -> np.ndarray:
    """An array that every process holds."""
    with open_array(path, dataset) as source:
        check_held(math.prod(source.shape) * source.dtype.itemsize, str(path), remedy)
        return source[:]


def read_points(asked: Asked, image: tuple[int, ...] | None) -> Scattered:
    """The points; `image` are the sizes of its dimensions, batch before them, where it is known."""
    path, dataset = asked.points, "traj"
    if path is None:
        path = asked.source
        if dataset_in(path, None, dataset) is None:
            raise ValueError(f"{path} has no dataset traj: give the points with --points FILE")
    return points_at(asked, held(path, dataset_in(path, None, dataset), "give fewer points"), path, image)


def points_at(asked: Asked, coords: np.ndarray, path: Path, image: tuple[int, ...] | None = None) -> Scattered:
    """The points of these coordinates, from a file."""
    if 0 in coords.shape:
        raise ValueError(f"{path} has shape {coords.shape}: give at least one point")
    dims = coords.shape[-1]
    sizes = asked.shape if image is None else image[-dims:]
    if sizes is None or len(sizes) != dims:
        given = f"the image {len(sizes or ())} dimensions" if image else f"--shape {len(sizes or ())} sizes"
        raise ValueError(f"{path} has shape {coords.shape} and {given}: give points (..., d) of as many coordinates")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it would say of turns is refused below
            points = _of_unit(coords, asked.points_unit, sizes)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    _check_unit(path, asked.points_unit, points, coords)
    return points


def _of_unit(coords: np.ndarray, unit: str | None, sizes: tuple[int, ...]) -> Scattered:
    if unit == "field-of-view":
        return Scattered.field_of_view(coords, sizes)
    return Scattered.turns(coords) if unit == "turns" else Scattered.radians(coords)


def _check_unit(path: Path, unit: str | None, points: Scattered, coords: np.ndarray) -> None:
    """Refuses points beyond a turn, which another unit explains; says where all are within half of what is no turn."""
    most, turns = float(np.abs(coords).max()), float(np.abs(points.in_turns).max())
    if turns > TURN:
        far = f"{path} reaches {most:.4g} {unit}, {turns:.4g} turns, and a spectrum repeats with every turn"
        raise ValueError(f"{far}: give another --points-unit, or points within one turn")
    later = jax.distributed.is_initialized() and jax.process_index() > 0  # else it is asked before JAX has its devices
    if unit != "turns" and most <= HALF and not later:
        warn(f"meshfft: note: {path} reaches only {most:.4g} {unit}, {turns:.2g} turns: are these turns?")


def computed(asked: Asked, dtype: np.dtype) -> np.dtype:
    """The complex type to compute in, that of the input unless one is asked for; double precision is switched on."""
    double = asked.precision == "float64" or (asked.precision is None and dtype in (np.float64, np.complex128))
    if double:
        jax.config.update("jax_enable_x64", True)
    return np.dtype(np.complex128 if double else np.complex64)


def planned(
    asked: Asked, shape: tuple[int, ...], points: Scattered, mesh: Mesh, dtype: np.dtype, norm: str | None = None
) -> ScatteredPlan:
    """The plan of images of a shape; mesh axes cut the last dimensions, in order, unless --spec says otherwise."""
    batch = len(shape) - points.dims
    spec = read.read_spec(asked.spec, asked.mesh, len(shape) if asked.spec else points.dims)
    if not asked.spec:
        spec = (*(None,) * batch, *spec)
    how: read.Keywords = {"tol": asked.tol, "sigma": asked.sigma, "origin": asked.origin, "norm": norm}
    return meshfft.scattered_plan(shape, points, mesh=mesh, spec=spec, dtype=dtype, **how)


def record(asked: Asked, plan: ScatteredPlan, kind: str) -> dict[str, object]:
    """How a result was made, as plain values."""
    window = plan.ending.window
    return {
        "transform": kind,
        "points": list(plan.points.shape),
        "unit": asked.points_unit,
        "origin": plan.origin,
        "norm": asked.norm or "backward",
        "tol": plan.tol,
        "sigma": window.sigma,
        "width": window.width,
        "fine_grid": list(plan.grid),
        "image": list(plan.in_layout.shape),
        "versions": versions_of(PACKAGES),
    }


def announce(asked: Asked, text: str) -> None:
    """Says a text, in the first process, unless JSON or nothing is asked for."""
    if jax.process_index() == 0 and not (asked.as_json or asked.quiet):
        say(text)


def progress_of(asked: Asked, total: int, in_bytes: bool) -> contextlib.AbstractContextManager[Progress]:
    return output.progress_of(total, in_bytes=in_bytes, log_json=asked.log_json, quiet=asked.quiet)


def finish(asked: Asked, facts: dict[str, object], timings: Sequence[Timing], wrote: str) -> None:
    """Reports, in the first process."""
    if jax.process_index() > 0:
        return
    if asked.as_json:
        points = str(asked.points or asked.source)
        files = {"input": str(asked.source), "output": str(asked.target), "points_file": points}
        print_json({**facts, **files, "measured": [timing._asdict() for timing in timings]})
        return
    if asked.quiet:
        return
    print_timings(timings)
    say(f"Wrote {asked.target}: {wrote}.")


def shape_words(array: Source | jax.Array | meshfft.PaddedArray) -> str:
    return f"{array.dtype} {' x '.join(map(str, array.shape))}"
