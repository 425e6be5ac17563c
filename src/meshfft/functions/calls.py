"""A call of a numpy.fft function: its arguments resolved, its array taken in, its transforms run one after the other.

A dimension that is given twice is transformed twice, as NumPy does.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from ..layout.layout import Spec
from ..numerics.dtypes import real_dtype
from ..operators.transform import FOURIER, integer, integers, resolve, transform_of, turns
from ..plans.plan import Plan
from ..plans.planning import Options, plan_for
from ..plans.request import Setting, is_hashable, parts, read


def called(
    a: Any,
    spec: Spec | None,
    kind: str,
    inverse: bool,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    options: Options,
    orthogonalize: bool | None = None,
) -> Any:
    """The transform of one of KINDS (see operators.transform), forward or inverse.

    Raises:
        ValueError, TypeError: as `fftn`; a complex array where a real one is transformed.
    """
    request = read(a, spec)
    s, axes = None if s is None else integers(s, "s"), None if axes is None else integers(axes, "axes")
    what = (kind, inverse, s, axes, norm, options, orthogonalize)
    found = _plans if is_hashable(what) else _plans.__wrapped__
    result = a
    for plan in found(request.setting, request.planes, *what):
        result = plan.execute(request)
        request = request._replace(arrays=parts(result))
    return result


@functools.lru_cache(maxsize=1024)
def _plans(
    setting: Setting,
    planes: bool,
    kind: str,
    inverse: bool,
    s: tuple[int, ...] | None,
    axes: tuple[int, ...] | None,
    norm: str | None,
    options: Options,
    orthogonalize: bool | None,
) -> tuple[Plan, ...]:
    """One plan, or where a dimension is given twice one for each time."""
    _check_real(setting, kind, inverse)
    dims, lengths = resolve(setting.start.shape, s, axes, kind, inverse)
    if len(set(dims)) == len(dims) or kind not in FOURIER:
        return (plan_for(setting, transform_of(dims, lengths, norm, inverse, kind, orthogonalize), options),)
    plans = list[Plan]()
    for j in _in_turn(len(dims), kind, inverse):
        last = j == len(dims) - 1
        transform = transform_of(dims[j : j + 1], lengths[j : j + 1], norm, inverse, kind if last else "fft")
        plans.append(plan_for(setting, transform, options._replace(order="natural")))
        setting = _after(setting, plans[-1], planes)
    return tuple(plans)


def _after(setting: Setting, plan: Plan, planes: bool) -> Setting:
    """The setting of a plan's result."""
    dtype = real_dtype(plan.dtype) if planes else plan.out_dtype
    many = 2 if planes and plan.out_dtype.kind == "c" else 1
    return dataclasses.replace(setting, start=plan.out_layout, dtype=dtype, many=many)


def one(value: int | None, name: str) -> tuple[int, ...] | None:
    """One integer as a sequence; no length n as None."""
    if value is None and name == "n":
        return None
    found = integer(value, name)
    if name == "n" and not found >= 0:
        raise ValueError(f"n is {found}: a transform needs at least one point")
    return (found,)


def _in_turn(many: int, kind: str, inverse: bool) -> Sequence[int]:
    """Places of the axes in the order in which NumPy transforms them: the last first, but last where it gets real."""
    return range(many) if turns(kind, inverse) == "real" else range(many)[::-1]


def _check_real(setting: Setting, kind: str, inverse: bool) -> None:
    fits = turns(kind, inverse) != "complex" or setting.real
    found = f"{setting.dtype}" if setting.many == 1 else "two planes"
    if not fits:
        raise TypeError(f"real numbers are transformed here, the array is {found}: use fftn, or give its real part")
