"""The section of a walk: a plan's layouts drawn as blocks that change hands, a panel for each step.

Which plan: the one that was asked for, or that of the first row that tells one.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.sharding import AbstractMesh, AxisType

from ..errors import check
from ..layout import axis_sizes, dim_name
from ..measure.on_devices import plan_of
from ..measure.peers import MESHFFT
from ..plan import Plan
from ..planning import plan
from .blocks import count_of
from .captions import caption
from .content import Figure, Section
from .frames import Frame, frames
from .key import key_of
from .kinds import Rows
from .panels import CHIP, CHIPS_TOP, GAP, HEIGHT, WIDTH, Scene, panel_of, scene_of
from .runs import times
from .templating import rendered

INTRO = (
    "Each picture is the array after a step, cut into blocks; a block has the colour and the number of the device that "
    "holds it. The block of device 0, at the near corner, is drawn again beside it: fine lines run along the dimension "
    "that is being transformed, and after an exchange its parts have the colours of those who gave them."
)
SMALL = 64  # devices: of so many, every block tells by itself whose it is
MOST_DEVICES = 2048
MOST_DIMS, MOST_SAMPLES = 6, 10**6  # of a row whose plan is made


def section(made: Plan) -> Section:
    """The picture of a plan.

    Raises:
        ValueError: there is nothing to draw, or too much.
    """
    sizes = axis_sizes(made.mesh)
    check(min(made.shape) > 0, f"the array {times(made.shape)} has no elements: draw one that has some")
    count = count_of(sizes)
    check(count <= MOST_DEVICES, f"{count} devices are more than a picture shows: plan for at most {MOST_DEVICES}")
    device = (0,) * len(sizes)
    found = frames(made.walk, made.dtype.itemsize, sizes, device)
    scene = scene_of(found, sizes, device)
    panels = [key_of(sizes), *(_panel(frame, scene) for frame in found)]
    return Section("walk", "The walk", _intro(made, scene), panels=panels, text=str(made))


def plan_of_rows(rows: Rows) -> Plan | None:
    """The plan of the first row that tells one on several devices; None where none does."""
    for make in _plans(rows):
        try:
            made = make()
        except (ValueError, TypeError):
            continue
        if 1 < count_of(axis_sizes(made.mesh)) <= MOST_DEVICES and min(made.shape) > 0:
            return made
    return None


def _plans(rows: Rows) -> Iterator[Callable[[], Plan]]:
    """How to plan what rows were measured on, in the order of the sections."""
    for case in dict.fromkeys(row.case for row in rows.cases):
        small = len(case.shape) <= MOST_DIMS and sum(case.samples) < MOST_SAMPLES
        if case.peer == MESHFFT and 1 < case.devices <= MOST_DEVICES and small:
            yield functools.partial(plan_of, case)
    for row in (*rows.profiles, *rows.choices):
        if len(row["shape"]) <= MOST_DIMS and count_of(row["mesh"]) <= MOST_DEVICES:
            ways = row.get("method", "auto"), row.get("order", "natural")
            yield functools.partial(_planned, row["shape"], row["mesh"], *ways)
    for one in rows.evaluation:
        if one.mesh and count_of(one.mesh) <= MOST_DEVICES and len(one.shape) <= MOST_DIMS:
            yield functools.partial(_planned, one.shape, one.mesh, one.options.get("method", "auto"), "natural")


def _planned(shape: Sequence[int], mesh: dict[str, int], method: Any, order: Any) -> Plan:
    described = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    return plan(shape, mesh=described, method=method, order=order)


def _intro(made: Plan, scene: Scene) -> str:
    """What the picture is of."""
    cut = {axis for layout in made.walk.layouts for axis in layout.cutting}
    idle = [axis for axis, size in scene.sizes.items() if size > 1 and axis not in cut]
    held = f" Mesh axis {', '.join(idle)} cuts nothing: the devices along it hold the same." if idle else ""
    left = len(made.shape) - len(scene.dims)
    names = ", ".join(dim_name(dim, len(made.shape)) for dim in scene.dims if dim >= 0)
    part = (
        f" Of {len(made.shape)} dimensions {names} are shown, at the first positions of the others." if left > 0 else ""
    )
    name = made.transform.name.capitalize()
    what = f"{name} of {times(made.shape)} {made.out_dtype.name}, method {made.method}, {made.order} order."
    return f"{what} {INTRO}{held}{part}"


def _panel(frame: Frame, scene: Scene) -> Figure:
    panel = panel_of(frame, scene)
    small = len(scene.colours) <= SMALL
    drawing = rendered(
        "panel.svg",
        panel=panel,
        width=WIDTH,
        height=HEIGHT if panel.chips else HEIGHT - 48,
        small=small,
        side=CHIP,
        top=CHIPS_TOP,
        gap=GAP,
    )
    words = caption(frame, scene)
    label = frame.layout.label(frame.done)
    return Figure(panel.title, f"{label}. {words}", drawing, note=words, layout=label)
