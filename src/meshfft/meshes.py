"""Meshes: where the shape of the mesh is free, the factorings of the device count, ranked by what a walk costs."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax.sharding import AbstractMesh, PartitionSpec
from jax.typing import DTypeLike

from .errors import check
from .plan import Plan
from .planning import plan
from .topology import topology as named

AXES = "xyzw"  # names of the mesh axes, for the dimensions they cut


def ranked(shape: Sequence[int], topology: str, dtype: DTypeLike = "complex64", **options: Any) -> list[Plan]:
    """Plans for every way to lay a machine's devices over the dimensions, the best first: those that fit, by seconds.

    Dimensions of one size that are transformed alike are alike: of their factorings one is tried, the largest factor
    first. Takes seconds for thousands of devices.

    Args:
        shape: logical shape.
        topology: a machine without its devices, such as "v3:32x32".
        dtype: type of the input.
        options: as `plan`, but for mesh and spec.

    Raises:
        ValueError: an argument that does not fit, or a method that has no walk on any mesh.
    """
    many = named(topology).devices
    check(0 < len(shape) <= len(AXES), f"shape {tuple(shape)} has {len(shape)} dimensions: give a mesh for so many")
    found, refusal = [], f"{many} devices cannot be laid over shape {tuple(shape)}: give a mesh and a spec"
    for factors in _factorings(many, tuple(shape)):
        if options.get("axes") is None and factors != _canonical(factors, shape):
            continue
        cut = [(name, parts) for name, parts in zip(AXES, factors, strict=False) if parts > 1]
        spec = PartitionSpec(*(name if parts > 1 else None for name, parts in zip(AXES, factors, strict=False)))
        mesh = AbstractMesh(tuple(parts for _, parts in cut), tuple(name for name, _ in cut))
        try:
            found.append(plan(shape, mesh=mesh, spec=spec, dtype=dtype, topology=topology, **options))
        except ValueError as error:
            refusal = str(error)
    check(bool(found), refusal)
    return sorted(found, key=lambda one: (one.fits is False, one.seconds or 0.0))


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
