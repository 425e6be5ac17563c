"""The choice between a fine grid and the sum itself: small images are cheaper by dense products, on matrix units most.

gridding   one transform of a fine grid, W^d cells a point, and their exchange
dense      8 M N flops for M points and N samples, in which only the image travels (`kdftn` at scattered points)
"""

import math

from ..layout.layout import Layout
from ..operators.transform import Transform, factor
from ..plans.plan import Plan
from ..plans.request import Setting
from .at_points import walk_to_points
from .planning import Asked, scattered_plan_for
from .traced import traced_plan


def plan_to_points(asked: Asked) -> Plan:
    """The plan from an image to values as the caller has them: by the method asked for, or the cheaper."""
    if asked.method == "kdft":
        return dense_plan(asked)
    gridded = scattered_plan_for(asked).caller if asked.points.known else traced_plan(asked)
    if asked.method != "auto" or asked.origin != "corner" or asked.machine.chip.side == 1:
        return gridded  # without matrix units no image is so small that its ring is faster
    dense = dense_plan(asked)
    return min(gridded, dense, key=_price) if dense.error <= asked.tol else gridded


def dense_plan(asked: Asked) -> Plan:
    """The sum itself, on one ring.

    Raises:
        ValueError: samples are counted from the middle.
    """
    if asked.origin != "corner":
        raise ValueError(f"method 'kdft' has origin 'corner', this is {asked.origin!r}: use method='auto'")
    setting = Setting(asked.start, asked.mesh, asked.machine, asked.dtype)
    scale = factor(math.prod(asked.modes), asked.norm, False)
    unit = None if asked.points.known else asked.points.unit
    shape, goal = asked.points.shape, _goal(asked)
    walk = walk_to_points(setting, asked.dims, shape, unit, scale, goal, asked.dots, "auto", asked.dtype.itemsize)
    what = (Transform((), (), scale), asked.mesh, asked.dtype, "kdft", asked.order, asked.machine, asked.dots)
    return Plan(walk, *what, (asked.points,))


def _goal(asked: Asked) -> Layout | None:
    """The values as the caller wants them, where the axes that cut the transformed dimensions can cut them so."""
    start, values = asked.start, asked.values
    axes = {axis for d in asked.dims for axis in start.axes[d]}
    if values is None or values.mesh_axes != axes:
        return None
    rest = [d for d in range(start.ndim) if d not in asked.dims]
    return Layout(tuple(start.shape[d] for d in rest), tuple(start.cuts[d] for d in rest)) + values


def _price(plan: Plan) -> float:
    """Modelled seconds, of machines that are not known too."""
    return sum(map(plan.machine.price, plan.walk.works(plan.dtype.itemsize, plan.machine.chip)))
