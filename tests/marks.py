"""Which parameters of a test run by default, and which with the slow tests only."""

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Every parameter; those that are not among the quick ones find the same faults at greater cost."""
    return [one if one in quick else slow_case(one) for one in every]


def slow_rows(quick: Callable[..., bool], *every: Iterable[Any]) -> list[Any]:
    """All rows of several parameters; by default each value runs with some others, not with all of them."""
    return [row if quick(*row) else slow_case(*row) for row in itertools.product(*every)]


def slow_case(*values: Any) -> Any:
    """A row of parameters that runs with the slow tests only, compiled with as little effort as those by default."""
    return pytest.param(*values, marks=(pytest.mark.slow, pytest.mark.more))
