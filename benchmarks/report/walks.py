"""The section of a walk: a plan's layouts drawn as blocks that change hands, a panel for each step.

The layouts are the walk's own; `frames` says what happens between two, `panels` draws it, `captions` tells it.
"""

from meshfft.errors import check
from meshfft.layout.layout import axis_sizes, dim_name
from meshfft.plans.plan import Plan

from .blocks import count_of
from .captions import caption
from .content import Figure, Section
from .frames import Frame, frames
from .key import key_of
from .panels import CHIP, CHIPS_TOP, GAP, HEIGHT, WIDTH, Scene, panel_of, scene_of
from .replanned import MOST_DEVICES
from .runs import times
from .templating import rendered

INTRO = (
    "Each picture is the array after a step, cut into blocks; a block has the colour and the number of the device that "
    "holds it. The block of device 0, at the near corner, is drawn again beside it: fine lines run along the dimension "
    "that is being transformed, and after an exchange its parts have the colours of those who gave them."
)
SMALL = 64  # devices: of so many, every block tells by itself whose it is


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
