"""Drawn cases: shapes, meshes, specs and axes of every kind the library promises."""

from typing import NamedTuple

from hypothesis import strategies as st
from jax.sharding import PartitionSpec

MESHES = (
    (1,),
    (2,),
    (3,),
    (5,),
    (8,),
    (2, 2),
    (2, 4),
    (4, 2),
    (1, 8),
    (3, 2),
    (7, 1),
    (2, 2, 2),
    (2, 1, 3),
    (2, 2, 2, 1),
)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17)


class Case(NamedTuple):
    """One transform: logical shape, mesh sizes, spec and transformed axes."""

    shape: tuple[int, ...]
    mesh: tuple[int, ...]
    spec: PartitionSpec
    axes: tuple[int, ...]


@st.composite
def cases(draw: st.DrawFn, power: int = 0) -> Case:
    """Any case; with `power`, sizes that the number of shards to this power divides."""
    mesh = draw(st.sampled_from(MESHES))
    ndim = draw(st.integers(1, 4))
    entries: list[tuple[str, ...]] = [()] * ndim
    for axis in draw(st.permutations("xyzw"[: len(mesh)])):
        dim = draw(st.integers(-1, ndim - 1))  # -1 leaves the axis idle
        if dim >= 0:
            entries[dim] = (*entries[dim], axis)
    shape = [draw(st.sampled_from(SIZES)) for _ in range(ndim)]
    while ndim > 2 and _points(shape) > 4000:
        shape[shape.index(max(shape))] = draw(st.sampled_from(SIZES[:6]))
    if power:
        parts = [_points([mesh["xyzw".index(a)] for a in axes]) for axes in entries]
        shape = [max(1, n // p**power) * p**power for n, p in zip(shape, parts, strict=True)]
    axes = draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))
    return Case(tuple(shape), mesh, PartitionSpec(*(e or None for e in entries)), tuple(axes))


def _points(shape: list[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count
