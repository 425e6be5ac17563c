"""What one process keeps for the next: compiled programs, verdicts on kernels, and choices of walks.

JAX's persistent cache keeps programs. By default its folder is the user's own, because JAX executes what it reads
there, and is named by the processor's instruction set, because hosts of several kinds may share a home.

A kernel is tried on a small random block before its first use on a TPU, and the verdict is kept beside the programs:

    sound = it compiles, and |found - exact| <= bound |exact|      in L2, on one device of this process

A verdict holds for a kernel with its lengths and block, a kind of device, and versions. Without a folder, or for a
kernel that could not be run, it holds for this process alone.

Invariant: a trial runs in a new thread, so that JAX never traces its calls.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import json
import logging
import os
import platform
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .atomic import replacing
from .extras import __version__

LOG = logging.getLogger("meshfft")
FOLDER = "meshfft-kernels"  # among JAX's programs
WORDS = 200  # letters kept of a compiler's message


def cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keeps compiled programs on the disk, so that the next process reads
    them instead of compiling.

    It sets JAX's `jax_compilation_cache_dir`, and keeps even the shortest
    compilations. Call it before the first transform. Nothing is ever deleted:
    docs/inside.md.

    Args:
        folder: made if it does not exist, ~ for the home directory; by
            default one of the user's own, under ~/.cache on Linux.

    Returns:
        The folder.

    Raises:
        ValueError: this user cannot write there, or another owns it; an empty
            name.
        TypeError: not a path.

    >>> import tempfile
    >>> mf.cache(tempfile.mkdtemp()).is_dir()  # doctest: +SKIP
    True
    """
    path = own_folder() if folder is None else _named(folder)
    if path is None:
        raise ValueError("this user has no home directory: name a folder")
    if not _writable(path):
        raise ValueError(f"folder {path} cannot be written by this user alone: name another")
    path = path.resolve()
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # a walk is many short programs
    return path


def _named(folder: object) -> Path:
    if not isinstance(folder, str | os.PathLike) or not isinstance(os.fspath(folder), str):
        raise TypeError(f"folder is {folder!r}: give a path, such as '/scratch/me/programs'")
    name = os.fspath(folder)
    if not name or "\0" in name:
        raise ValueError(f"folder is {name!r}, which names none: give a path, or nothing for the user's own")
    return Path(name).expanduser()


def own_folder(place: str | None = None) -> Path | None:
    """This user's folder for this processor, under `place`; None without a home directory."""
    if place is None:
        try:
            home = Path.home()
        except RuntimeError:
            return None
        place = str(home / {"darwin": "Library/Caches", "win32": "AppData/Local"}.get(sys.platform, ".cache"))
    return Path(place) / "meshfft" / f"{platform.machine()}-{_processor()}"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = platform.processor()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return hashlib.sha256((found[1] if found else text).encode()).hexdigest()[:8]


