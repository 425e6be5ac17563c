"""Which parameters of a test run by default, and which with the slow tests only."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(quick: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """Every parameter; those that are not among the quick ones find the same faults at greater cost."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in every]


def slow_case(*values: Any) -> Any:
    """A row of several parameters that runs with the slow tests only."""
    return pytest.param(*values, marks=pytest.mark.slow)
