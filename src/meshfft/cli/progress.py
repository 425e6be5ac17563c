"""What a running command tells on stderr: a bar where that is a terminal, or lines of JSON for machines."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .show import Timing

EVERY = 1.0  # seconds between two lines of JSON about the same part


class Report(Protocol):
    """What is to be told as the parts of a command begin, and how much of each is done."""

    def begin(self, part: str) -> None: ...
    def advance(self, count: int) -> None: ...


class Clock:
    """Passes on which part begins, and keeps how long each took."""

    def __init__(self, report: Report) -> None:
        self.report, self.begun = report, list[tuple[str, float]]()

    def begin(self, part: str) -> None:
        self.begun.append((part, time.perf_counter()))
        self.report.begin(part)

    def end(self) -> list[Timing]:
        ends = [begun for _, begun in self.begun[1:]] + [time.perf_counter()]
        return [Timing(part, None, end - begun) for (part, begun), end in zip(self.begun, ends, strict=True)]


@contextlib.contextmanager
def bar(total: int, *, in_bytes: bool, shown: bool = True) -> Iterator[Report]:
    """A bar for `total` bytes, with the time left; or for so many parts, with the time taken."""
    console = Console(stderr=True)
    words = TextColumn("{task.description}", markup=False)
    count: list[ProgressColumn] = [MofNCompleteColumn(), TimeElapsedColumn()]
    if in_bytes:
        count = [DownloadColumn(), TimeRemainingColumn(compact=True), TextColumn("left")]
    columns = (words, BarColumn(bar_width=20), *count)
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as drawn:
        yield _Bar(drawn, total)


class _Bar:
    def __init__(self, drawn: Progress, total: int) -> None:
        self.drawn, self.task = drawn, drawn.add_task("", total=total, visible=False)

    def begin(self, part: str) -> None:
        self.drawn.update(self.task, description=part, visible=True)

    def advance(self, count: int) -> None:
        self.drawn.update(self.task, advance=count)


@contextlib.contextmanager
def log(total: int, process: int) -> Iterator[Report]:
    """One JSON object a line: when each part begins and ends, and at most once a second how many bytes are done."""
    lines = _Log(total, process)
    try:
        yield lines
    except BaseException as error:
        lines.tell("failed", reason=type(error).__name__)
        raise
    lines.end()


class _Log:
    def __init__(self, total: int, process: int) -> None:
        self.fixed = {"process": process, "total_bytes": total}
        self.part, self.done, self.begun, self.told = "", 0, 0.0, 0.0

    def begin(self, part: str) -> None:
        self.end()
        self.part, self.begun = part, time.time()
        self.tell("begin")

    def advance(self, count: int) -> None:
        self.done += count
        if time.time() - self.told > EVERY:
            self.tell("progress")

    def end(self) -> None:
        if self.part:
            self.tell("end", seconds=round(time.time() - self.begun, 6))

    def tell(self, event: str, **facts: Any) -> None:
        self.told = time.time()
        line = {"event": event, "part": self.part, "done_bytes": self.done, **self.fixed, **facts, "time": self.told}
        print(json.dumps(line), file=sys.stderr, flush=True)