def _writable(folder: Path) -> bool:
    """Whether this user can make files in the folder; a new folder is for this user alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
    return own and os.access(folder, os.W_OK)


class Trial(Hashable, Protocol):
    """A kernel and a small block for it; hashable."""

    @property
    def name(self) -> str: ...  # kernel, lengths and block

    @property
    def bound(self) -> float: ...  # allowed relative L2 error

    def given(self) -> list[np.ndarray]: ...  # random arrays

    def found(self, *arrays: Array, interpret: bool) -> Sequence[Array]: ...  # the kernel's result

    def exact(self, *arrays: Array) -> Sequence[ArrayLike]: ...  # the same, by other means


class Verdict(NamedTuple):
    """What is wrong with a kernel, "" if nothing is, and its error."""

    fault: str
    error: float = 0.0


def failing(trials: Iterable[Trial], device: jax.Device) -> tuple[str, ...]:
    """Names of the kernels to avoid on such devices; each is logged once, as a warning."""
    return tuple(trial.name for trial in trials if _verdict(trial, device).fault)


@functools.lru_cache(maxsize=4096)
def _verdict(trial: Trial, device: jax.Device) -> Verdict:
    facts = {"kernel": trial.name, "bound": trial.bound, **circumstances(device)}
    verdict = _as_verdict(recall(FOLDER, facts))
    if verdict is None:
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as apart:
            verdict, lasting = apart.submit(_tried, trial, device).result()
        if lasting:
            keep(FOLDER, facts, verdict._asdict(), overwrite=_as_verdict(recall(FOLDER, facts)) is None)
            verdict = _as_verdict(recall(FOLDER, facts)) or verdict
    file = _file(FOLDER, facts)
    where = f"kept in {file.parent}" if file else "kept for this process; with mf.cache() it would be for others too"
    if verdict.fault:
        what = "kernel %s %s on %s: XLA's engine is taken instead (%s)"
        LOG.warning(what, trial.name, verdict.fault, device.device_kind, where)
    else:
        passed = f"passed its trial, error {verdict.error:.1e} of {trial.bound:.1e}"
        LOG.info("kernel %s %s on %s (%s)", trial.name, passed, device.device_kind, where)
    return verdict


def _tried(trial: Trial, device: jax.Device) -> tuple[Verdict, bool]:
    """The verdict, and whether it holds for later processes. Without a TPU the kernel is interpreted."""
    run = functools.partial(trial.found, interpret=device.platform != "tpu")
    stage, lasting = "cannot be run", False
    try:
        arrays = jax.device_put(trial.given(), device)
        stage, lasting = "does not compile", True
        program = jax.jit(run).lower(*arrays).compile()
        stage, lasting = "cannot be run", False
        error = _error(program(*arrays), trial.exact(*arrays))
    except Exception as fault:  # whatever it is, the kernel is out
        reason = " ".join([type(fault).__name__, *str(fault).strip().splitlines()[:1]])[:WORDS]
        return Verdict(f"{stage} ({reason})"), lasting
    if not error <= trial.bound:  # or NaN
        return Verdict(f"is wrong: relative error {error:.1e}, at most {trial.bound:.1e}", error), True
    return Verdict("", error), True


def _error(found: Sequence[Array], exact: Sequence[ArrayLike]) -> float:
    a, b = (np.concatenate([np.ravel(jax.device_get(x)).astype(float) for x in xs]) for xs in (found, exact))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _as_verdict(said: Mapping[str, Any] | None) -> Verdict | None:
    try:
        return None if said is None else Verdict(str(said["fault"]), float(said["error"]))
    except (ValueError, KeyError, TypeError):
        return None


def circumstances(device: jax.Device) -> dict[str, str]:
    """What a verdict or a choice holds for."""
    versions = {"jax": jax.__version__, "meshfft": __version__, "runtime": device.client.platform_version}
    return {"device": device.device_kind, **versions}


def recall(folder: str, facts: Mapping[str, object]) -> Mapping[str, Any] | None:
    """What is kept for these facts; None if missing or damaged."""
    try:
        said = json.loads(file.read_text()) if (file := _file(folder, facts)) else None
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def keep(folder: str, facts: Mapping[str, object], said: Mapping[str, object], overwrite: bool = True) -> None:
    """Keeps something for these facts; without `overwrite` only if nobody was first."""
    if (file := _file(folder, facts)) is not None:
        with contextlib.suppress(OSError):  # nobody may write there, or the disk is full
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(file, overwrite=overwrite) as new:
                new.write_text(json.dumps({**facts, **said}, indent=1))


def _file(folder: str, facts: Mapping[str, object]) -> Path | None:
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return own / folder / f"{key[:32]}.json" if (own := folder_in_use()) else None


def folder_in_use() -> Path | None:
    """JAX's folder of compiled programs, if it is on a file system."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    used = folder and "://" not in str(folder) and jax.config.values["jax_enable_compilation_cache"]
    return Path(folder) if used else None
