"""numpy.fft's shifts on sharded arrays of any type: zero frequency to the middle of a dimension, and back.

    fftshift:  y[i] = x[(i - n // 2) mod n]        ifftshift:  y[i] = x[(i + n // 2) mod n]

A walk of rolls, one for each dimension: no arithmetic, so the values come back bit for bit, in the type they had.
"""

from jax import Array

from ..layout.layout import Layout, Spec
from ..layout.padded_array import AnyArray, mapped
from ..operators.transform import dims_of
from ..plans.execute import as_stored, moved
from ..plans.request import formed, read
from ..steps import Roll
from ..walks.walk import Walk
from .calls import Ints


def fftshift(x: AnyArray, axes: int | Ints = None, *, spec: Spec | None = None, out_spec: Spec | None = None) -> Array:
    """Moves zero frequency to the middle of a sharded spectrum, as
    numpy.fft.fftshift.

        y[i] = x[(i - n // 2) mod n]   along every dimension in `axes`

    Args:
        x: a sharded, replicated or single-device array of any type, or its
            real and imaginary part (re, im).
        axes: a dimension or several; None means all. One given twice is
            shifted twice.
        spec, out_spec: as `fftn`.

    Returns:
        The shifted array, of the same type; as (re, im) where it came so.

    Raises:
        ValueError: an axis is out of range, or the spec does not fit or does
            not divide the array.
        TypeError: the array is not numeric, or axes are no integers.

    Sends at most one block per device for each dimension that is cut, in at
    most two permutes; where sizes do not divide, twice as much. No gather.

    >>> mf.fftshift(jnp.arange(5)).tolist()
    [3, 4, 0, 1, 2]
    """
    return _shifted(x, axes, spec, out_spec, 1)


def ifftshift(x: AnyArray, axes: int | Ints = None, *, spec: Spec | None = None, out_spec: Spec | None = None) -> Array:
    """Moves zero frequency back from the middle, as numpy.fft.ifftshift: the
    inverse of `fftshift`, with its arguments.

        y[i] = x[(i + n // 2) mod n]   along every dimension in `axes`

    Costs as `fftshift`.

    >>> mf.ifftshift(mf.fftshift(jnp.arange(5))).tolist()
    [0, 1, 2, 3, 4]
    """
    return _shifted(x, axes, spec, out_spec, -1)


def shift_walk(start: Layout, dims: tuple[int, ...], sign: int) -> Walk:
    """Rolls by n // 2, or back, once for every time that a dimension is named; none where nothing moves."""
    named = sorted({*dims}) if 0 not in start.shape else []
    rolls = (Roll(d, sign * dims.count(d) * (start.shape[d] // 2) % start.shape[d]) for d in named)
    return Walk(start, tuple(roll for roll in rolls if roll.by))


def _shifted(x: AnyArray, axes: int | Ints, spec: Spec | None, out_spec: Spec | None, sign: int) -> Array:
    arrays, setting, _ = read(x, spec)
    start = setting.start
    dims = dims_of(start.ndim, range(start.ndim) if axes is None else axes)
    if not start.tail:
        raise ValueError(f"the array has padding within {start.label()}: shift it in natural order")
    walk = shift_walk(start, dims, sign)
    if walk.steps:
        arrays = tuple(mapped(lambda one: as_stored((one,), walk, setting.mesh, False)[0], x) for x in arrays)
    y: Array = moved(formed(arrays), out_spec, spec)
    return y
