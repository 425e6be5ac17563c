"""Rules for plain values that anybody may have written: each gives back what it was given, or raises ValueError.

No rule does work, or takes memory, in proportion to a number it is given.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import check

MOST_DIMENSIONS = 32
MOST_SIZE = 2**60
MOST_TEXT = 100
LEAST, MOST = 1e-100, 1e100  # lengths beyond these are no lengths

Rule = Callable[[Any], Any]


def one_of(known: Sequence[str]) -> Rule:
    """One of some words."""
    return lambda value: _kept(isinstance(value, str) and value in known, value)


def many(rule: Rule) -> Rule:
    """A list, as a tuple, whose parts keep a rule."""
    return lambda value: tuple(map(rule, _kept(isinstance(value, list) and len(value) <= MOST_DIMENSIONS, value)))


def named(rule: Rule) -> Rule:
    """An object whose values keep a rule."""
    return lambda value: {text(name): rule(part) for name, part in _named(value)}


def text(value: Any) -> str:
    """A short line."""
    return _kept(isinstance(value, str) and len(value) <= MOST_TEXT and (not value or value.isprintable()), value)


def count(value: Any) -> int:
    """An integer that can be the size of a dimension, 0 included."""
    return _kept(type(value) is int and 0 <= value <= MOST_SIZE, value)


def size(value: Any) -> int:
    """An integer that can be the size of a dimension of an array that has values."""
    return _kept(count(value) > 0, value)


def axis(value: Any) -> int:
    """A dimension."""
    return _kept(type(value) is int and 0 <= value < MOST_DIMENSIONS, value)


def flag(value: Any) -> bool:
    """True or false."""
    return _kept(isinstance(value, bool), value)


def distance(value: Any) -> float:
    """A positive length that its inverse can be computed of."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(_kept(number and math.isfinite(value) and LEAST <= value <= MOST, value))


def _kept(right: bool, value: Any) -> Any:
    check(right, "another value is expected")
    return value


def _named(value: Any) -> Any:
    return _kept(isinstance(value, dict) and len(value) <= MOST_DIMENSIONS, value).items()
