"""The record of a stored result, which plans its inverse: a Plan's arguments, axes, units and versions.

    unit of a transformed dimension  1/mm,   spacing  1 / (L dx)   for a transform of period L of samples dx apart

Invariant: a Record that was read is one that a plan could have made; no check takes work or memory in proportion to a
number in it.
"""

import dataclasses
import itertools
import json
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

from ..extras import all_versions
from ..layout.layout import axis_sizes, dim_name, from_spec
from ..numerics.dtypes import TIERS
from ..operators.transform import KINDS, NORMS, Transform, resolve, transform_of
from ..plans.plan import Plan
from ..walks.choice import ORDERS
from ..walks.search import METHODS
from .refusals import Refused
from .source import Labels, Source

KEY = "meshfft"  # an array's record, or the name of a group's array
FORMAT = 1
MOST_DIMENSIONS = 32
MOST_TEXT = 100
SHORTEST, LONGEST = 1e-100, 1e100  # of a spacing, which must have an inverse

Size = Annotated[int, range(1, 2**60 + 1)]
Dtype = Annotated[str, ("float32", "float64", "complex64", "complex128")]
Axes = tuple[tuple[str, ...], ...]


class Dimension(NamedTuple):
    name: str
    unit: str
    spacing: float


@dataclasses.dataclass(frozen=True)
class Record:
    """The origin of a stored array.

    Attributes:
        kind, inverse, axes, norm: arguments of `plan`; if several sets make this transform, the first.
        lengths: its `s`, because half a spectrum does not determine an odd length.
        shape, dtype: of the transform's input.
        out_shape, out_dtype: of the stored array.
        mesh: the mesh axes and their sizes.
        in_spec, out_spec: the mesh axes that cut each dimension before and after.
        versions: of the packages that made it.
        labels: names, coordinates and attributes stored beside the array; not in `to_dict`.
    """

    kind: Annotated[str, KINDS]
    inverse: bool
    axes: tuple[Annotated[int, range(MOST_DIMENSIONS)], ...]
    norm: Annotated[str, NORMS]
    lengths: tuple[Size, ...]
    shape: tuple[Size, ...]
    dtype: Dtype
    out_shape: tuple[Size, ...]
    out_dtype: Dtype
    order: Annotated[str, ORDERS]
    method: Annotated[str, tuple(METHODS)]
    precision: Annotated[str, tuple(TIERS)]
    mesh: dict[str, Size]
    in_spec: Axes
    out_spec: Axes
    dimensions: tuple[Dimension, ...]
    versions: dict[str, str]
    labels: Labels | None = dataclasses.field(default=None, compare=False)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(dimension.unit for dimension in self.dimensions)

    @property
    def spacing(self) -> tuple[float, ...]:
        return tuple(dimension.spacing for dimension in self.dimensions)

    def to_dict(self) -> dict[str, object]:
        plain = {name: _lists(getattr(self, name)) for name in FIELDS}
        return {"format": FORMAT, **plain, "dimensions": [dimension._asdict() for dimension in self.dimensions]}

    @staticmethod
    def from_dict(value: object, where: str) -> "Record":
        """Builds a record from untrusted values; raises ValueError that names the file `where` and the field."""
        again = f"transform it again, or remove the attribute from {where}"
        form = value.get("format") if isinstance(value, dict) else None
        if not isinstance(value, dict) or type(form) is not int:
            what = f"whose format is {_short(form)}" if isinstance(value, dict) else f"that is {_short(value)}"
            raise ValueError(f"{where} has a record {what}: {again}")
        if form != FORMAT:
            other = f"{where} has a record of format {_short(form)}, this version reads {FORMAT}"
            raise ValueError(f"{other}: install the version that made it, or {again}")
        fields: dict[str, Any] = {}
        for name, kind in FIELDS.items():
            try:
                fields[name] = conformed(kind, value.get(name))
            except (ValueError, OverflowError):
                raise ValueError(f"{where} has a record whose {name} is {_short(value.get(name))}: {again}") from None
        record = Record(**fields)
        if not _possible(record):
            raise ValueError(f"{where} has a record that contradicts itself: {again}")
        return record


FIELDS = {field.name: field.type for field in dataclasses.fields(Record) if field.compare}


def record_of(plan: Plan, units: Sequence[str] | None = None, spacing: Sequence[float] | None = None) -> Record:
    """The record of a plan's result.

    Args:
        units: of each dimension of the plan's input, empty if unknown; None if all are unknown.
        spacing: of the positions along each dimension of its input; None means 1.

    Raises ValueError if samples are not uniform, there are margins, or units or spacing do not fit the dimensions.
    """
    ndim = len(plan.shape)
    if any(plan.margin):
        raise ValueError(f"the result has margins of {plan.margin}: such a result has no record, write it without one")
    units, spacing = ("",) * ndim if units is None else units, (1.0,) * ndim if spacing is None else spacing
    if not len(units) == len(spacing) == ndim:
        many = f"{len(units)} units and {len(spacing)} spacings for {ndim} dimensions"
        raise ValueError(f"{many}: give one of each for a dimension")
    kind, inverse, norm, lengths = _arguments(plan.transform)
    return Record(
        kind=kind,
        inverse=inverse,
        axes=plan.transform.dims,
        norm=norm,
        lengths=lengths,
        shape=plan.shape,
        dtype=plan.in_dtype.name,
        out_shape=plan.out_shape,
        out_dtype=plan.out_dtype.name,
        order=plan.options.order,
        method=plan.options.method,
        precision=plan.dots[0].tier,
        mesh=axis_sizes(plan.mesh),
        in_spec=plan.in_layout.axes,
        out_spec=plan.out_layout.axes,
        dimensions=_dimensions(plan.transform, units, spacing),
        versions=all_versions(),
    )


