"""The arguments of a transform: its `Definition`, and the `Options` of each function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar, cast, get_args, get_type_hints

import numpy as np
from jax import Array
from jax.typing import DTypeLike

from ..collectives.levels import WireLike, wire_name
from ..layout.layout import Layout, Spec
from ..layout.padded_array import PlanePair
from ..numerics.dtypes import Precision
from ..operators.points import Points
from ..operators.transform import Kind, check_known, check_once, integers, is_integer, lengths_of, natural_dtype
from ..steps.problem import EFFORTS, ENGINE_OPTIONS, RINGS, USUAL, Options
from ..walks.choice import ORDERS
from ..walks.search import METHODS
from .request import Function, OnArrays, on_arrays

F = TypeVar("F", bound=Callable[..., object])
P = ParamSpec("P")
PointsLike = Points | Sequence[Points | None] | None
Widths = tuple[tuple[int, int], ...]  # dimensions, and margins of their blocks


class InPlane(Protocol):
    """Scattered points of `nufft/`."""

    @property
    def in_turns(self) -> np.ndarray: ...
    @property
    def dims(self) -> int: ...


class Definition(NamedTuple):
    """The transform, as in `plan`."""

    s: Sequence[int] | None = None
    axes: Sequence[int] | None = None
    dtype: DTypeLike | None = None
    norm: str | None = None
    kind: Kind = "fft"
    inverse: bool = False
    points: PointsLike | InPlane = None
    margin: int | Sequence[int] = 0
    modes: int | Sequence[int] | None = None

    @property
    def in_dtype(self) -> np.dtype:
        return np.dtype(self.dtype or natural_dtype(self.kind))


class DenseHow(TypedDict, total=False):
    spec: Spec | None
    out_spec: Spec | None
    precision: Precision
    multiplications: int | None
    ring: str


class RingHow(DenseHow, total=False):
    wire: WireLike


class SpectrumHow(TypedDict, total=False):
    method: str
    spec: Spec | None
    precision: Precision
    ring: str
    engine: str
    wire: WireLike


class FieldHow(SpectrumHow, total=False):
    out_spec: Spec | None


class How(FieldHow, total=False):
    order: str
    donate: bool


class PlanHow(TypedDict, total=False):
    s: Sequence[int] | None
    axes: Sequence[int] | None
    dtype: DTypeLike | None
    norm: str | None
    kind: str | Sequence[str]
    inverse: bool
    points: PointsLike | InPlane
    margin: int | Sequence[int]
    modes: int | Sequence[int] | None
    method: str
    order: str
    precision: Precision
    multiplications: int | None
    ring: str
    engine: str
    wire: WireLike
    out_spec: Spec | None
    effort: str
    precompute: bool


def check_options(options: Options) -> None:
    method, ring = options.method, options.ring
    known = {"method": METHODS, "order": ORDERS, "ring": RINGS, "engine": ENGINE_OPTIONS, "effort": EFFORTS}
    for name, values in known.items():
        check_known(name, getattr(options, name), values)
    if ring != "auto" and method == "transpose":
        raise ValueError(f"method 'transpose' has no ring, and ring is {ring!r}: drop ring=, or use method='kdft'")
    if options.precompute and method in ("transpose", "cooley-tukey"):
        raise ValueError(f"method {method!r} has no matrix rows to keep: drop precompute=, or use method='kdft'")


def options_of(how: Mapping[str, Any], known: type) -> Options:
    """A call's options without `spec`; TypeError for one that `known` lacks."""
    if not how:
        return USUAL
    _check_named(how, known)
    return chosen({name: value for name, value in how.items() if name in Options._fields})


def records_of(arguments: Mapping[str, Any]) -> tuple[Definition, Options]:
    _check_named(arguments, PlanHow)
    what = {name: value for name, value in arguments.items() if name in Definition._fields}
    how = {name: value for name, value in arguments.items() if name not in what}
    given = Definition(**what)
    axes = None if given.axes is None else integers(given.axes, "axes")
    kind = given.kind if isinstance(given.kind, str) else tuple(given.kind)
    modes = None if given.modes is None else integers(given.modes, "modes")
    given = given._replace(s=lengths_of(given.s), axes=axes, kind=kind, modes=modes)  # an iterator is read once
    return given, chosen(how)


def chosen(how: Mapping[str, Any]) -> Options:
    options = USUAL._replace(**{**how, "wire": wire_name(how.get("wire", USUAL.wire))})
    precision: object = options.precision
    return options._replace(precision=float(precision)) if isinstance(precision, np.floating) else options


def _check_named(given: Mapping[str, object], known: type) -> None:
    if unknown := ", ".join(sorted(given.keys() - known.__annotations__.keys())):
        raise TypeError(f"{unknown}: no such option, use one of {', '.join(known.__annotations__)}")


def with_options(function: Function[P]) -> OnArrays[P, PlanePair]:
    return on_arrays(spelled(function))


def onto_real(function: Function[P]) -> OnArrays[P, Array]:
    return cast(OnArrays[P, Array], on_arrays(spelled(function)))


def spelled(function: F) -> F:
    """Spells out `**how` in the signature that `help` shows."""
    signature = inspect.signature(function)
    *named, how = signature.parameters.values()
    (options,), defaults = get_args(how.annotation), Options._field_defaults | Definition._field_defaults
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=defaults.get(name))
        for name, kind in get_type_hints(options).items()
    ]
    function.__signature__ = signature.replace(parameters=[*named, *parameters])  # type: ignore[attr-defined]
    return function


def widths_of(margin: int | Sequence[int], start: Layout, dims: tuple[int, ...]) -> Widths:
    """Dimensions with margins, and their widths; TypeError or ValueError if they do not fit."""
    given = integers(margin, "margin")
    each = given * len(dims) if is_integer(margin) else given
    if len(each) != len(dims):
        raise ValueError(f"margin {given} has {len(each)} widths for {len(dims)} axes: give one, or one for each axis")
    check_once(dims)
    for dim, width in zip(dims, each, strict=True):
        if width < 0:
            raise ValueError(f"margin {width} of axis {dim} is negative: give the number of cells, 0 or more")
        if width:
            _check_blocks(dim, width, start.shape[dim], start.parts[dim])
    return tuple(sorted((dim, width) for dim, width in zip(dims, each, strict=True) if width))


def _check_blocks(dim: int, width: int, size: int, parts: int) -> None:
    block, rest = divmod(size, parts)
    if rest:
        whole = f"a multiple of {parts}, such as {parts * (max(block, 2 * width) + 1)}"
        raise ValueError(f"axis {dim} has {size} cells over {parts} blocks: with margins, give {whole}")
    if block <= 2 * width:
        what = f"margin {width} on both sides leaves nothing of the blocks of axis {dim}, which have {block} cells"
        remedy = f"give at most {max(block - 1, 0) // 2}, or larger blocks (shape counts the margins of every block)"
        raise ValueError(f"{what}: {remedy}")
