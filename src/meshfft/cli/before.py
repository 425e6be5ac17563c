"""What is seen to before any work: that all processes were asked for the same, and that the outputs can be written.

Invariant: a process that is alone starts no device here, for the mesh is to say how many there are.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from ..atomic import unfinished
from ..files.processes import check_alike, together
from .info import PACKAGES, version_of
from .request import Job
from .say import warn

T = TypeVar("T")
FREE = ("source", "target", "given", "as_json", "log_json")  # told of elsewhere, or without effect on the result


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
