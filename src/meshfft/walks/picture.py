"""Pictures of a walk: each device's blocks in its colour, before and after every step."""

import colorsys
import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..extras import need
from ..layout.layout import Layout, dim_name, join_axes
from ..walks.walk import Walk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, Color Universal Design, 2008: distinct for the colour-blind.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#F0E442")
MOST_DEVICES, MOST_NUMBERED = 256, 64
DEPTH = 0.35  # shift of the third dimension to the right and up, relative to a side
DOWN, RIGHT, BACK = np.array([0, 1.0]), np.array([1.0, 0]), np.array([DEPTH, -DEPTH])
FRONT, TOP, END = 0.0, 0.3, -0.2  # lightening of each side
PIXELS = 96
WIDE = 4  # pictures per row
LETTERS = 36  # letters per line of a title
PURPOSE = "a picture of a plan"
Point = np.ndarray


class Part(NamedTuple):
    start: float
    end: float
    shard: int


class Face(NamedTuple):
    """A visible side of a block: corners, x to the right and y down, device, and lightening."""

    corners: list[Point]
    device: int
    light: float


ALONE = [Part(0.0, 1.0, 0)]


def owners(layout: Layout, sizes: Mapping[str, int]) -> np.ndarray:
    """The device of each block by shards; the first along idle axes."""
    names = list(sizes)
    cutting = [names.index(axis) for axes in layout.axes for axis in axes]
    idle = [at for at in range(len(names)) if at not in cutting]
    devices = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    return devices.transpose(cutting + idle).reshape(*layout.parts, -1)[..., 0]


def shown(layout: Layout) -> tuple[int, ...]:
    return tuple(sorted(sorted(range(layout.ndim), key=lambda dim: (layout.parts[dim] == 1, dim))[:3]))


def faces(layout: Layout, sizes: Mapping[str, int]) -> list[Face]:
    """The visible sides of nonempty blocks; hidden dimensions at their first shard."""
    dims, held = shown(layout), owners(layout, sizes)
    held = held[tuple(slice(None) if dim in dims else 0 for dim in range(layout.ndim))]
    whole, edges = (1,) * (len(dims) < 2), [_parts(layout, dim) for dim in dims]
    held = held.reshape(*whole, *held.shape, *(1,) * (3 - len(whole) - len(dims)))
    down, right, *depth = [ALONE] * len(whole) + edges
    sides = _side(down, right, DOWN, RIGHT, held[:, :, 0], FRONT)
    if depth and right:
        sides += _side(right, depth[0], RIGHT, BACK, held[0], TOP)
        sides += _side(down, depth[0], DOWN, BACK, held[:, right[-1].shard], END, RIGHT)
    return sides


