"""numpy.fft's shifts on sharded arrays of any type: zero frequency to the middle of a dimension, and back.

    fftshift:  y[i] = x[(i - n // 2) mod n]        ifftshift:  y[i] = x[(i + n // 2) mod n]

A walk of rolls, one for each dimension: no arithmetic, so the values come back bit for bit, in the type they had.
"""

from collections.abc import Sequence
from typing import Any

from ..layout.layout import Layout, Spec
from ..layout.padded_array import AnyArray, mapped
from ..operators.transform import dims_of
from ..plans.execute import as_stored, moved
from ..plans.request import formed, read
from ..steps import Roll
from ..walks.walk import Walk


def fftshift(
    x: AnyArray,
    axes: int | Sequence[int] | None = None,
    *,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """Moves zero frequency to the middle of a sharded spectrum, as numpy.fft.fftshift.

        y[i] = x[(i - n // 2) mod n]   along every dimension in `axes`

    Args:
        x: a sharded, replicated or single-device array of any type, or a tuple of planes (re, im).
        axes: a dimension or several; None means all. One given twice is shifted twice.
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        out_spec: the PartitionSpec of the result; None means that of the array.

    Returns:
        The shifted array, of the same type, or its planes.

    Raises:
        ValueError: an axis is out of range, or the spec does not fit or does not divide the array.
        TypeError: the array is not numeric, or axes are no integers.

    Sends at most one block per device for each dimension that is cut, in at most two permutes; where sizes do not
    divide, twice as much. No gather.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.fftshift(jnp.arange(5)).tolist()
    [3, 4, 0, 1, 2]
    """
    return _shifted(x, axes, spec, out_spec, 1)


def ifftshift(
    x: AnyArray,
    axes: int | Sequence[int] | None = None,
    *,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """Moves zero frequency back from the middle, as numpy.fft.ifftshift: the inverse of `fftshift`, with its arguments.

        y[i] = x[(i + n // 2) mod n]   along every dimension in `axes`

    Costs as `fftshift`.
    """
    return _shifted(x, axes, spec, out_spec, -1)


def shift_walk(start: Layout, dims: tuple[int, ...], sign: int) -> Walk:
    """Rolls by n // 2, or back, once for every time that a dimension is named; none where nothing moves."""
    named = sorted({*dims}) if 0 not in start.shape else []
    rolls = (Roll(d, sign * dims.count(d) * (start.shape[d] // 2) % start.shape[d]) for d in named)
    return Walk(start, tuple(roll for roll in rolls if roll.by))


def _shifted(x: Any, axes: int | Sequence[int] | None, spec: Spec | None, out_spec: Spec | None, sign: int) -> Any:
    arrays, setting, _ = read(x, spec)
    start, mesh = setting.start, setting.mesh
    dims = dims_of(start.ndim, range(start.ndim) if axes is None else axes)
    if not start.tail:
        raise ValueError(f"the array has padding within {start.label()}: shift it in natural order")
    walk = shift_walk(start, dims, sign)
    shifted = [mapped(lambda *one: as_stored(one, walk, mesh, False)[0], x) for x in arrays] if walk.steps else arrays
    return moved(formed(tuple(shifted)), out_spec, spec)
