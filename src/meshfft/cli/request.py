"""What is asked of `meshfft transform`: by its flags, and for the way back by the file, if meshfft wrote it.

Before any work all processes agree that they were asked for the same. A process that is alone starts no device for
that: the mesh is to say how many there are.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax

from ..atomic import unfinished
from ..io import Record, Source, check_disjoint, check_output, inverse_options, open_array
from ..io.picture import check_picture
from ..io.processes import check_alike, together
from ..out_of_core import recorded_devices
from .info import PACKAGES, version_of
from .points import Sampling, sampled_options
from .terminal.devices import MOST_VIRTUAL
from .terminal.flags import Keywords, read_mesh, read_spec
from .terminal.output import warn

T = TypeVar("T")
# Compared otherwise, or without effect on the result.
FREE = ("source", "target", "given", "as_json", "log_json", "quiet", "sampling")
KNOWN = ("kind", "axes", "s", "norm", "order", "precision")  # what the way back takes from the file


class Flags(NamedTuple):
    """The flags, parsed; `given` are those that `meshfft.plan` takes, None where they were not given."""

    source: Path
    target: Path
    dataset: str | None
    mesh: str | None
    spec: str | None
    inverse: bool
    given: Keywords
    plot: Path | None
    overwrite: bool
    memory: int | None
    resume: bool
    as_json: bool
    log_json: bool
    sampling: Sampling | None = None
    quiet: bool = False


def check_plot(plot: Path | None, inverse: bool, kind: str | None) -> None:
    """Refuses to draw what is no full spectrum."""
    if plot is not None and inverse:
        raise ValueError("--plot draws a spectrum and --inverse leaves none: plot the forward transform")
    if plot is not None and kind not in (None, "fft"):
        raise ValueError(f"--plot draws a full spectrum, and --kind {kind} has none: leave one out")


def plan_options(flags: Flags, array: Source) -> Keywords:
    """What `meshfft.plan` is to be given beside the mesh: by the flags, or by a file that is transformed back."""
    record = _record(array) if flags.inverse else None
    recorded = {} if record is None or record.inverse else inverse_options(record)
    given = {name: value for name, value in flags.given.items() if value is not None}
    other = given.keys() & {"kind", "axes"}  # than the file's transform, of which only the scale is taken then
    known = {name: recorded[name] for name in (("norm",) if other else KNOWN) if name in recorded}
    if recorded and not (flags.mesh or flags.spec):
        spec = recorded["spec"]
    else:
        spec = read_spec(flags.spec, mesh_sizes(flags, array), array.ndim)
    shape = {"shape": array.shape}
    points = sampled_options(flags.sampling, array.shape, flags.given["axes"]) if flags.sampling else shape
    return {**known, **given, "inverse": flags.inverse, "dtype": array.dtype, "spec": spec, **points}


def device_count(flags: Flags) -> int:
    if flags.mesh is not None:
        return math.prod(read_mesh(flags.mesh).values())
    with open_array(flags.source, flags.dataset) as array:
        return math.prod(mesh_sizes(flags, array).values())


def mesh_sizes(flags: Flags, array: Source) -> dict[str, int]:
    """The sizes of the mesh axes by name: those of the flag, or of the file."""
    if flags.mesh is not None:
        return read_mesh(flags.mesh)
    record = _record(array)
    if record is None:
        devices = recorded_devices(flags.target) if flags.resume else None
        had = f"give that of the unfinished run, of {devices} devices a process, as --mesh {devices}"
        raise ValueError(f"{flags.source} has no record of a mesh: {had if devices else 'give one, as --mesh 2,2,2'}")
    count = math.prod(record.mesh.values())
    if count > MOST_VIRTUAL:
        raise ValueError(f"{flags.source} was made on {count} devices: give a mesh of those here, as --mesh 2,2,2")
    return dict(record.mesh)


def _record(array: Source) -> Record | None:
    return None if array.record is None else Record.from_dict(array.record, str(array.path))


def agree(facts: Mapping[str, object]) -> None:
    """Raises ValueError in every process unless all of them give the same."""
    if jax.distributed.is_initialized():
        check_alike(facts)


def everywhere(work: Callable[[], T]) -> T:
    """The result of `work`, which fails in all processes where it fails in one."""
    return together(work) if jax.distributed.is_initialized() else work()


def deciding(flags: Flags) -> dict[str, str]:
    """What decides the result, by name; of the input each process may have its own copy, which `identity` compares."""
    values = {name: value for name, value in flags._asdict().items() if name not in FREE} | flags.given
    values |= flags.sampling.deciding() if flags.sampling else {"points": None}
    words = {"None": "not given", "False": "not given", "True": "given"}
    named = {f"--{name}": words.get(str(value), str(value)) for name, value in values.items()}
    return {"OUT": str(flags.target.resolve()), **named, **{name: version_of(name) for name in PACKAGES}}


def check_files(flags: Flags) -> None:
    """Refuses outputs that could not be written; says what runs that were killed left beside OUT."""
    check_output(flags.target, flags.overwrite, 0)
    check_disjoint(flags.source, flags.target)
    if flags.plot is not None:
        check_picture(flags.plot, flags.overwrite)
        check_disjoint(flags.source, flags.plot)
    say_unfinished(flags.target)


def say_unfinished(target: Path) -> None:
    """Says what runs that were killed left beside an output, in the first process."""
    if jax.distributed.is_initialized() and jax.process_index() > 0:
        return
    for path in unfinished(target):
        text = f"{path} is of a run that was killed, or of one that writes the same output now"
        warn(f"meshfft: note: {text}: remove it if there is none")
