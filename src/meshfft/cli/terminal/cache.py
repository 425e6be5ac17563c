"""Compiled programs kept from one process to the next, by JAX's persistent cache, in a folder of the user's own.

    a command that finds its program there reads it, and compiles nothing

JAX's key has the program, its options, the devices and the versions. The folder's name has the instructions that the
host's processor knows, since hosts of several kinds may share a home. What lies there is executed, so it is the user's
alone.
"""

import hashlib
import os
import platform
import re
import sys
from pathlib import Path

import jax

OFF = "off"
VARIABLE = "MESHFFT_CACHE"
QUIET = (0, 10, 2)  # JAX before it writes two lines of errors to stderr for every CPU program that it reads back


def keep_programs(wanted: str | None) -> None:
    """Has JAX keep what it compiles: in the folder `wanted`, not at all if that is "off", or in the user's own.

    Without a word from the user, JAX's own setting stays as it is where there is one, and a folder that cannot be
    written, or that is somebody else's, is left alone.

    Raises:
        ValueError: the folder was named and cannot be written.
    """
    if wanted == OFF:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = Path(wanted) if wanted else own_folder()
    if not wanted and (jax.config.values["jax_compilation_cache_dir"] or jax.__version_info__ < QUIET):
        return
    if folder is None or not _writable(folder):
        if wanted:
            raise ValueError(f"--cache {wanted}: no folder that can be written: name another, or {OFF} to keep nothing")
        return
    jax.config.update("jax_compilation_cache_dir", str(folder.resolve()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # a walk is many programs of less than a second


def own_folder() -> Path | None:
    """Where the user's system keeps what can be made again, for processors like this one; None without a home."""
    try:
        places = {"darwin": Path.home() / "Library/Caches", "win32": os.environ.get("LOCALAPPDATA")}
        place = places.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # there is no home
        return None
    return Path(place) / "meshfft" / f"{platform.machine()}-{_processor()}"


def _processor() -> str:
    """A digest of the instructions that the host's processor knows, where Linux tells them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = platform.processor()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return hashlib.sha256((found[1] if found else text).encode()).hexdigest()[:8]


def _writable(folder: Path) -> bool:
    """Whether files can be made there, for this user alone where the folder is made now."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
    return own and os.access(folder, os.W_OK)
