"""A device's time, shared out: every moment between two ends goes to one step and one kind of work.

    sum of the slices = end - begin, exactly

Where several instructions are at work at once, the moment belongs to the first of WORK that is: so a message counts
only for as long as nothing hides it, and what is hidden is not counted twice. Where none is, the device is idle, and
the moment belongs to the step it waits for, that of its next instruction, or after the last to that one's.
Times are integers.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

WORK = ("products", "fft", "copies", "other", "all-to-all", "permute")  # what hides what stands behind it
IDLE = "idle"


class Slice(NamedTuple):
    """From when to when, for which step (None before the first), and what kind of work."""

    begin: int
    end: int
    step: int | None
    kind: str


def shared(spans: Iterable[Slice], begin: int, end: int) -> list[Slice]:
    """Slices from `begin` to `end`, one after the other, of instructions that may overlap and lie within."""
    coming = sorted((span for span in spans if span.end > span.begin), key=lambda span: span.begin, reverse=True)
    cuts = sorted({begin, end, *(edge for span in coming for edge in span[:2])})
    active: list[tuple[int, int, int, Slice]] = []
    found: list[Slice] = []
    last = None
    for left, right in pairwise(cuts):
        while coming and coming[-1].begin <= left:
            span = coming.pop()
            heapq.heappush(active, (WORK.index(span.kind), _place(span.step), -span.end, span))
        while active and active[0][3].end <= left:
            heapq.heappop(active)
        waits_for = coming[-1].step if coming else last
        step, kind = active[0][3][2:] if active else (waits_for, IDLE)
        last = step
        found.append(Slice(left, right, step, kind))
    return _joined(found)


def busy(spans: Iterable[Slice]) -> int:
    """How long at least one of them lasts."""
    total, until = 0, 0
    for span in sorted(spans, key=lambda span: span[:2]):
        total += max(0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def without(span: Slice, pauses: Iterable[tuple[int, int]]) -> list[Slice]:
    """What is left of a span outside some pauses, which do not overlap."""
    inside = sorted((a, b) for a, b in pauses if a < span.end and b > span.begin)
    edges = [span.begin, *(edge for pause in inside for edge in pause), span.end]
    return [span._replace(begin=a, end=b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]


def _place(step: int | None) -> int:
    return -1 if step is None else step


def _joined(slices: Sequence[Slice]) -> list[Slice]:
    """Neighbours of one step and kind as one."""
    found: list[Slice] = []
    for one in slices:
        if found and found[-1][2:] == one[2:]:
            one = one._replace(begin=found.pop().begin)
        found.append(one)
    return found
