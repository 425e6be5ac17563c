"""The key of a walk's pictures: the devices with their numbers and colours, as they stand on the mesh."""

import numpy as np

from .blocks import Sizes, count_of
from .content import Figure
from .palette import device_colours, ink_on
from .panels import WIDTH
from .templating import rendered

SIDE, LETTER, WIDEST, MOST = 30, 7.4, 8, 64  # of a device, of a letter before a row; devices in a row, and in all


def key_of(sizes: Sizes) -> Figure:
    """The devices with their numbers and colours, a row for each place along all mesh axes but the last."""
    count, names = count_of(sizes), list(sizes)
    colours, last = device_colours(count), sizes[names[-1]] if names else 1
    wide, shown = min(last, WIDEST), min(count, MOST)
    left = 14 + LETTER * len(_row(count - 1, sizes)) if len(names) > 1 else 4
    chips = [
        (str(place), colours[place], ink_on(colours[place]), left + SIDE * (place % wide), SIDE * (place // wide))
        for place in range(shown)
    ]
    labels = [(_row(place, sizes), SIDE * (place // wide)) for place in range(0, shown, wide) if place % last == 0]
    drawing = rendered(
        "mesh.svg", chips=chips, labels=labels, width=WIDTH, height=SIDE * -(-shown // wide), side=SIDE - 4
    )
    axes = ", ".join(f"{axis} = {size}" for axis, size in sizes.items()) or "one device"
    rest = f" The first {shown} of {count} are shown." if shown < count else ""
    row = f" Along a row runs {names[-1]}." if len(names) > 1 else ""
    words = f"{count} devices: {axes}.{row}{rest}"
    return Figure("the mesh", words, drawing, note=words)


def _row(place: int, sizes: Sizes) -> str:
    """Where a row of devices stands on the mesh."""
    *outer, last = list(sizes) or [""]
    at = np.unravel_index(place // sizes[last], [sizes[axis] for axis in outer]) if outer else ()
    return ", ".join(f"{axis}={index}" for axis, index in zip(outer, at, strict=True))
