"""The picture of a walk: after every step the array, cut into blocks in the colours of the devices that hold them.

Which device holds which block follows from the cuts of the layouts alone: shard i of a dimension is at i's digits along
the mesh axes that cut it, outermost first.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshfft.extras import need
from meshfft.layout.layout import Layout, axis_sizes, dim_name
from meshfft.plans.plan import Plan

from .drawing import COLOURS, PURPOSE, drawn
from .page import Figure, Section

MOST_DEVICES, MOST_NUMBERED = 256, 64
WIDE = 4  # pictures in a row
INTRO = (
    "The array as it comes and after every step. A block has the colour of the device that holds it, those on top "
    "its number too; a prime marks a dimension that is transformed."
)


def section(plan: Plan) -> Section:
    """The picture of a plan, and the plan as it prints.

    Raises:
        ValueError: there is nothing to draw, or too much.
    """
    sizes = axis_sizes(plan.mesh)
    count = math.prod(sizes.values())
    if not count <= MOST_DEVICES:
        raise ValueError(f"{count} devices are more than a picture shows: plan for at most {MOST_DEVICES}")
    if not min(plan.shape) > 0:
        raise ValueError(f"the array {plan.shape} has no elements: draw one that has some")
    tall = -(-len(plan.walk.layouts) // WIDE)
    image = drawn(lambda figure: _draw(figure, plan, sizes, tall), 3.2 * tall, 3.0 * WIDE)
    return Section("walk", "The walk", INTRO, [Figure(plan.name, image)], str(plan))


def owners(layout: Layout, sizes: dict[str, int]) -> np.ndarray:
    """The number of the device that holds each block, by shards along the dimensions; of idle axes the first."""
    names = list(sizes)
    cutting = [names.index(axis) for axes in layout.axes for axis in axes]
    idle = [at for at in range(len(names)) if at not in cutting]
    devices = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    return devices.transpose(cutting + idle).reshape(*layout.parts, -1)[..., 0]


def _draw(figure: Any, plan: Plan, sizes: dict[str, int], tall: int) -> None:
    need("mpl_toolkits.mplot3d", PURPOSE)
    steps = ["as it comes", *(f"{at}. {s.name(layout)}" for at, (s, layout) in enumerate(plan.walk.pairs, 1))]
    done: frozenset[int] = frozenset()
    for at, (title, layout) in enumerate(zip(steps, plan.walk.layouts, strict=True)):
        done = done.union(plan.walk.steps[at - 1].dims) if at else done
        dims = shown(layout)
        spot = figure.add_subplot(tall, WIDE, at + 1, projection="3d")
        _blocks(spot, layout, dims, owners(layout, sizes), math.prod(sizes.values()))
        spot.set_title(f"{title}\nblock {'x'.join(map(str, layout.block))}", fontsize="small")
        names = [dim_name(dim, layout.ndim) + "'" * (dim in done) for dim in dims]
        for name, label in zip(names, (spot.set_xlabel, spot.set_ylabel, spot.set_zlabel), strict=False):
            label(name, labelpad=-14)
        spot.set(xticks=[], yticks=[], zticks=[])


def shown(layout: Layout) -> tuple[int, ...]:
    """The dimensions to show: the first three, or of more those that are cut."""
    return tuple(sorted(sorted(range(layout.ndim), key=lambda dim: (layout.parts[dim] == 1, dim))[:3]))


def _blocks(spot: Any, layout: Layout, dims: Sequence[int], held: np.ndarray, count: int) -> None:
    """A box for each block that holds any positions; dimensions beyond those shown at their first shard."""
    held = held[tuple(slice(None) if dim in dims else 0 for dim in range(layout.ndim))]
    held = held.reshape(held.shape + (1,) * (3 - held.ndim))
    starts = [layout.starts(dim) / layout.shape[dim] for dim in dims] + [np.zeros(1)] * (3 - len(dims))
    widths = [layout.counts(dim) / layout.shape[dim] for dim in dims] + [np.ones(1)] * (3 - len(dims))
    shards: tuple[int, ...] = held.shape
    for shard in itertools.product(*map(range, shards)):
        low, wide = (np.array([one[at] for one, at in zip(of, shard, strict=True)]) for of in (starts, widths))
        if np.all(wide > 0):
            device = int(held[shard])
            colour = _colour(device, count)
            spot.bar3d(*low, *wide, color=colour, edgecolor="white", linewidth=0.4, shade=True)
            if held.size <= MOST_NUMBERED and shard[-1] == shards[-1] - 1:
                at = (*(low + wide / 2)[:2], 1.02)
                spot.text(*at, str(device), ha="center", va="center", fontsize="x-small", zorder=99)


def _colour(device: int, count: int) -> Any:
    """A colour for each of so many devices: one of eight that all can tell apart, or a step of a colour map."""
    if count <= len(COLOURS):
        return COLOURS[device]
    return need("matplotlib", PURPOSE).colormaps["turbo"](device / (count - 1))
