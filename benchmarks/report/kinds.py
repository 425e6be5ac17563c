"""Kinds: what a row is, told by its own fields, in this one place.

    cases        benchmarks fft, dense, scaling      a case and the seconds of every call
    profiles     meshfft profile                     seconds of a step in a kind of work
    evaluation   benchmarks paper                    one number of the paper's evaluation
    tiers        benchmarks/dense_tables.py          errors of a precision tier by length
    choices      benchmarks/choice.py                a walk's seconds, modelled and measured
    others       any script                          numbers, and the command that made them

A row that has the fields of a kind but not its values, and one that has the fields of none, is not understood: such
rows are counted and told, and are in no figure. Invariant: numbers that are drawn are finite, and seconds are positive.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from meshfft.numerics.tiers import TIERS
from meshfft.profile.kinds import KINDS as WORK
from meshfft.profile.rows import BENCHMARK, from_rows

from ..measure.rows import Row as CaseRow
from ..paper.rows import Row as PaperRow
from .content import MEASURED, MODELLED
from .reading import Line

Values = dict[str, Any]
REFUSALS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
MOST_DIMS, MOST_NUMBER = 16, 2**62
LEAST, MOST = 1e-30, 1e30  # of seconds and errors


class Rows(NamedTuple):
    """Rows by kind, each kind in the order in which it came.

    Attributes:
        cases, profiles, evaluation, tiers, choices, others: as above.
        unknown: those that are not understood.
    """

    cases: list[CaseRow]
    profiles: list[Values]
    evaluation: list[PaperRow]
    tiers: list[Values]
    choices: list[Values]
    others: list[Values]
    unknown: list[Line]


class Kind(NamedTuple):
    """How one kind of row is known and read.

    Attributes:
        name: a field of `Rows`.
        words: how so many of them are told.
        fields: what it has.
        read: makes what the sections take, or refuses the values.
        where: what further it has to be.
    """

    name: str
    words: str
    fields: frozenset[str]
    read: Callable[[Values], Any]
    where: Callable[[Values], bool] = lambda values: True


def sort(lines: Sequence[Line]) -> Rows:
    """The rows by kind."""
    found = Rows([], [], [], [], [], [], [])
    for line in lines:
        kind = kind_of(line.values)
        try:
            if kind is not None:
                getattr(found, kind.name).append(kind.read(line.values))
        except REFUSALS:
            kind = None
        if kind is None:
            found.unknown.append(line)
    return found


def kind_of(values: Values) -> Kind | None:
    """The kind whose fields a row has."""
    return next((kind for kind in KINDS if kind.fields <= values.keys() and kind.where(values)), None)


def number(value: Any) -> float:
    """A number that is not negative, and neither so large nor so small that an axis could not hold it.

    Raises:
        ValueError: it is not.
    """
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if right and (value == 0 or LEAST <= value <= MOST) else _refuse(value)


def positive(value: Any) -> float:
    """A finite number above zero, as `number`."""
    return number(value) or _refuse(value)


def size(value: Any) -> int:
    """A positive integer, as `number`."""
    right = isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_NUMBER
    return value if right else _refuse(value)


def sizes(values: Any) -> tuple[int, ...]:
    """A few positive integers, as `number`."""
    return tuple(map(size, values)) if isinstance(values, list) and len(values) <= MOST_DIMS else _refuse(values)


def lengths(values: Any) -> tuple[int, ...]:
    """The shape of an array of one dimension at least, as `number`."""
    return sizes(values) or _refuse(values)


def word(value: Any) -> str:
    """A text, as `number`."""
    return value if isinstance(value, str) else _refuse(value)


def _case(values: Values) -> CaseRow:
    """A measured case, or an absent one; seconds are those of the row, medians are made anew."""
    for name in ("peer", "dtype", "kind", "method", "order", "precision", "absent"):
        word(values[name])
    _check_laid(values)
    list(map(positive, values["seconds"]))
    if values["error"] is not None:
        number(values["error"])
    return CaseRow.from_dict(values)


def _check_laid(values: Values) -> None:
    """Refuses sizes that are none, and a spec of anything but names."""
    shape, mesh, samples = lengths(values["shape"]), sizes(values["mesh"]), sizes(values["samples"])
    right = len(samples) in (0, len(shape)) and len(mesh) <= len(shape)
    if not right or math.prod(shape) * max(math.prod(mesh), 1) > MOST_NUMBER:
        _refuse(shape)
    for entry in values["spec"]:
        list(map(word, entry if isinstance(entry, list) else [] if entry is None else [entry]))


def _profile(values: Values) -> Values:
    """A part of a profile, which `profile.rows` can read."""
    (part,) = from_rows([values]).parts
    known = (part.kind in WORK, values["known"] in (MEASURED, MODELLED), len(part.by_device) == len(values["devices"]))
    step = part.step is None or 0 <= part.step < len(list(map(word, values["steps"])))
    if not all(known) or not step or not values["runs"]:
        _refuse(values)
    list(map(number, part.by_device)), list(map(positive, values["runs"]))
    list(map(number, values["hidden"].values())), lengths(values["shape"])
    (
        sizes(list(values["mesh"].values())),
        [word(values[name]) for name in ("transform", "dtype", "method", "order", "device")],
    )
    return values


def _evaluation(values: Values) -> PaperRow:
    """A number of the paper's evaluation."""
    row = PaperRow.from_dict(values)
    lengths(values["shape"]), size(row.cores), [word(part) for part in (row.figure, row.family, row.algorithm, row.how)]
    if row.seconds is not None:
        positive(row.seconds)
    sizes(list(row.mesh.values())), list(map(number, row.parts.values()))
    if row.compiled:
        list(map(positive, (row.compiled["model_compute"], row.compiled["ratio"], row.parts["compute"])))
    return row


