"""Projection: boxes of array positions as polygons on paper.

    one dimension     a bar, positions to the right
    two               a grid, the first downwards, the second to the right
    three             a solid seen from its first corner: the first dimension downwards, the second to the left and
                      back, the third to the right and back

Position 0 of every dimension is the corner nearest to the eye, so the first device's block is never hidden. A view maps
positions linearly; short dimensions are drawn longer than they are, so that all of them can be seen.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from .blocks import Box

Point = tuple[float, float]
Room = tuple[float, float, float, float]  # left, top, width and height on paper
DIRECTIONS: dict[int, tuple[Point, ...]] = {  # of one unit along each dimension shown
    2: ((0.0, 1.0), (1.0, 0.0)),
    3: ((0.0, 1.0), (-math.cos(math.pi / 6), -0.5), (math.cos(math.pi / 6), -0.5)),
}
EDGES: dict[int, tuple[tuple[tuple[int, ...], Point], ...]] = {  # along each dimension: at which ends of the others
    2: (((0, 0), (-1.0, 0.0)), ((1, 0), (0.0, 1.0))),
    3: (((0, 1, 0), (-1.0, 0.0)), ((1, 0, 0), (-0.6, 0.8)), ((1, 0, 0), (0.6, 0.8))),
}
NONE = -1  # in place of a dimension: the height of a bar, which stands for none
THICK = 0.22  # of a bar's length
APART, MOST_LINES = 9.0, 8  # of lines along a dimension: how far on paper, and how many on a side
SHORTEST = 0.3  # of the longest side: the shortest that is drawn


class Face(NamedTuple):
    """One side of a box.

    Attributes:
        plane: the dimension it is square to, counted among those shown; 0 where all is flat.
        corners: on paper.
    """

    plane: int
    corners: tuple[Point, ...]


class View(NamedTuple):
    """How positions lie on paper.

    Attributes:
        dims: the dimensions of the array that are shown; NONE for the height of a bar.
        zero: where the positions `starts` are.
        starts: the positions at the corner nearest to the eye.
        units: the way on paper of one position along each dimension shown.
    """

    dims: tuple[int, ...]
    zero: Point
    starts: tuple[int, ...]
    units: tuple[Point, ...]

    def at(self, positions: Sequence[float]) -> Point:
        """Where positions along the dimensions shown are."""
        x, y = self.zero
        for position, start, unit in zip(positions, self.starts, self.units, strict=True):
            x, y = x + (position - start) * unit[0], y + (position - start) * unit[1]
        return x, y

    def faces(self, box: Box) -> list[Face]:
        """The sides of a box that can be seen: those at the front of the view."""
        starts, stops = _shown(box, self.dims)
        if len(self.dims) == 2:
            return [self._face(0, (0, 1), starts, stops)]
        front = [axis for axis in range(3) if starts[axis] == self.starts[axis]]
        return [self._face(axis, [other for other in range(3) if other != axis], starts, stops) for axis in front]

    def lines(self, box: Box, dim: int) -> list[tuple[Point, Point]]:
        """Lines along a dimension of the array, spread over the sides of a box that can be seen."""
        if dim not in self.dims:
            return []
        along, (starts, stops) = self.dims.index(dim), _shown(box, self.dims)
        others = [axis for axis in range(len(self.dims)) if axis != along]
        found = []
        for axis in others:
            span = stops[axis] - starts[axis]
            many = max(1, min(round(span * math.hypot(*self.units[axis]) / APART), MOST_LINES))
            for place in range(many):
                begin, end = list[float](starts), list[float](starts)
                begin[axis] = end[axis] = starts[axis] + span * (place + 0.5) / many
                end[along] = stops[along]
                found.append((self.at(begin), self.at(end)))
        return found

    def edges(self, box: Box) -> dict[int, tuple[Point, Point]]:
        """By dimension, the middle of an outer edge of a box that runs along it, and the way outwards from there."""
        starts, stops = _shown(box, self.dims)
        found = {}
        for along, (ends, outwards) in enumerate(EDGES[len(self.dims)]):
            place = [stop if end else start for start, stop, end in zip(starts, stops, ends, strict=True)]
            middle = [(starts[along] + stops[along]) / 2 if axis == along else at for axis, at in enumerate(place)]
            found[self.dims[along]] = self.at(middle), outwards
        return {dim: edge for dim, edge in found.items() if dim != NONE}

    def _face(self, plane: int, axes: Sequence[int], starts: Sequence[int], stops: Sequence[int]) -> Face:
        """The side spanned by two axes."""
        corners = []
        for one, two in ((starts, starts), (stops, starts), (stops, stops), (starts, stops)):
            place = list(starts)
            place[axes[0]], place[axes[1]] = one[axes[0]], two[axes[1]]
            corners.append(self.at(place))
        return Face(plane, tuple(corners))


def shown_dims(ndim: int, cut: Sequence[int]) -> tuple[int, ...]:
    """The dimensions to show: all of three or fewer; else three, those that are cut first."""
    if ndim == 1:
        return (NONE, 0)
    return tuple(sorted(sorted(range(ndim), key=lambda dim: (dim not in cut, dim))[:3]))


def sides(lengths: Sequence[float], shortest: float = SHORTEST) -> tuple[float, ...]:
    """How long each dimension is drawn, the longest as 1."""
    most = max(lengths)
    return tuple(max(length / most, shortest) for length in lengths)


def view_of(box: Box, dims: tuple[int, ...], lengths: Sequence[float], room: Room) -> View:
    """The view that shows a box as large as a room lets it.

    Args:
        box: what is to be seen.
        dims: the dimensions of the array to be shown, as `shown_dims` has them.
        lengths: how long each is to be drawn, up to a factor.
        room: where on paper.
    """
    starts, stops = _shown(box, dims)
    ends = [(x * length, y * length) for (x, y), length in zip(DIRECTIONS[len(dims)], lengths, strict=True)]
    (left, width), (top, height) = (_reach([end[axis] for end in ends]) for axis in (0, 1))
    size = min(room[2] / width, room[3] / height)
    zero = (room[0] + (room[2] - size * width) / 2 - size * left, room[1] + (room[3] - size * height) / 2 - size * top)
    spans = [stop - start for start, stop in zip(starts, stops, strict=True)]
    units = tuple((size * x / span, size * y / span) for (x, y), span in zip(ends, spans, strict=True))
    return View(dims, zero, starts, units)


def middle(corners: Sequence[Point]) -> Point:
    """The centre of a polygon's corners."""
    return sum(x for x, _ in corners) / len(corners), sum(y for _, y in corners) / len(corners)


def narrowest(corners: Sequence[Point]) -> float:
    """The least distance between two opposite edges of a parallelogram."""
    edges = list(itertools.pairwise([*corners, corners[0]]))
    area = abs(sum(a * d - b * c for (a, b), (c, d) in edges)) / 2
    return area / max(*(math.dist(*edge) for edge in edges), 1e-9)


def _reach(ends: Sequence[float]) -> tuple[float, float]:
    """Where vectors that are added in any number begin, and how far they go."""
    low = sum(min(end, 0) for end in ends)
    return low, sum(max(end, 0) for end in ends) - low


def _shown(box: Box, dims: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    starts = tuple(0 if dim == NONE else box.starts[dim] for dim in dims)
    return starts, tuple(1 if dim == NONE else box.stops[dim] for dim in dims)
