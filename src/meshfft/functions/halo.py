"""Halos: a device's block, extended by cells of its neighbours, and the adjoint: <add_halo(y), x> = <y, halo(x)>."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ..layout.layout import Layout, Spec
from ..layout.memory import check_blocks
from ..layout.padded_array import AnyArray, Transformed
from ..operators.transform import check_once, dims_of, integers, is_integer
from ..plans.execute import in_own_type
from ..plans.request import on_seen_arrays, read
from ..steps import Halo
from ..walks.walk import Walk
from .calls import Ints

Width: TypeAlias = int | Sequence[int] | Sequence[tuple[int, int]] | Sequence[int | tuple[int, int]]


@on_seen_arrays
def halo(
    x: AnyArray,
    width: Width,
    *,
    axes: int | Ints = None,
    periodic: bool | Sequence[bool] = True,
    spec: Spec | None = None,
) -> Transformed:
    """Each device's block, extended by cells of the neighbouring blocks.

        block [b] -> [before, b, after]   along every axis, corners included

    The result has n + p (before + after) cells along an axis of n cells in p
    blocks; inside `shard_map` it is the device's extended block. A periodic
    axis that is not cut wraps around, as numpy.pad does with "wrap".

    Args:
        x: as `a` of `fftn`, of any type.
        width: cells on both sides, or a number or a pair (before, after) for
            each axis. A halo may be wider than a block.
        axes: a dimension or several; None means all.
        periodic: whether the ends of an axis are neighbours, for all axes or
            for each; if not, cells beyond an end are 0.
        spec: as `fftn`; `jit` under Auto axes needs it, because the result's
            shape depends on the sharding.

    Returns:
        The extended array, cut as `x` and of its type; as (re, im) if `x` is.

    Raises:
        ValueError: an axis, a width or a spec that does not fit; unequal
            blocks, unless only the last is short, but no shorter than the halo.
        TypeError: the array is not numeric, axes or widths are not integers.

    Sends only the halos: two permutes for each cut axis, and two more for each
    further block that a halo extends over.

    >>> mf.halo(jnp.arange(4), 1).tolist()
    [3, 0, 1, 2, 3, 0]
    """
    return _walked(x, width, axes, periodic, spec, False)


@on_seen_arrays
def add_halo(
    y: AnyArray,
    width: Width,
    *,
    axes: int | Ints = None,
    periodic: bool | Sequence[bool] = True,
    spec: Spec | None = None,
) -> Transformed:
    """The adjoint of `halo`: removes each block's outer cells, and adds them to
    the neighbours that own them.

        [before, b, after] -> block [b]   along every axis

    Use it when devices have added values, such as masses of particles, to cells
    of their halos.

    Args:
        y: an array like a result of `halo`.
        width, axes, periodic, spec: as `halo`. Cells beyond an end that is not
            periodic are dropped.

    Returns, raises and costs as `halo`.

    >>> mf.add_halo(np.array([3, 0, 1, 2, 3, 0]), 1).tolist()
    [0, 1, 2, 6]
    """
    return _walked(y, width, axes, periodic, spec, True)


def _walked(
    x: AnyArray, width: Width, axes: int | Ints, periodic: bool | Sequence[bool], spec: Spec | None, adds: bool
) -> Transformed:
    arrays, setting, _ = read(x, spec)
    start = setting.start
    dims = dims_of(start.ndim, range(start.ndim) if axes is None else axes)
    check_once(dims, "give it once")
    flags = (periodic,) * len(dims) if isinstance(periodic, bool) else tuple(periodic)
    if len(flags) != len(dims) or not all(isinstance(flag, bool) for flag in flags):
        raise ValueError(f"periodic is {flags} for {len(dims)} axes: give True or False, or one for each axis")
    widths = _widths(width, len(dims))
    _check_cells(start, dict(zip(dims, widths, strict=True)), adds)
    halos = zip(dims, widths, flags, strict=True)
    steps = [Halo(dim, *cells, flag, adds) for dim, cells, flag in halos if any(cells)]
    walk = Walk(start, tuple(steps[::-1] if adds else steps))
    check_blocks(walk.end, setting.dtype.itemsize, setting.room, "the result")
    return in_own_type(arrays, walk, setting.mesh)


def _widths(width: Width, many: int) -> list[tuple[int, int]]:
    listed: Iterable[object] = (
        [width] * many if is_integer(width) else width if isinstance(width, Iterable) else [width]
    )
    each = [integers(cells, "width") for cells in listed]
    if len(each) != many:
        raise ValueError(f"there are {len(each)} widths for {many} axes: give one for all, or one for each axis")
    for cells in each:
        if len(cells) > 2 or not cells or min(cells) < 0:
            raise ValueError(
                f"width {cells} is no width: give the cells on both sides, or a pair (before, after), 0 or more"
            )
    return [(cells[0], cells[-1]) for cells in each]


def _check_cells(start: Layout, widths: Mapping[int, tuple[int, int]], adds: bool) -> None:
    """Raises ValueError unless all blocks but the last are full, and the last is no shorter than its halo."""
    if not start.tail:
        raise ValueError(f"the array has padding within {start.label()}: use it in natural order")
    for dim, cells in widths.items():
        parts, most, halos = start.parts[dim], max(cells), sum(cells) if adds else 0
        n, block = start.shape[dim] - parts * halos, start.block[dim] - halos
        last = n - (parts - 1) * block
        if n < 1 and most:
            what = "without their halos, nothing is left" if adds else "there is no cell beside a block"
            raise ValueError(
                f"axis {dim} has {start.shape[dim]} cells over {parts} blocks: {what}; give a smaller width"
            )
        if n < block * parts and most and (last < most or block != -(-n // parts)):
            raise ValueError(
                f"axis {dim} has {n} cells over {parts} blocks of {block}, the last of {max(last, 0)}: a halo of "
                f"{most} needs as many there; give a smaller width, or a size that {parts} divides, as {block * parts}"
            )