def _tier(values: Values) -> Values:
    """Errors of a tier by N; what the tier promises goes with them."""
    if word(values["precision"]) not in TIERS or values["multiplications"] not in (3, 4):
        _refuse(values)
    found = {int(name.removeprefix("N = ")): number(v) for name, v in values.items() if name.startswith("N = ")}
    return (
        {**values, "stated": positive(values["stated"]), "errors": dict(sorted(found.items()))} if found else _refuse(0)
    )


def _choice(values: Values) -> Values:
    """A walk with its seconds, which are some at least."""
    list(map(positive, values["seconds"])), positive(values["modelled"]), lengths(values["shape"])
    sizes(list(values["mesh"].values())), list(map(word, values["methods"])), word(values["case"])
    return (
        values if values["seconds"] and isinstance(values["methods"], list) and values["methods"] else _refuse(values)
    )


def _other(values: Values) -> Values:
    """Whatever has a command, and a number or several."""
    word(values["command"])
    facts = ("cores", "load_before")
    numbers = [v for name, v in values.items() if name not in facts and isinstance(v, int | float | list)]
    return values if numbers else _refuse(values)


def _refuse(value: Any) -> Any:
    raise ValueError(f"{value!r} is not what such a row has")


KINDS = (
    Kind("cases", "measured cases", frozenset({"peer", "seconds", "absent", "facts"}), _case),
    Kind(
        "profiles",
        "parts of profiles",
        frozenset({"benchmark", "by_device"}),
        _profile,
        lambda v: v["benchmark"] == BENCHMARK,
    ),
    Kind("evaluation", "numbers of the paper's evaluation", frozenset({"figure", "quantity", "known"}), _evaluation),
    Kind("tiers", "precision tiers", frozenset({"table", "stated"}), _tier, lambda v: v["table"] == "tiers"),
    Kind("choices", "walks beside their models", frozenset({"methods", "modelled", "seconds"}), _choice),
    Kind("others", "rows of other scripts", frozenset({"command"}), _other),
)
