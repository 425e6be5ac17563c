"""The flags that several commands share, and their values; a wrong value is refused with an example.

A flag that a file may replace is None if not given.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import jax
import typer

from ..collectives.levels import Wires
from ..collectives.wires import WIRES
from ..io.source import FORMATS, results
from ..layout.layout import Spec
from ..numerics.dtypes import PRECISIONS, is_wide
from ..operators.transform import KINDS, NORMS
from ..steps.problem import ENGINE_OPTIONS, RINGS
from ..walks.choice import ORDERS
from ..walks.search import METHODS
from .output import PartTime, Progress, bar, log, print_json, print_timings, say

DTYPES = ("complex64", "complex128", "float32", "float64")
CHOICES = {
    "method": tuple(METHODS),
    "order": ORDERS,
    "norm": NORMS,
    "kind": KINDS,
    "precision": PRECISIONS,
    "dtype": DTYPES,
    "ring": RINGS,
    "engine": ENGINE_OPTIONS,
    "wire": tuple(WIRES),
}
MESH_AXES = ("x", "y", "z", "w")
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
MOST_DIMENSIONS, MOST_SIZE, MOST_COUNT = 32, 2**60, 10**6
DIGITS = r"[0-9]{1,19}"
ERROR = r"(?=\.?[0-9])[0-9]{0,19}(\.[0-9]{0,19})?([eE][+-]?[0-9]{1,3})?"

Keywords = dict[str, Any]
Name = TypeVar("Name", bound=str | None)


def alternatives(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


def option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text)


def switch(name: str, text: str) -> Any:
    return typer.Option(name, help=text)


MeshFlag = Annotated[str | None, option("P,P,...", "Devices along mesh axes x, y, z, w: 2,2,2.")]
SpecFlag = Annotated[
    str | None, option("A,A,...", "Mesh axes that cut each dimension: x,y,z; x+y for two, - for none.")
]
AxesFlag = Annotated[str | None, option("D,D,...", "Dimensions to transform: 0,1,2. By default all.")]
MethodFlag = Annotated[str | None, option("NAME", f"{', '.join(METHODS)}.")]
OrderFlag = Annotated[str | None, option("NAME", "natural: laid out as the input; any: the cheapest way.")]
NormFlag = Annotated[str | None, option("NAME", f"{', '.join(NORMS)}: as in NumPy.")]
KindFlag = Annotated[str | None, option("NAME", "fft, rfft for real arrays, hfft, dct-1 to dct-4, dst-1 to dst-4.")]
PrecisionFlag = Annotated[str | None, option("NAME", f"{', '.join(PRECISIONS)}, or an error to stay within: 1e-10.")]
RingFlag = Annotated[str | None, option("NAME", f"Which way blocks travel: {', '.join(RINGS)}.")]
WireFlag = Annotated[str | None, option("NAME", f"What devices send: {', '.join(WIRES)}; between nodes: outer=int16.")]
PointsFlag = Annotated[Path | None, option("FILE", "Of each axis, in .npz; or scattered, an array (..., d).")]
PointsUnitFlag = Annotated[str | None, option("NAME", "Of real points: turns, radians, z, field-of-view.")]
Input = Annotated[Path, typer.Argument(metavar="IN", help=f"{alternatives(FORMATS)}.")]
Output = Annotated[Path, typer.Argument(metavar="OUT", help=f"{alternatives(results())}.")]
JsonFlag = Annotated[bool, switch("--json", "Print one JSON object instead.")]


class Joining(NamedTuple):
    distributed: Annotated[bool, switch("--distributed", "Join other processes, which JAX detects.")] = False
    coordinator: Annotated[str | None, option("HOST:PORT", "Process 0 of several, by hand.")] = None
    processes: Annotated[int | None, option("N", "How many processes there are.")] = None
    process_id: Annotated[int | None, option("I", "Which this is: 0 to N-1.")] = None


class Files(NamedTuple):
    dataset: Annotated[str | None, option("NAME", "Which array of an HDF5 or Zarr file.")] = None
    overwrite: Annotated[bool, switch("--overwrite", "Replace OUT where it exists.")] = False
    as_json: JsonFlag = False
    log_json: Annotated[bool, switch("--log-json", "Log every part to stderr, as JSON lines.")] = False
    quiet: Annotated[bool, switch("--quiet", "Print no plan, progress or table; refusals still.")] = False

    def say(self, text: str) -> None:
        if jax.process_index() == 0 and not (self.as_json or self.quiet):
            say(text)

    def progress(self, total: int, *, in_bytes: bool = True) -> AbstractContextManager[Progress]:
        process = jax.process_index()
        if self.log_json:
            return log(total, process)
        return bar(total, in_bytes=in_bytes, shown=process == 0 and not self.quiet)

    def finish(self, facts: Mapping[str, object], timings: Sequence[PartTime], wrote: str) -> None:
        if jax.process_index() == 0 and self.as_json:
            print_json({**facts, "measured": [timing._asdict() for timing in timings]})
        elif jax.process_index() == 0 and not self.quiet:
            print_timings(timings)
            say(wrote)


OWN = ("spec", "inverse", "margin", "modes")  # flags that are read apart


class PlanFlags(NamedTuple):
    spec: SpecFlag = None
    axes: AxesFlag = None
    method: MethodFlag = "auto"
    order: OrderFlag = "natural"
    norm: NormFlag = "backward"
    dtype: Annotated[str | None, option("NAME", f"Of the input: {', '.join(DTYPES)}; else as --kind needs.")] = None
    kind: KindFlag = "fft"
    precision: PrecisionFlag = "default"
    engine: Annotated[str, option("NAME", "Of local FFTs: auto, or xla for XLA's alone.")] = "auto"
    ring: RingFlag = "auto"
    wire: WireFlag = "exact"
    margin: Annotated[str, option("M,M,...", "Ghost cells around each device's block: 2; 1,1,0.")] = "0"
    modes: Annotated[str | None, option("M,M,...", "Lowest frequencies to keep: 64; 64,64,-1.")] = None
    inverse: Annotated[bool, switch("--inverse", "The inverse transform.")] = False

    def read(self) -> Keywords:
        given = {name: value for name, value in self._asdict().items() if name not in OWN}
        modes = None if self.modes is None else read_counts(self.modes, "--modes", "frequencies", least="-?")
        return {
            "inverse": self.inverse,
            "margin": read_counts(self.margin, "--margin", "cells"),
            "modes": modes,
            **read_options(**given),
        }


class TransformFlags(NamedTuple):
    method: MethodFlag = None
    order: OrderFlag = None
    norm: NormFlag = None
    kind: KindFlag = None
    precision: PrecisionFlag = None
    ring: RingFlag = None
    wire: WireFlag = None


SENT = ("ring", "wire")  # flags for what devices send
IDLE = {"order": "natural", "ring": "auto", "engine": "auto", "wire": "exact", "margin": 0, "modes": None}  # in passes


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with a flag for each field of its record parameters."""
    own = inspect.signature(command).parameters
    records = {name: one.annotation for name, one in own.items() if hasattr(one.annotation, "_fields")}
    flags = list[inspect.Parameter]()
    for name, one in own.items():
        flags += inspect.signature(records[name]).parameters.values() if name in records else [one]

    def run(**given: object) -> None:
        for name, record in records.items():
            given[name] = record(**{field: given.pop(field) for field in record._fields})
        command(**given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {one.name: one.annotation for one in flags}
    signature = inspect.Signature([one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in flags])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def read_options(axes: str | None, **names: str | None) -> Keywords:
    """The checked axes and names; None stays None. Enables the 64-bit types that they need."""
    precision = read_precision(names.pop("precision", None))
    for name, text in names.items():
        for word in () if text is None else text.split(",") if name == "wire" else (text,):
            *levels, choice = word.split("=") if name == "wire" else (word,)
            for level in levels:
                check_choice(level, Wires._fields, f"--{name}")
            check_choice(choice, CHOICES[name], f"--{name}")
    if names.get("dtype") in ("complex128", "float64") or is_wide(precision):
        jax.config.update("jax_enable_x64", True)
    return {"axes": read_axes(axes), **names, "precision": precision}


def read_precision(text: str | None) -> str | float | None:
    if text is None or text in PRECISIONS:
        return text
    if not re.fullmatch(ERROR, text):
        names = ", ".join(PRECISIONS)
        raise ValueError(f"--precision {text!r} is not known: give one of {names}, or an error, as 1e-10")
    return float(text)


def read_mesh(text: str) -> dict[str, int]:
    sizes = read_sizes(text, "--mesh", "2,2,2")
    if len(sizes) > len(MESH_AXES):
        raise ValueError(f"--mesh {text} has {len(sizes)} axes: give at most {len(MESH_AXES)}, as 2,2,2")
    return dict(zip(MESH_AXES, sizes, strict=False))


def read_sizes(text: str, flag: str, example: str) -> tuple[int, ...]:
    """Positive integers between commas, whose product is a possible size."""
    words = _words(text)
    sizes = tuple(int(word) for word in words if re.fullmatch(DIGITS, word))
    if len(sizes) < len(words) or 0 in sizes:
        remedy = f"give integers of at least 1 between commas, as {example}"
        raise ValueError(f"{flag} {text!r} is not a list of sizes: {remedy}")
    if len(sizes) > MOST_DIMENSIONS or math.prod(sizes) > MOST_SIZE:
        remedy = f"give at most {MOST_DIMENSIONS} sizes, as {example}"
        raise ValueError(f"{flag} {text!r} is more than any machine has: {remedy}")
    return sizes


def read_counts(text: str, flag: str, what: str, least: str = "") -> int | tuple[int, ...]:
    """One number for all axes, or one for each; `least` may precede digits."""
    words = _words(text)
    if not all(re.fullmatch(least + DIGITS, word) for word in words):
        raise ValueError(f"{flag} {text!r} is no number of {what}: give one, as 2, or one for each axis, as 1,1,0")
    return int(text) if len(words) == 1 else tuple(map(int, words))


def read_axes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = _words(text)
    if len(words) > MOST_DIMENSIONS or not all(re.fullmatch("-?" + DIGITS, word) for word in words):
        raise ValueError(f"--axes {text!r} is not a list of dimensions: give integers between commas, as 0,1,2")
    return tuple(map(int, words))


def read_spec(text: str | None, mesh: dict[str, int], ndim: int) -> Spec:
    """The mesh axes that cut each dimension; by default axis i cuts dimension i."""
    if text is None and len(mesh) > ndim:
        sizes, several = ",".join(map(str, mesh.values())), "+".join(mesh)
        remedy = f"give at most {ndim} axes, or cut a dimension by several, as --spec {several}"
        raise ValueError(f"--mesh {sizes} has {len(mesh)} axes and the array has {ndim} dimensions: {remedy}")
    if text is None:
        return tuple(mesh)
    words = _words(text)
    if len(words) > MOST_DIMENSIONS:
        remedy = f"give one entry for each of at most {MOST_DIMENSIONS} dimensions, as x,y+z,-"
        raise ValueError(f"--spec has {len(words)} entries: {remedy}")
    return tuple(None if word in ("", "-") else tuple(word.split("+")) for word in words)


def read_bytes(text: str, flag: str) -> int:
    match = re.fullmatch(rf"({DIGITS}(?:\.[0-9]{{0,19}})?) ?([kKMGT]i?)?B?", text.strip())
    nbytes = int(float(match[1]) * UNITS[(match[2] or "").replace("K", "k")]) if match else 0
    if nbytes <= 0:
        raise ValueError(f"{flag} {text!r} is no size: give a number of bytes, as 8GB, 512MB or 1.5GiB")
    return nbytes


def check_count(number: int, flag: str, what: str) -> None:
    if not 0 < number <= MOST_COUNT:
        raise ValueError(f"{flag} {number} is not a number of {what}: give 1 to {MOST_COUNT}")


def check_choice(text: Name, names: Sequence[str], flag: str) -> Name:
    if text is not None and text not in names:
        raise ValueError(f"{flag} {text!r} is not known: give one of {', '.join(names)}")
    return text


def check_rows(rows: Path | None) -> None:
    if rows is not None and not rows.resolve().parent.is_dir():
        raise FileNotFoundError(f"{rows.resolve().parent} is not a folder: make it first, or write elsewhere")
    if rows is not None and rows.is_dir():
        raise IsADirectoryError(f"{rows} is a folder: name a file for the rows")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]
