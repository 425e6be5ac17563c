"""Meshes: the ways to lay devices over the dimensions of an array."""

import math
from collections.abc import Iterator, Sequence

from jax.sharding import AbstractMesh, PartitionSpec

AXES = "xyzw"  # names of the mesh axes, for the dimensions they cut


def meshes(shape: Sequence[int], count: int, alike: bool) -> Iterator[tuple[AbstractMesh, PartitionSpec]]:
    """Every factoring of a device count, one factor for each dimension and none larger than its size: mesh and spec.

    Where dimensions of one size are alike, of their factorings there is one, the largest factor first.
    """
    for factors in _factorings(count, tuple(shape)):
        if not alike or factors == _canonical(factors, shape):
            cut = {name: parts for name, parts in zip(AXES, factors, strict=False) if parts > 1}
            names = (name if name in cut else None for name in AXES[: len(shape)])
            yield AbstractMesh(tuple(cut.values()), tuple(cut)), PartitionSpec(*names)


def _factorings(count: int, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as a product of one factor for each dimension, none larger than its size."""
    if len(shape) == 1:
        if count <= shape[0]:
            yield (count,)
        return
    for first in range(min(count, shape[0]), 0, -1):
        if count % first == 0 and count // first <= math.prod(shape[1:]):
            yield from ((first, *rest) for rest in _factorings(count // first, shape[1:]))


def _canonical(factors: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...]:
    """The same factors with those of equal dimensions in falling order."""
    pools = {n: sorted((f for f, m in zip(factors, shape, strict=True) if m == n), reverse=True) for n in shape}
    return tuple(pools[n].pop(0) for n in shape)
