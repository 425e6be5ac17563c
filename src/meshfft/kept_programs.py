"""Compiled programs kept from one process to the next, by JAX's persistent cache, in a folder of the user's own.

JAX's key has the program, its options, the devices and the versions. The folder's name has the instructions that the
host's processor knows, because hosts of several kinds may share a home. JAX executes what the folder contains, so the
folder belongs to the user alone.
"""

import hashlib
import os
import platform
import re
import sys
from pathlib import Path

import jax


def cache(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keeps compiled programs on the disk, so that the next process reads
    them instead of compiling.

    It sets JAX's `jax_compilation_cache_dir`, and the shortest compilation
    that is kept to 0 seconds. Call it before the first transform. Nothing is
    ever deleted: docs/compilation.md.

    Args:
        folder: the folder, made if it does not exist, ~ for the home
            directory; by default one of the user's own, under ~/.cache on
            Linux.

    Returns:
        The folder.

    Raises:
        ValueError: nobody can write there, or it belongs to another user; an
            empty name.
        TypeError: no path.

    >>> import tempfile
    >>> mf.cache(tempfile.mkdtemp()).is_dir()  # doctest: +SKIP
    True
    """
    path = own_folder() if folder is None else _named(folder)
    if path is None or not _writable(path):
        raise ValueError(f"folder {path} cannot be written by this user alone: name another")
    path = path.resolve()
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # a walk is many programs of less than a second
    return path


def _named(folder: object) -> Path:
    if not isinstance(folder, str | os.PathLike) or not isinstance(os.fspath(folder), str):
        raise TypeError(f"folder is {folder!r}: give a path, such as '/scratch/me/programs'")
    name = os.fspath(folder)
    if not name or "\0" in name:
        raise ValueError(f"folder is {name!r}, which names none: give a path, or nothing for the user's own")
    return Path(name).expanduser()


def own_folder(place: str | None = None) -> Path | None:
    """The folder of this user for processors like this one, under `place`; None without a home directory."""
    if place is None:
        try:
            home = Path.home()
        except RuntimeError:
            return None
        place = str(home / {"darwin": "Library/Caches", "win32": "AppData/Local"}.get(sys.platform, ".cache"))
    return Path(place) / "meshfft" / f"{platform.machine()}-{_processor()}"


def _processor() -> str:
    """A digest of the instructions that the host's processor knows, if the system is Linux."""
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