def colour(device: int, count: int, light: float = 0.0) -> str:
    """A device's colour as #rrggbb: one of COLOURS, or a hue for more."""
    named = COLOURS[device % len(COLOURS)]
    rgb = [int(named[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    if count > len(COLOURS):
        rgb = list(colorsys.hls_to_rgb(device / count, 0.45 + 0.2 * (device % 2), 0.65))
    rgb = [one + light * ((1 if light > 0 else one) - (0 if light < 0 else one)) for one in rgb]
    return "#" + "".join(f"{round(255 * one):02x}" for one in rgb)


def svg(layout: Layout, sizes: Mapping[str, int]) -> str:
    """A small picture for a page, with device names as tooltips; empty for many devices."""
    count = math.prod(sizes.values())
    if count > MOST_DEVICES:
        return ""
    sides = "".join(
        f'<polygon points="{" ".join(f"{x:.3g},{y:.3g}" for x, y in face.corners)}" '
        f'fill="{colour(face.device, count, face.light)}"><title>device {face.device}</title></polygon>'
        for face in faces(layout, sizes)
    )
    side = 1.06 + DEPTH * (len(shown(layout)) > 2)
    return (
        f'<svg width="{PIXELS}" height="{PIXELS}" viewBox="-0.03 {1.03 - side:.3g} {side:.3g} {side:.3g}" '
        f'stroke="white" stroke-width="0.012" role="img"><title>{escape(layout.label())}</title>{sides}</svg>'
    )


def draw(figure: "Figure", walk: Walk, sizes: Mapping[str, int]) -> None:
    polygon, count = need("matplotlib.patches", PURPOSE).Polygon, math.prod(sizes.values())
    for at, (title, layout, done) in enumerate(_stations(walk), 1):
        spot = figure.add_subplot(-(-len(walk.layouts) // WIDE), WIDE, at)
        sides = faces(layout, sizes)
        for face in sides:
            spot.add_patch(polygon(face.corners, fc=colour(face.device, count, face.light), ec="white", lw=0.5))
            if len(sides) <= MOST_NUMBERED:
                x, y = np.mean(face.corners, axis=0)
                spot.text(x, y, str(face.device), ha="center", va="center", fontsize="x-small")
        block = "x".join(map(str, layout.block))
        spot.set_title(f"{textwrap.fill(title, LETTERS)}\n{layout.label(done)}\nblock {block}", fontsize="small")
        spot.set(xlim=(-0.05, 1.1 + DEPTH), ylim=(1.12, -0.05 - DEPTH), aspect="equal")
        spot.axis("off")
        _name(spot, layout, done)


def show(walk: Walk, sizes: Mapping[str, int], title: str) -> "Figure":
    count, shape = math.prod(sizes.values()), walk.start.shape
    if count > MOST_DEVICES:
        raise ValueError(f"{count} devices are more than a picture shows: plan for at most {MOST_DEVICES}")
    if min(shape) == 0:
        raise ValueError(f"the array {shape} has no elements: draw one that has some")
    pyplot, tall = need("matplotlib.pyplot", PURPOSE), -(-len(walk.layouts) // WIDE)
    figure = pyplot.figure(figsize=(3.0 * WIDE, 3.4 * tall), layout="constrained")
    figure.suptitle(title)
    draw(figure, walk, sizes)
    if figure.canvas.required_interactive_framework:
        pyplot.show()
    return figure


def _stations(walk: Walk) -> Iterator[tuple[str, Layout, frozenset[int]]]:
    done: frozenset[int] = frozenset()
    yield "as it comes", walk.start, done
    for at, ((step, before), after) in enumerate(zip(walk.pairs, walk.layouts[1:], strict=True), 1):
        done = done.union(step.dims) if after.ndim == before.ndim else frozenset()
        yield f"{at}. {step.name(before)}", after, done


def _name(spot: "Axes", layout: Layout, done: frozenset[int]) -> None:
    dims, edges = shown(layout), [(-0.04, 0.5), (0.5, 1.06), (1.1 + DEPTH / 2, 1.06 - DEPTH / 2)]
    for dim, (x, y) in zip(dims, edges[len(dims) < 2 :], strict=False):
        axes = join_axes(layout.axes[dim])
        name = dim_name(dim, layout.ndim) + "'" * (dim in done) + "_" * bool(axes) + axes
        spot.text(x, y, name, ha="right" if x < 0 else "center", va="center", fontsize="small")


def _parts(layout: Layout, dim: int) -> list[Part]:
    size, places = layout.shape[dim], zip(layout.starts(dim), layout.counts(dim), strict=True)
    return [Part(start / size, (start + count) / size, at) for at, (start, count) in enumerate(places) if count > 0]


def _side(
    first: list[Part], second: list[Part], u: Point, v: Point, held: np.ndarray, light: float, at: Point | float = 0
) -> list[Face]:
    made = list[Face]()
    for a, b in itertools.product(first, second):
        ends = (a.start, b.start), (a.start, b.end), (a.end, b.end), (a.end, b.start)
        made.append(Face([at + p * u + q * v for p, q in ends], int(held[a.shard, b.shard]), light))
    return made
