"""Calls of NumPy's and SciPy's names: arguments resolved, the plan for them looked up, and run.

A dimension that is given twice is transformed twice, as NumPy does, by one plan after the other.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_args, get_type_hints

from jax import Array

from ..layout.layout import Spec
from ..layout.padded_array import AnyArray
from ..numerics.dtypes import Precision, real_dtype
from ..operators.transform import FOURIER, becomes, integer, integers, lengths_of, resolve, transform_of
from ..plans.execute import check_donated
from ..plans.plan import Plan
from ..plans.planning import Options, plan_for
from ..plans.request import Setting, is_hashable, parts, read

Ints = Sequence[int] | None
PLAIN = Options()
F = TypeVar("F", bound=Callable[..., object])


class How(TypedDict, total=False):
    """The options that every transform takes: `fftn` says what they are."""

    method: str
    order: str
    spec: Spec | None
    out_spec: Spec | None
    precision: Precision
    ring: str
    engine: str
    wire: str
    donate: bool


def with_options(function: F) -> F:
    """The function with its `**how` spelled out in the signature that `help` shows."""
    signature = inspect.signature(function)
    *named, how = signature.parameters.values()
    (options,), defaults = get_args(how.annotation), Options._field_defaults
    spelled = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=defaults.get(name))
        for name, kind in get_type_hints(options).items()
    ]
    shown = signature.replace(parameters=[*named, *spelled])
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function


def without_types(function: Callable[..., object]) -> None:
    """Leaves the types out of the signature that `help` shows, where unions fill ten lines; the text says them."""
    signature, none = inspect.signature(function), inspect.Parameter.empty
    shown = [one.replace(annotation=none) for one in signature.parameters.values()]
    function.__signature__ = signature.replace(parameters=shown, return_annotation=none)  # type: ignore[attr-defined]


def options_of(how: Mapping[str, Any], known: type) -> tuple[Spec | None, Options]:
    """The spec and all other options of a call.

    Raises:
        TypeError: an option that the TypedDict `known` does not name.
    """
    if not how:
        return None, PLAIN
    if unknown := ", ".join(sorted(how.keys() - known.__annotations__.keys())):
        raise TypeError(f"{unknown}: no such option, use one of {', '.join(known.__annotations__)}")
    return how.get("spec"), Options(**{name: value for name, value in how.items() if name != "spec"})


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
) -> Array:
    """The transform of one of KINDS (see operators.transform) over several dimensions, with the options of `known`.

    Raises:
        ValueError, TypeError: as `fftn`; a complex array where a real one is transformed.
    """
    spec, options = options_of(how, known)
    request = read(a, spec)
    s, axes = lengths_of(s), None if axes is None else integers(axes, "axes")
    what = (kind, inverse, s, axes, norm, options, orthogonalize)
    plans = _plans if is_hashable(what) else _plans.__wrapped__
    first, *others = plans(request.setting, request.planes, *what)
    for plan in (first, *others) if options.donate else ():
        check_donated(request.arrays, plan.walk, plan.dtype, request.planes)
    result: Array = first.execute(request, donate=options.donate)
    for plan in others:
        result = plan.execute(request._replace(arrays=parts(result)), donate=options.donate)
    return result


def line(n: int | None, axis: int) -> tuple[Ints, Ints]:
    """`s` and `axes` of a transform along one dimension."""
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
    """One plan, or where a dimension is given twice one for each time."""
    change = becomes(kind, inverse)
    if change == "complex" and not setting.real:
        given = f"{setting.dtype}" if setting.many == 1 else "two planes"
        raise TypeError(f"real numbers are transformed here, the array is {given}: use fftn, or give its real part")
    dims, lengths = resolve(setting.start.shape, s, axes, kind, inverse)
    if len(set(dims)) == len(dims) or kind not in FOURIER:
        return (plan_for(setting, transform_of(dims, lengths, norm, inverse, kind, orthogonalize), options),)
    plans, last = list[Plan](), len(dims) - 1
    for j in range(len(dims)) if change == "real" else range(len(dims))[::-1]:  # real before complex
        transform = transform_of((dims[j],), (lengths[j],), norm, inverse, kind if j == last else "fft")
        plans.append(plan_for(setting, transform, options._replace(order="natural")))
        setting = _after(setting, plans[-1], planes)
    return tuple(plans)


def _after(setting: Setting, plan: Plan, planes: bool) -> Setting:
    """The setting of a plan's result."""
    dtype = real_dtype(plan.dtype) if planes else plan.out_dtype
    many = 2 if planes and plan.out_dtype.kind == "c" else 1
    return dataclasses.replace(setting, start=plan.out_layout, dtype=dtype, many=many)
