"""Everything that commands print: text, tables, JSON, progress, and refusals, each one line on stderr and exit code 2.

Unprintable characters of files' names are escaped as in Python (\\x1b, \\u202e). If standard output is closed, the
work continues and the exit code is 1.
"""

import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, ParamSpec

import numpy as np
import typer
from rich import box
from rich import progress as widgets
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..io.grid import Box
from ..io.source import Source
from ..plans.table import filled
from ..steps.problem import Options

P = ParamSpec("P")
MOST_TEXT = 1000
RULED = box.Box("\n".join(["    ", "    ", " -- ", "    ", " -- ", " -- ", "    ", "    "]), ascii=True)
REFUSALS = (ValueError, TypeError, OSError, MemoryError, ImportError, RuntimeError)
EVERY = 1.0  # seconds between JSON lines about one part
FLAGS = (  # Python arguments in messages, and their flags
    (re.compile(rf"\b(kind|{'|'.join(Options._fields)})='([\w-]+)'"), r"--\1 \2"),
    (re.compile(r"\b(resume|overwrite)=True"), r"--\1"),
    (re.compile(r"(?<![-\w])(tikhonov|truncation|ring|margin)(?:=(?!\w)|(?= is\b))"), r"--\1"),
    (re.compile(r"\bas (dataset|select)="), r"as --\1 "),
    (re.compile(r"s= for fewer unknowns"), "--unknowns for fewer unknowns"),
    (re.compile(r", budget is"), ", --memory is"),
)


class PartTime(NamedTuple):
    step: str
    compile_seconds: float | None
    run_seconds: float


class Lost(io.TextIOBase):
    def write(self, text: str) -> int:
        return len(text)


def say(text: str = "") -> None:
    _print(shown(text) + "\n")


def say_filled(text: str) -> None:
    say(filled(text))


def warn(text: str) -> None:
    """Prints one line on stderr, if that is open."""
    if len(text) > MOST_TEXT:
        text = f"{text[: MOST_TEXT // 2]} ... {text[-MOST_TEXT // 2 :]}"
    with contextlib.suppress(OSError):
        print(shown(text, lines=False), file=sys.stderr, flush=True)


def print_json(record: Mapping[str, object]) -> None:
    _print(json.dumps(record, indent=2).replace("\x7f", "\\u007f") + "\n")


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[str]], sums: Sequence[Sequence[str]] = ()) -> None:
    table = Table(box=RULED, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1) if sums else (0, 1))
    for index, head in enumerate(heads):
        table.add_column(Text(shown(head)), justify="right" if index else "left", no_wrap=index > 0)
    for number, row in enumerate([*rows, *sums], 1):
        table.add_row(*(Text(shown(cell)) for cell in row), end_section=bool(sums) and number == len(rows))
    console = Console()
    with console.capture() as drawn:
        console.print(table)
    _print(drawn.get())


def print_timings(timings: Sequence[PartTime]) -> None:
    total = PartTime("total", sum(row.compile_seconds or 0 for row in timings), sum(row.run_seconds for row in timings))
    heads, rows = ["step", "compile s", "run s"], []
    for row in (*timings, total):
        compiling = "" if row.compile_seconds is None else f"{row.compile_seconds:.3f}"
        rows.append([row.step, compiling, f"{row.run_seconds:.3f}"])
    if all(row.compile_seconds is None for row in timings):  # passes compile separately
        heads, rows = ["step", "s"], [[step, run] for step, _, run in rows]
    print_columns(heads, rows[:-1], rows[-1:])


def shown(text: str, lines: bool = True) -> str:
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


