"""What is asked of `meshfft transform`: its flags, and where they are silent what the file says of itself.

A file that meshfft wrote tells how it was made, so that `--inverse` needs no other flag.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import check
from . import parse
from .devices import MOST_VIRTUAL

KNOWN = ("kind", "axes", "s", "norm", "order", "precision")  # what the way back takes from the file
DEFAULTS = {"method": "auto", "order": "natural", "norm": "backward", "kind": "fft", "precision": "default"}


class Job(NamedTuple):
    """The flags; `given` are those of `parse.options` that were, None those that were not."""

    source: Path
    target: Path
    dataset: str | None
    mesh: str | None
    spec: str | None
    inverse: bool
    given: dict[str, Any]
    plot: Path | None
    overwrite: bool
    memory: int | None
    resume: bool
    as_json: bool
    log_json: bool


class Request(NamedTuple):
    """What is to be planned.

    Attributes:
        mesh: the sizes of the mesh axes by name.
        spec: the mesh axes that cut each dimension.
        options: what `meshfft.plan` is to be given besides shape, mesh and spec.
    """

    mesh: dict[str, int]
    spec: tuple[parse.SpecEntry, ...]
    options: dict[str, Any]


def request(job: Job, array: Any) -> Request:
    """Flags first, then what the file tells if it is to be transformed back, then what is usual.

    Raises:
        ValueError: flags that mean nothing, or none where one is needed.
    """
    from ..files import inverse_options

    record = _record(array) if job.inverse else None
    told = {} if record is None or record.inverse else inverse_options(record)
    given = {name: value for name, value in job.given.items() if value is not None}
    known = {name: value for name, value in told.items() if name in KNOWN}
    if given.keys() & {"kind", "axes"}:  # another transform than the file's, of which only the scale may be meant
        known = {name: value for name, value in known.items() if name == "norm"}
    options = {**DEFAULTS, **known, **given, "inverse": job.inverse, "dtype": array.dtype}
    mesh = _mesh(job, array)
    spec = told["spec"] if told and not (job.mesh or job.spec) else parse.spec(job.spec, mesh, array.ndim)
    return Request(mesh, spec, options)


def devices(job: Job) -> int:
    """How many devices the mesh has."""
    from ..files import open_array

    if job.mesh is not None:
        return math.prod(parse.mesh(job.mesh).values())
    with open_array(job.source, job.dataset) as array:
        return math.prod(_mesh(job, array).values())


def check_kind(made: Any, array: Any, job: Job) -> None:
    """Refuses complex numbers where the kind is for real ones."""
    refused = made.walk.real and np.dtype(array.dtype).kind == "c"
    kind = made.transform.name
    check(not refused, f"{job.source} holds {array.dtype}, and this {kind} transforms real numbers: use --kind fft")


def _mesh(job: Job, array: Any) -> dict[str, int]:
    if job.mesh is not None:
        return parse.mesh(job.mesh)
    record = _record(array)
    check(record is not None, f"{job.source} does not tell a mesh: give one, as --mesh 2,2,2")
    many = math.prod(record.mesh.values())
    check(many <= MOST_VIRTUAL, f"{job.source} was made on {many} devices: give a mesh of those here, as --mesh 2,2,2")
    return dict(record.mesh)


def _record(array: Any) -> Any:
    """What the file says of itself, if it does."""
    from ..files import Record

    return None if array.record is None else Record.from_dict(array.record, str(array.path))
