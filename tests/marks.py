"""Parameters of a test that run by default, and those that run with the slow tests only."""

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Every parameter; all but the quick ones are slow, and find the same faults at greater cost."""
    return [one if one in quick else slow_case(one) for one in every]


def slow_rows(quick: Callable[..., bool], *every: Iterable[Any]) -> list[Any]:
    """All combinations of several parameters; those that are not `quick` are slow."""
    return [row if quick(*row) else slow_case(*row) for row in itertools.product(*every)]


def slow_case(*values: Any) -> Any:
    """A row of parameters that runs with the slow tests only, but is compiled with little effort."""
    return pytest.param(*values, marks=(pytest.mark.slow, pytest.mark.more))