class Progress:
    """The running part, how much of the whole is done, and the seconds of earlier parts.

    `show` is called with "begin", "progress" or "end". `note` is shown after the part's name.
    """

    def __init__(self, show: Callable[["Progress", str], None]) -> None:
        self.show, self.part, self.note, self.done, self.begun = show, "", "", 0, 0.0
        self.seconds = list[tuple[str, float]]()

    def begin(self, part: str) -> None:
        self.end()
        self.part, self.note, self.begun = part, "", time.perf_counter()
        self.show(self, "begin")

    def advance(self, count: int) -> None:
        self.done += count
        self.show(self, "progress")

    def end(self) -> None:
        if self.part:
            self.seconds.append((self.part, time.perf_counter() - self.begun))
            self.show(self, "end")

    def counting(self, array: Source) -> Source:
        def read(box: Box, out: np.ndarray) -> None:
            array.read(box, out)
            self.advance(out.nbytes)

        return dataclasses.replace(array, read=read)

    @property
    def timings(self) -> list[PartTime]:
        rows, compiling = list[PartTime](), None
        for part, seconds in self.seconds:
            if part.startswith("compile "):
                compiling = seconds
            else:
                rows.append(PartTime(part, compiling, seconds))
                compiling = None
        return rows


@contextlib.contextmanager
def bar(total: int, *, in_bytes: bool, shown: bool = True) -> Iterator[Progress]:
    console = Console(stderr=True)
    columns = [widgets.TextColumn("{task.description}", markup=False), widgets.BarColumn(bar_width=20)]
    if in_bytes:
        columns += [widgets.DownloadColumn(), widgets.TimeRemainingColumn(compact=True), widgets.TextColumn("left")]
    else:
        columns += [widgets.MofNCompleteColumn(), widgets.TimeElapsedColumn()]
    hidden = not (shown and console.is_terminal)
    with widgets.Progress(*columns, console=console, transient=True, disable=hidden) as drawn:
        task = drawn.add_task("", total=total, visible=False)

        def show(now: Progress, event: str) -> None:
            drawn.update(task, description=now.part + now.note, completed=now.done, visible=bool(now.part))

        progress = Progress(show)
        yield progress
        progress.end()


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[..., None]]:
    """Shows in a terminal what is waited for; yields a function of the running part and the share done before it. Until
    its first call the bar moves without an end."""
    console = Console(stderr=True)
    words = widgets.TextColumn("{task.description}", markup=False)
    columns = (widgets.BarColumn(bar_width=20), widgets.TimeElapsedColumn(), words)
    with widgets.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as drawn:
        task = drawn.add_task(what, total=None)
        yield lambda part, done=0.0: drawn.update(task, description=f"{what}: {part}", total=1.0, completed=done)


@contextlib.contextmanager
def log(total: int, process: int) -> Iterator[Progress]:
    """Writes JSON lines: the begin and end of each part, and at most once a second the bytes done."""
    last = 0.0

    def tell(now: Progress, event: str, **facts: str | float) -> None:
        nonlocal last
        if event == "progress" and time.time() - last <= EVERY:
            return
        last = time.time()
        about = {"event": event, "part": now.part, "done_bytes": now.done, "process": process, "total_bytes": total}
        if event == "end":
            facts["seconds"] = round(now.seconds[-1][1], 6)
        print(json.dumps({**about, **facts, "time": last}), file=sys.stderr, flush=True)

    progress = Progress(tell)
    try:
        yield progress
    except BaseException as error:
        tell(progress, "failed", reason=type(error).__name__)
        raise
    progress.end()


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            command(*args, **options)
        except typer.Exit:  # a RuntimeError
            raise
        except REFUSALS as error:
            warn(f"meshfft: error: {describe(error)}")
            raise typer.Exit(2) from None

    return run


def describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        line = " ".join(str(error).split())
        return line if ": " in line else f"out of memory ({line}): use more devices or --precision float32"
    if isinstance(error, FileExistsError) and "overwrite it" in str(error):
        return str(error).replace("overwrite it", "replace it with --overwrite")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    line = " ".join(str(error).split())
    for pattern, flag in FLAGS:
        line = pattern.sub(flag, line)
    return line or type(error).__name__


def ended(code: int) -> int:
    if code or not isinstance(sys.stdout, Lost):
        return code
    warn("meshfft: error: standard output was closed before all was printed: keep it open, or send it to /dev/null")
    return 1


def occupy() -> None:
    """Fills closed standard streams, whose numbers opened files would get."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    sys.stdout = sys.stdout or Lost()
    sys.stderr = sys.stderr or Lost()


def _print(text: str) -> None:
    try:
        print(text, end="", flush=True)
    except OSError:  # a closed pipe or full disk: later text is dropped, also from Python's buffer
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        sys.stdout = Lost()
