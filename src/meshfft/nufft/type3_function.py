"""The nonuniform transform of type 3: from positions anywhere to frequencies anywhere."""

from jax import Array
from jax.typing import ArrayLike

from ..layout.layout import Spec
from ..layout.memory import check_blocks
from ..layout.padded_array import AnyArray
from ..numerics.dtypes import complex_dtype, dots_of
from ..plans.execute import moved
from ..plans.request import read
from .at_points import no_values
from .planning import Asked, plain_number
from .points import Scattered
from .type3 import type3_plan


def nufftn_type3(
    c: AnyArray,
    positions: ArrayLike,
    frequencies: Scattered,
    *,
    tol: float = 1e-5,
    precision: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Array:
    """Sums of waves from scattered positions at scattered frequencies: the
    nonuniform FFT of type 3.

        X_j = sum_i c_i exp(-2 pi i s_j . x_i)

    Args:
        c: values at the positions: their shape, with any batch dimensions
            before it.
        positions: x, of shape (..., d), in any unit of length.
        frequencies: s, in cycles (`Scattered.turns`) or radians
            (`Scattered.radians`) for each unit of length.
        tol: as `nufftn`, from 2e-6 on, and from 2e-12 on in complex128: the
            errors of two windows add up.
        precision: as `nufftn`.
        spec, out_spec: how c is cut where JAX hides that, and how the sums are
            to be.

    Returns:
        The sums, batch dimensions first and then the shape of the frequencies,
        cut by the mesh axes that cut the positions' dimensions of c.

    Raises:
        ValueError, TypeError: values of another shape than the positions,
            another number of coordinates, traced points.

    Costs a grid of 4 sigma^2 X S cells along each dimension with |x - x0| <= X
    and |s - s0| <= S, and windows twice. Differentiable in c.

    Source: Lee and Greengard, "The type 3 nonuniform FFT and its
    applications", JCP 2005; as `nufftn`.

    >>> s = mf.Scattered.turns([[1.0], [0.5]])
    >>> y = mf.nufftn_type3(np.ones(2), [[0.0], [2.5]], s)
    >>> [f"{size:.3f}" for size in abs(y)]
    ['0.000', '1.414']
    """
    request = read(c, spec)
    setting = request.setting
    if not isinstance(frequencies, Scattered):
        raise TypeError(
            f"frequencies is a {type(frequencies).__name__}: say what they are, as mf.Scattered.turns(s) or .radians(s)"
        )
    lengths = Scattered.lengths(positions)
    for points, name in ((lengths, "positions"), (frequencies.settled, "frequencies")):
        if not points.known:
            raise ValueError(f"{name} are traced: the grid for them is made on the host; call outside of jit")
    if lengths.dims != frequencies.dims:
        raise ValueError(
            f"positions have {lengths.dims} coordinates, frequencies {frequencies.dims}: give one for each dimension"
        )
    start = setting.start
    if start.shape[-len(lengths.shape) :] != lengths.shape:
        raise ValueError(f"the values have shape {start.shape}, the positions {lengths.shape}: give one for each")
    dtype, dots = complex_dtype(setting.dtype, precision), dots_of(setting.dtype, precision, None)
    if lengths.size == 0 or frequencies.size == 0:
        dims = range(start.ndim - len(lengths.shape), start.ndim)
        none: Array = moved(no_values(request, dims, frequencies.shape, dtype), out_spec)
        return none
    asked = Asked(start, (), frequencies.settled, setting.mesh, setting.machine, dtype, dots, plain_number(tol))
    plan = type3_plan(start, lengths, asked)
    for _, layout in plan.walk.pairs:
        check_blocks(layout, dtype.itemsize, setting.room, "the grid between positions and frequencies")
    y: Array = moved(plan.execute(request), out_spec)
    return y
