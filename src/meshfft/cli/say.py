"""The one place where commands print: what a name may hide is shown, and a reader that goes away is remembered.

Names in files are anybody's: whatever a terminal would act on, controls and marks of direction, is printed as Python
would write it (\\x1b, \\u202e). Where standard output is closed the work goes on, and in the end the exit code is 1.
"""

import contextlib
import io
import os
import sys

from rich.console import Console, RenderableType

MOST_TEXT = 1000


class Lost(io.TextIOBase):
    """A standard stream that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)


def say(text: str = "") -> None:
    """Prints lines on stdout."""
    put(shown(text) + "\n")


def warn(text: str) -> None:
    """Prints one line on stderr, if anybody reads that; of one that is absurdly long the middle is left out."""
    if len(text) > MOST_TEXT:
        text = f"{text[: MOST_TEXT // 2]} ... {text[-MOST_TEXT // 2 :]}"
    with contextlib.suppress(OSError):
        print(shown(text, lines=False), file=sys.stderr, flush=True)


def draw(table: RenderableType) -> None:
    """Prints a table, whose cells must be `shown`, on stdout."""
    console = Console()
    with console.capture() as drawn:
        console.print(table)
    put(drawn.get())


def put(text: str) -> None:
    """Prints a text as it is on stdout."""
    try:
        print(text, end="", flush=True)
    except OSError:  # a closed pipe, a full disk
        _lose()


def shown(text: str, lines: bool = True) -> str:
    """The text with everything that is not printable, but for ends of lines, written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _written(c) for c in text)


def ended(code: int) -> int:
    """The exit code of a command that ends with this one: 1 for 0 if what it had to print could not be printed."""
    if code or not isinstance(sys.stdout, Lost):
        return code
    warn("meshfft: error: standard output was closed before all was printed: keep it open, or send it to /dev/null")
    return 1


def occupy() -> None:
    """Fills the places of closed standard streams: the next file that is opened, an output, would take them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest that is free, which is this
    sys.stdout = sys.stdout or Lost()
    sys.stderr = sys.stderr or Lost()


def _lose() -> None:
    """Lets what is still to be printed go nowhere, also what Python has buffered."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    sys.stdout = Lost()


def _written(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
