"""Calls by NumPy's and SciPy's names: resolves arguments, and finds and runs plans.

A dimension given twice is transformed twice, as in NumPy.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import cast

from ..layout.padded_array import AnyArray, AnyStored, LaidOut, Transformed
from ..layout.reading import is_hashable
from ..numerics.dtypes import real_dtype
from ..operators.transform import FOURIER, becomes, integer, integers, lengths_of, resolve, transform_of
from ..plans.execute import check_donated
from ..plans.options import How, options_of
from ..plans.plan import Plan
from ..plans.planning import plan_for
from ..plans.request import Setting, parts, read
from ..steps.problem import Options

Ints = Sequence[int] | None


def without_types(function: Callable[..., object]) -> None:
    """Removes types, which fill ten lines, from the signature that `help` shows."""
    signature, none = inspect.signature(function), inspect.Parameter.empty
    shown = [one.replace(annotation=none) for one in signature.parameters.values()]
    function.__signature__ = signature.replace(parameters=shown, return_annotation=none)  # type: ignore[attr-defined]


def over(
    a: AnyArray,
    kind: str,
    s: Ints,
    axes: Ints,
    norm: str | None,
    how: How,
    *,
    inverse: bool = False,
    orthogonalize: bool | None = None,
    known: type = How,
) -> Transformed:
    """The transform `kind` over several dimensions, with the options of `known`.

    Raises as `fftn`, and TypeError for a complex array if the transform is real.
    """
    options = options_of(how, known)
    request = read(a, how.get("spec"), in_place=not options.donate)
    if isinstance(request.arrays[0], LaidOut):  # XLA expects the array's sharding, and would move the result there
        options = options._replace(order="natural")
    s, axes = None if s is None else lengths_of(s), None if axes is None else integers(axes, "axes")
    what = (kind, inverse, s, axes, norm, options, orthogonalize)
    plans = _plans if is_hashable(what) else _plans.__wrapped__
    first, *others = plans(request.setting, request.planes, *what)
    if donate := options.donate:
        for plan in (first, *others):
            check_donated(request.arrays, plan.walk, plan.dtype, request.planes)
    result = first.execute(request, donate=donate)
    for plan in others:
        arrays = cast(tuple[AnyStored, ...], parts(result))
        result = plan.execute(request._replace(arrays=arrays), donate=donate)
    return result


def line(n: int | None, axis: int) -> tuple[Ints, Ints]:
    axes, s = (integer(axis, "axis"),), None if n is None else (integer(n, "n"),)
    if s is not None and s[0] < 0:
        raise ValueError(f"n is {n}: a transform needs at least one point")
    return s, axes


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
    change = becomes(kind, inverse)
    if change == "complex" and not setting.real:
        given = f"{setting.dtype}" if setting.many == 1 else "two planes"
        raise TypeError(f"real numbers are transformed here, the array is {given}: use fftn, or give its real part")
    dims, lengths = resolve(setting.start.shape, s, axes, kind, inverse)
    if len(set(dims)) == len(dims) or kind not in FOURIER:
        return (plan_for(setting, transform_of(dims, lengths, norm, inverse, kind, orthogonalize), options),)
    plans, last = list[Plan](), len(dims) - 1
    for j in range(len(dims)) if change == "real" else range(len(dims))[::-1]:
        transform = transform_of((dims[j],), (lengths[j],), norm, inverse, kind if j == last else "fft")
        plan = plan_for(setting, transform, options._replace(order="natural"))
        plans.append(plan)
        dtype = real_dtype(plan.dtype) if planes else plan.out_dtype
        many = 2 if planes and plan.out_dtype.kind == "c" else 1
        setting = dataclasses.replace(setting, start=plan.out_layout, dtype=dtype, many=many)
    return tuple(plans)
