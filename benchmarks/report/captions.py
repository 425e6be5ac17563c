"""Captions: what happens in a frame of a walk, in a few sentences about the device that is followed."""

from meshfft.layout.layout import dim_name
from meshfft.numerics.units import quantity

from .blocks import number
from .frames import Frame
from .panels import Scene
from .runs import times


def caption(frame: Frame, scene: Scene) -> str:
    """What happens in a step."""
    if not frame.mark:
        return f"Every device holds a block of {times(frame.layout.block)}."
    sent = f" Every device sends {quantity(frame.sent, 'B')}." if frame.sent else " Nothing is sent."
    hidden = f" In {frame.chunks} chunks: while one travels the next is transformed." if frame.chunks > 1 else ""
    apart = f" In {frame.rounds} parts." if frame.pieces and frame.rounds > 1 and not hidden else ""
    return f"{_what(frame, scene)}{_resized(frame)}{sent}{hidden}{apart}"


def _what(frame: Frame, scene: Scene) -> str:
    """The step, without what it sends."""
    who, others = f"device {number(scene.device, scene.sizes)}", len(frame.passing or frame.gathering) - 1
    lines = " and ".join(dim_name(dim, frame.layout.ndim) for dim in frame.dims)
    if frame.pieces:
        return _exchange(frame, scene, who.capitalize())
    if frame.passing and frame.gathering:
        gathers = (
            f"{who.capitalize()} gathers one sample in {others + 1} along {lines}, {_from(others)}, transforms them"
        )
        return f"{gathers}, and adds up what all of them found, each with its phase, as it goes round the ring."
    if frame.passing:
        what = "sums" if frame.sums else "blocks"
        return (
            f"The {what} of {_others(others)} along {lines} pass by {who}, which has its part of the matrix for each."
        )
    if frame.gathering:
        often = "once" if frame.rounds == 1 else f"{frame.rounds} times"
        return (
            f"{who.capitalize()} and {_others(others)} along {lines} exchange parts {often}, and transform in between."
        )
    return f"Every line along {lines} lies on one device, which transforms it alone."


def _others(count: int) -> str:
    return "the other device" if count == 1 else f"the {count} others"


def _from(count: int) -> str:
    return f"from itself and {_others(count)}"


def _exchange(frame: Frame, scene: Scene, who: str) -> str:
    """Who keeps and who gives how much of the block."""
    own = [piece for piece in frame.pieces if piece.giver == scene.device]
    given = [piece for piece in frame.pieces if piece.giver != scene.device]
    kept = f"{who} keeps {times(own[0].box.lengths)}" if own else f"{who} keeps nothing"
    if not given:
        return f"{kept} and is given nothing."
    shapes = list(dict.fromkeys(times(piece.box.lengths) for piece in given))
    many = f"each of {len(given)} others" if len(given) > 1 else f"device {number(given[0].giver, scene.sizes)}"
    return f"{kept} and is given {' or '.join(shapes)} by {many}."


def _resized(frame: Frame) -> str:
    pairs = [(dim_name(d, frame.layout.ndim), frame.before.shape[d], frame.layout.shape[d]) for d in frame.dims]
    return "".join(
        f" {name} has {after} positions now, of {before}." for name, before, after in pairs if before != after
    )
