"""What is asked of `meshfft transform`: its flags, and where they are silent what the file says of itself.

A file that meshfft wrote tells how it was made, so that `--inverse` needs no other flag. Before any work all processes
agree that they were asked for the same, and that the outputs can be written; a process that is alone starts no device
for that, for the mesh is to say how many there are.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from ..atomic import unfinished
from ..files.processes import check_alike, together
from . import parse
from .devices import MOST_VIRTUAL
from .info import PACKAGES, version_of
from .say import warn

T = TypeVar("T")
FREE = ("source", "target", "given", "as_json", "log_json")  # told of elsewhere, or without effect on the result
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
    if refused:
        raise ValueError(f"{job.source} holds {array.dtype}, and this {kind} transforms real numbers: use --kind fft")


def _mesh(job: Job, array: Any) -> dict[str, int]:
    if job.mesh is not None:
        return parse.mesh(job.mesh)
    record = _record(array)
    if record is None:
        raise ValueError(f"{job.source} does not tell a mesh: give one, as --mesh 2,2,2")
    many = math.prod(record.mesh.values())
    if not many <= MOST_VIRTUAL:
        raise ValueError(f"{job.source} was made on {many} devices: give a mesh of those here, as --mesh 2,2,2")
    return dict(record.mesh)


def _record(array: Any) -> Any:
    """What the file says of itself, if it does."""
    from ..files import Record

    return None if array.record is None else Record.from_dict(array.record, str(array.path))


def agree(facts: dict[str, Any]) -> None:
    """Raises ValueError in every process unless all of them give the same."""
    if jax.distributed.is_initialized():
        check_alike(facts)


def everywhere(work: Callable[[], T]) -> T:
    """The result of `work`, which fails in all processes where it fails in one."""
    return together(work) if jax.distributed.is_initialized() else work()


def deciding(job: Job) -> dict[str, Any]:
    """What decides the result, by name; of the input each process may have its own copy, which `identity` compares."""
    flags = {name: value for name, value in job._asdict().items() if name not in FREE} | job.given
    named = {f"--{name}": _word(value) for name, value in flags.items()}
    return {"OUT": str(job.target.resolve()), **named, **{name: version_of(name) for name in PACKAGES}}


def check_files(job: Job) -> None:
    """Refuses outputs that could not be written; says what runs that were killed left beside OUT."""
    from ..files import check_apart, check_output
    from ..files.picture import check_picture

    check_output(job.target, job.overwrite, 0)
    check_apart(job.source, job.target)
    if job.plot is not None:
        check_picture(job.plot, job.overwrite)
        check_apart(job.source, job.plot)
    first = not jax.distributed.is_initialized() or jax.process_index() == 0
    for path in unfinished(job.target) if first else ():
        left = f"{path} is of a run that was killed, or of one that writes the same output now"
        warn(f"meshfft: note: {left}: remove it if there is none")


def _word(value: Any) -> str:
    """The value of a flag as one would say it."""
    return {"None": "not given", "False": "not given", "True": "given"}.get(str(value), str(value))
