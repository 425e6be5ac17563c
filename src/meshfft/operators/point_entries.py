"""Points given for axes: one entry for each, or an error that says what is meant instead.

The samples of several axes are all combinations of their points. A list of points of a plane, raveled into one list of
coordinates for each axis, would silently give the combinations of all of them with all: where that is certain, as the
coordinates themselves are all combinations of fewer values, it is refused.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .points import APART, Points

_WRAP = "say what the numbers are, as mf.Points.turns(t) for each axis, or None for uniform ones"


def entries(points: Any, dims: tuple[int, ...]) -> tuple[Points | None, ...]:
    """One entry for each dimension.

    Raises:
        ValueError, TypeError: another number of entries, entries that are no Points, or a raveled grid.
    """
    given = (points,) if isinstance(points, Points) else points
    if given is None:
        return (None,) * len(dims)
    plane = f". {APART}" if getattr(given, "ndim", 0) > 1 else ""
    if not isinstance(given, list | tuple):
        raise TypeError(f"points is a {type(given).__name__}: {_WRAP}{plane}")
    for entry in given:
        if entry is not None and not isinstance(entry, Points):
            raise TypeError(f"points has a {type(entry).__name__}: {_WRAP}")
    if len(given) != len(dims):
        raise ValueError(f"points has {len(given)} entries for {len(dims)} axes: give one for each axis")
    settled = tuple(None if entry is None else entry.settled for entry in given)
    _check_grid(settled, dims)
    return settled


def _check_grid(points: Sequence[Points | None], dims: tuple[int, ...]) -> None:
    """Raises ValueError where the points of axes, taken side by side, are all combinations of fewer: a raveled grid."""
    listed = [(dim, one) for dim, one in zip(dims, points, strict=True) if one is not None and one.angle is not None]
    sizes = {one.size for _, one in listed}
    # Next to one another on a raveled grid lie points that differ along one axis alone.
    if len(listed) < 2 or len(sizes) > 1 or not all(one.known for _, one in listed) or not _steps_alone(listed):
        return
    columns = [_coordinates(one) for _, one in listed]
    sides = [len(np.unique(column)) for column in columns]
    together = len(np.unique(np.stack(columns, -1), axis=0))
    if min(sides) > 1 and math.prod(sides) == together == sizes.pop():
        axes, grid = " and ".join(str(dim) for dim, _ in listed), " x ".join(map(str, sides))
        raise ValueError(
            f"the {together} points of axes {axes} are a grid of {grid}, raveled: give each axis its own points, "
            f"{grid.replace(' x ', ' and ')} of them, as np.unique(k) has them. {APART}"
        )


def _steps_alone(listed: Sequence[tuple[int, Points]]) -> bool:
    """Whether the first two points differ along one axis and no other."""
    pairs = [_coordinates(one)[:2] for _, one in listed]
    return sum(len(pair) > 1 and pair[0] != pair[1] for pair in pairs) == 1


def _coordinates(points: Points) -> np.ndarray:
    """One number for each point, that no other point has."""
    radii = 0.0 if points.log_radius is None else points.log_radius
    return np.asarray(points.angle + 1j * radii)
