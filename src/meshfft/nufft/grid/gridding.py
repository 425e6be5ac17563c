"""From a block of the fine grid to the scattered points over it, and back: one device's part.

    interpolate   r[j] = sum_l prod_i phi(l_i; v_j) Y[cell_j + l]
    spread        Y[g] = sum_j prod_i phi(g_i - cell_j,i; v_j) r[j],   its exact transpose: nothing is conjugated

over the W = width + 2 slack cells of each dimension from a point's lowest one. A form says how (see point_grid,
gather_grid and tile_grid); all coils share the weights. Slots beyond the `count` chunks that hold points take memory,
but no time.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ...kept_verdicts import Trial
from ...layout.placement import varying
from . import gather_grid, point_grid, tile_grid
from .weights import Form as Form
from .weights import Slots


class Kernels(NamedTuple):
    """`interpolate` and `spread` without `along`, on a kind of device; elsewhere as below."""

    interpolate: Callable[[Array, Slots, Form], Array]
    spread: Callable[[Array, Slots, Form, tuple[int, ...]], Array]
    trials: Callable[[int, tuple[int, ...], Form], tuple[Trial, ...]]  # of coils, a block and a form


KERNELS: dict[str, Kernels] = {}  # by the kind of a form; a folder for a kind of device adds its own
KINDS = {"points": point_grid, "gather": gather_grid, "tiles": tile_grid, "strips": tile_grid}


def interpolate(block: Array, tables: Slots, form: Form, along: tuple[int, ...] = ()) -> Array:
    """Values at a device's points.

    Args:
        block: (C, B_1, .., B_d) complex, with its halo.
        tables: the device's points in slots.
        form: how.
        along: dimensions whose window is replaced by its derivative in the offset, of the second order where one is
            named twice: for derivatives in the points.

    Returns:
        (C, slots), 0 in empty slots.
    """
    zeros = _zeros((block.shape[0], tables.cell.shape[0]), block, tables)
    return KINDS[form.kind].interpolate(block, tables, form, along, zeros)


def spread(values: Array, tables: Slots, form: Form, shape: tuple[int, ...], along: tuple[int, ...] = ()) -> Array:
    """The transpose of `interpolate`: the block (C, *shape) of values (C, slots); what empty slots hold is not read."""
    zeros = _zeros((values.shape[0], *shape), values, tables)
    return KINDS[form.kind].spread(values, tables, form, along, zeros)


def _zeros(shape: tuple[int, ...], given: Array, tables: Slots) -> Array:
    """What a loop begins with: it varies over all mesh axes over which its turns do."""
    zeros = jnp.zeros(shape, given.dtype)
    return varying([zeros, given, tables.cell, tables.offset, tables.start, tables.count], frozenset())[0]


def kernels_of(form: Form) -> Kernels:
    """What a form is done by."""
    return KERNELS.get(form.kind, Kernels(interpolate, spread, lambda *_: ()))
