"""Colours: told apart by those who are colour-blind, on light paper and on dark.

Charts name colours as variables of the page's style, which has a set for either paper. Blocks of devices have fixed
colours, eight of Okabe and Ito's (Color Universal Design, 2008), or for more devices steps of cividis, with a number on
each that has room for one. The first device, whom pictures follow, has the same colour in both.
"""

from collections.abc import Sequence

from meshfft.extras import need

DEVICES = ("#D55E00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#E69F00", "#CC79A7", "#999999")
DARKEST = 0.15  # where on cividis colours begin: an outline can still be seen there
SERIES = tuple(f"var(--c{place})" for place in range(1, 7))
INK, SOFT, LINE, PAPER = "currentColor", "var(--soft)", "var(--line)", "var(--paper)"
SHADES = (1.0, 0.84, 0.92)  # of the sides of a solid, by the dimension they are square to: the top is lightest


def device_colours(count: int) -> list[str]:
    """A colour for each of so many devices."""
    if count <= len(DEVICES):
        return list(DEVICES[:count])
    scale = need("matplotlib", "drawing the report").colormaps["cividis"]
    places = (DARKEST + (1 - DARKEST) * place / (count - 1) for place in range(1, count))
    return [DEVICES[0], *(_hex([255 * part for part in scale(place)[:3]]) for place in places)]


def shaded(colour: str, plane: int) -> str:
    """The colour of one side of a solid."""
    return _hex([SHADES[plane] * part for part in _parts(colour)])


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on a colour: its luminance is that of sRGB, roughly."""
    red, green, blue = ((part / 255) ** 2.2 for part in _parts(colour))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "#ffffff"


def _parts(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def _hex(parts: Sequence[float]) -> str:
    return "#" + "".join(f"{round(part):02x}" for part in parts)
