"""The picture of a walk, as `Plan.show` draws it: after every step the array, cut into the blocks of the devices."""

from meshfft.layout.layout import axis_sizes
from meshfft.plans.picture import WIDE, check_drawable, draw
from meshfft.plans.plan import Plan

from .drawing import drawn
from .page import Figure, Section

INTRO = (
    "The array as it comes and after every step. A block has the colour and the number of the device that holds it; a "
    "prime marks a dimension that is transformed."
)


def section(plan: Plan) -> Section:
    """The picture of a plan, and the plan as it prints.

    Raises:
        ValueError: there is nothing to draw, or too much.
    """
    sizes = axis_sizes(plan.mesh)
    check_drawable(plan.shape, sizes)
    tall = -(-len(plan.walk.layouts) // WIDE)
    image = drawn(lambda figure: draw(figure, plan.walk, sizes), 3.4 * tall, 3.0 * WIDE)
    return Section("walk", "The walk", INTRO, [Figure(plan.name, image)], str(plan))
