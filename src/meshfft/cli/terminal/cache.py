"""Where a command keeps compiled programs: as the user says, as JAX is set already, or in the user's own folder."""

import os
import sys

import jax

from ...kept_programs import cache, own_folder

OFF = "off"
VARIABLE = "MESHFFT_CACHE"
QUIET = (0, 10, 2)  # JAX before it writes two lines of errors to stderr for every CPU program that it reads back


def keep_programs(wanted: str | None) -> None:
    """Has JAX keep what it compiles: in the folder `wanted`, not at all if that is "off", or in the user's own.

    Unless the user says something, JAX's own setting is left as it is, and so is a folder that cannot be written or
    belongs to another user.

    Raises:
        ValueError: the folder was named and cannot be written.
    """
    if wanted == OFF:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if not wanted and (jax.config.values["jax_compilation_cache_dir"] or jax.__version_info__ < QUIET):
        return
    folder = wanted or own_folder(os.environ.get({"win32": "LOCALAPPDATA"}.get(sys.platform, "XDG_CACHE_HOME")) or None)
    try:
        if folder:
            cache(folder)
    except ValueError:
        if wanted:
            remedy = f"name another, or {OFF} to keep nothing"
            raise ValueError(f"--cache {wanted}: no folder that can be written: {remedy}") from None