def recorded(source: Source, stored: object) -> Source:
    found = json.loads(stored) if isinstance(stored, str) else stored
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"attribute {KEY!r} is no record")
    if not found:
        return source
    record = Record.from_dict(found, str(source.path))
    if (record.out_shape, record.out_dtype) != (source.shape, source.dtype.name):
        of = f"{record.out_dtype} {record.out_shape} and holds {source.dtype} {source.shape}"
        raise Refused(f"{source.path} has a record of {of}: remove its attribute {KEY!r}")
    return dataclasses.replace(source, record=found, units=record.units, spacing=record.spacing)


def inverse_options(record: Record) -> dict[str, Any]:
    """Arguments of `meshfft.plan` for the inverse; add a mesh of `record.mesh`.

    The inverse has `record.lengths` points along each axis, whatever was cropped or padded. Leave out `spec` on another
    mesh. The method is free, because not every method can undo itself.
    """
    return {
        "shape": record.out_shape,
        "spec": tuple(names or None for names in record.out_spec),
        "kind": record.kind,
        "inverse": not record.inverse,
        "axes": record.axes,
        "s": record.lengths,
        "norm": record.norm,
        "dtype": record.out_dtype,
        "order": record.order,
        "precision": record.precision,
    }


def _arguments(transform: Transform) -> tuple[str, bool, str, tuple[int, ...]]:
    lengths = tuple(getattr(matrix, "length", 0) for matrix in transform.matrices)
    for inverse, kind, norm in itertools.product((False, True), KINDS, NORMS):  # a dct-3 is also the inverse dct-2
        try:
            if all(lengths) and transform_of(transform.dims, lengths, norm, inverse, kind) == transform:
                return kind, inverse, norm, lengths
        except (ValueError, IndexError):  # these lengths do not have the kind
            continue
    raise ValueError("the samples are not the uniform ones: such a result has no record, write it without one")


def _dimensions(transform: Transform, units: Sequence[str], spacing: Sequence[float]) -> tuple[Dimension, ...]:
    found = [Dimension(dim_name(d, len(units)), units[d], float(spacing[d])) for d in range(len(units))]
    for dim, matrix in zip(transform.dims, transform.matrices, strict=True):
        name, unit, step = found[dim]
        found[dim] = Dimension(name, _inverse_unit(unit), 1 / ((matrix.period or 1) * step))
    return tuple(one if SHORTEST <= one.spacing <= LONGEST else Dimension(one.name, "", 1.0) for one in found)


def _inverse_unit(unit: str) -> str:
    """1/mm for mm, and mm for 1/mm."""
    if unit.startswith("1/"):
        inner = unit[2:]
        return inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner
    return unit and (f"1/({unit})" if "/" in unit else f"1/{unit}")


def _possible(record: Record) -> bool:
    try:
        dims, lengths = resolve(record.shape, record.lengths, record.axes, record.kind, record.inverse)
        transform = transform_of(dims, lengths, record.norm, record.inverse, record.kind)
        expected = list(record.shape)
        for dim, length in zip(dims, transform.lengths, strict=True):
            expected[dim] = length
        for shape, spec in ((record.shape, record.in_spec), (record.out_shape, record.out_spec)):
            if not len(spec) == len(shape) == len(record.dimensions):
                return False
            from_spec(shape, record.mesh, spec)
        return tuple(expected) == record.out_shape
    except (ValueError, TypeError, ArithmeticError):
        return False


def _lists(value: object) -> object:
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def _short(value: object) -> str:
    return repr(value[:40]) if isinstance(value, str) else f"a {type(value).__name__}" if value else repr(value)


def is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT and (not value or value.isprintable())


PLAIN: dict[type, Callable[[Any], bool]] = {
    str: is_text,
    float: lambda value: type(value) in (int, float) and SHORTEST <= value <= LONGEST,
    int: lambda value: type(value) is int,
    bool: lambda value: type(value) is bool,
}


def conformed(kind: Any, value: object) -> Any:
    """Lists become tuples, objects dictionaries or NamedTuples."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in PLAIN and PLAIN[kind](value):
        return kind(value)
    if origin is Annotated:
        found = conformed(parts[0], value)
        if found not in parts[1]:
            raise ValueError(f"{found} is none of {parts[1]}")
        return found
    if kind in PLAIN or not isinstance(value, list if origin is tuple else dict) or len(value) > MOST_DIMENSIONS:
        raise ValueError(f"the value is no {kind}, or has more than {MOST_DIMENSIONS} parts")
    if isinstance(value, list):
        return tuple(conformed(parts[0], part) for part in value)
    if origin is dict:
        return {conformed(str, name): conformed(parts[1], part) for name, part in value.items()}
    return kind(**{name: conformed(part, value.get(name)) for name, part in kind.__annotations__.items()})
