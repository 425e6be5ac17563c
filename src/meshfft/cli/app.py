"""The `meshfft` command: its subcommands, and its version."""

import os
import signal
import sys
from typing import Annotated

import typer

from .info import info, version_of
from .nufft import nufft
from .plan import plan
from .profile import profile
from .reconstruct import reconstruct
from .terminal.cache import VARIABLE, keep_programs
from .terminal.output import ended, guarded, occupy, say, warn
from .transform import transform

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (transform, nufft, reconstruct, plan, profile, info):
    app.command()(command)


def main() -> None:
    """Runs the command; a scheduler's SIGTERM ends it as an error would, so that no part of an output stays behind."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    occupy()
    code = ended(_run())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # all is done or undone: who asks a second time need not see JAX's end
    sys.exit(code)


def _run() -> int:
    """The exit code; what is wrong with a command line is said in one line, for its words may be names of files."""
    try:
        return app(standalone_mode=False) or 0
    except typer.Abort:
        return 130
    except Exception as error:
        if not hasattr(error, "format_message"):  # an error of typer, or of click below it
            raise
        name = getattr(getattr(error, "ctx", None), "command_path", "meshfft")
        text = error.format_message()
        warn(f"meshfft: error: {text}{'' if text.endswith(('.', '?')) else '.'} See {name} --help.")
        return 2


def _version(wanted: bool) -> None:
    if wanted:
        say(f"meshfft {version_of('meshfft')}")
        raise typer.Exit()


CACHE = typer.Option(metavar="DIR", envvar=VARIABLE, help="Where compiled programs are kept; off keeps none.")


@app.callback()
@guarded
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    cache: Annotated[str | None, CACHE] = None,
) -> None:
    """Fourier transforms of arrays sharded over a mesh of devices."""
    keep_programs(cache or os.environ.get(VARIABLE))  # the oldest typer hears no variable


if __name__ == "__main__":
    main()
