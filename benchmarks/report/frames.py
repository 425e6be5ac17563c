"""Frames: a walk as a row of pictures, one for the array as it comes and one after each step.

A step that takes others in chunks is shown as those, one after the other. Layouts are the walk's; who gives what to
whom follows from them (`blocks`), and who passes blocks round a ring from what the step says it sends.
"""

import string
from collections.abc import Iterator
from typing import NamedTuple

from meshfft.layout.layout import Layout
from meshfft.machine.chips import GENERIC
from meshfft.steps import Pipeline, Step, turned
from meshfft.walks.walk import Walk

from .blocks import Device, Piece, Sizes, received, ring


class Frame(NamedTuple):
    """The array after a step.

    Attributes:
        mark: the step's number, with a letter where it is a part of one; empty at the start.
        name: the step in words.
        before: the layout it started from.
        layout: the layout it left.
        dims: the dimensions it transformed.
        done: those transformed by now.
        pieces: what the followed device holds now, by who held it before; empty where nothing changed hands.
        passing: the ring round which blocks or sums travel, from the followed device on; empty where none do.
        gathering: those that exchange parts without a change of layout, as `passing`.
        rounds: in how many exchanges, all to all.
        two_way: the ring is gone both ways.
        sums: what travels are sums.
        sent: bytes that every device sends.
        chunks: in how many chunks the whole step is taken; 1 where it is not.
    """

    mark: str
    name: str
    before: Layout
    layout: Layout
    dims: tuple[int, ...] = ()
    done: frozenset[int] = frozenset()
    pieces: tuple[Piece, ...] = ()
    passing: tuple[Device, ...] = ()
    gathering: tuple[Device, ...] = ()
    rounds: int = 0
    two_way: bool = False
    sums: bool = False
    sent: int = 0
    chunks: int = 1


class _Part(NamedTuple):
    """A step that is no chain of others, where it starts and with what."""

    mark: str
    step: Step
    layout: Layout
    itemsize: int
    chunks: int


def frames(walk: Walk, itemsize: int, sizes: Sizes, device: Device) -> list[Frame]:
    """The pictures of a walk, one device followed.

    Args:
        walk: the walk.
        itemsize: bytes of a complex number.
        sizes: of the mesh axes.
        device: whom to follow.
    """
    found = [Frame("", "as it comes", walk.start, walk.start)]
    for part in _parts(walk, itemsize):
        found.append(_frame(part, found[-1].done, sizes, device))
    return found


def _parts(walk: Walk, itemsize: int) -> Iterator[_Part]:
    for place, ((step, layout), real) in enumerate(zip(walk.pairs, walk.reals, strict=False), 1):
        size = itemsize // 2 if real else itemsize
        inner, chunks = (step.steps, step.chunks) if isinstance(step, Pipeline) else ((step,), 1)
        for letter, one in zip(string.ascii_lowercase, inner, strict=False):
            yield _Part(f"{place}{letter * (len(inner) > 1)}", one, layout, size, chunks)
            layout, size = one.after(layout), turned(size, one)


def _frame(part: _Part, done: frozenset[int], sizes: Sizes, device: Device) -> Frame:
    step, before = part.step, part.layout
    after, work = step.after(before), step.work(before, part.itemsize, GENERIC)
    swapped = before.axes != after.axes
    kinds = {move.kind: tuple(ring(move.axes, device, sizes)) for move in work.moves if move.times}
    rings = [devices for kind, devices in kinds.items() if kind != "all-to-all" and len(devices) > 1]
    gathers = [devices for kind, devices in kinds.items() if kind == "all-to-all" and len(devices) > 1]
    rounds = sum(move.times for move in work.moves if move.kind == "all-to-all")
    return Frame(
        part.mark,
        step.name(before),
        before,
        after,
        step.dims,
        done.union(step.dims),
        tuple(received(before, after, device, sizes)) if swapped else (),
        rings[0] if rings else (),
        gathers[0] if gathers and not swapped else (),
        rounds,
        "two-way ring" in kinds,
        bool(getattr(step, "turned", False)),
        work.sent_bytes,
        part.chunks,
    )
