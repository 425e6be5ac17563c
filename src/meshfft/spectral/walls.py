"""Boxes with walls: an array with the plan of its series in waves that the boundaries allow, by axis.

    periodic     exp(2 pi i j x / length)
    dirichlet    sin(pi (j + 1) x / length), 0 at the walls: sine transform II
    neumann      cos(pi j x / length), whose slope is 0 there: cosine transform II

Samples are at x = (n + 1/2) length / N between walls. Half spectra have their axis last, so axes with walls are first.
"""

from collections.abc import Iterable, Sequence

from ..layout.padded_array import AnyArray, AnyStored
from ..operators.transform import check_known, reals
from ..plans.plan import Plan
from ..steps.problem import Options
from .fields import Lengths, Where, field

WALLS = {"dirichlet": "dst-2", "neumann": "dct-2"}
BOUNDARIES = ("periodic", *WALLS)


def boundaries(boundary: str | Iterable[str], many: int, known: Sequence[str] = BOUNDARIES) -> tuple[str, ...]:
    kinds = (boundary,) * many if isinstance(boundary, str) else tuple(boundary)
    if len(kinds) != many:
        raise ValueError(f"there are {len(kinds)} boundaries for {many} axes: give one for all, or one for each axis")
    if "open" in kinds and "open" not in known:
        remedy = "differentiate f first, as in poisson(derivative(f, axis), boundary='open')"
        raise ValueError(f"boundary 'open' is for poisson, whose result is then not periodic: {remedy}")
    for kind in kinds:
        check_known("boundary", kind, known)
    return kinds


def walled(
    x: AnyArray, axes: Sequence[int], kinds: Sequence[str], lengths: Lengths, options: Options, spec: Where
) -> tuple[AnyStored, Plan, Lengths, list[int]]:
    """As `field`, and the plan's order of axes, with lengths in it."""
    order = sorted(range(len(axes)), key=lambda j: kinds[j] == "periodic")
    walls = [WALLS[kinds[j]] for j in order if kinds[j] in WALLS]
    if lengths is not None and (given := reals(lengths)) is not None:  # others are refused where periods are made
        lengths = tuple(given[j] for j in order) if len(given) == len(axes) else given
    array, plan = field(x, tuple(axes[j] for j in order), options, spec, walls=walls)
    return array, plan, lengths, order
