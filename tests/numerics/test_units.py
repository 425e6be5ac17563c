"""Numbers as text."""

import numpy as np
import pytest

from meshfft.numerics.units import bound, plain, quantity


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (200.4, 2, "200"),
        (1234.0, 3, "1230"),
        (99.96, 3, "100"),
        (1.25, 3, "1.25"),
        (0.5, 3, "0.5"),
        (0.00352, 2, "0.0035"),
        (2e-7, 2, "2e-07"),
        (0.0, 2, "0"),
        (-31.0, 2, "-31"),
        (float("inf"), 2, "inf"),
    ],
)
def test_seconds_are_no_powers_of_ten(value: float, digits: int, text: str) -> None:
    """Catches 2e+02 s for 200 s, and insignificant digits."""
    assert plain(value, digits) == text


def test_quantities_have_prefixes_however_large() -> None:
    """Catches a number of twenty digits before the last prefix that was thought of."""
    assert [quantity(v, "B") for v in (512, 1.05e9, 2.0**67, 1e27)] == ["512 B", "1.05 GB", "148 EB", "1.00 RB"]
    assert [quantity(v) for v in (9994, 9996, 99960, 999499, 999500)] == [
        "9.99 k",
        "10.0 k",
        "100 k",
        "999 k",
        "1.00 M",
    ]


def test_bounds_are_rounded_upward() -> None:
    """Catches 0.0002 printed for an error of 0.000244, which is then exceeded, and digits that make it much larger."""
    assert [bound(v) for v in (2.44e-4, 1e-10, 0.0118, 0.5, 0.0)] == ["0.00025", "1.1e-10", "0.012", "0.5", "0"]
    for value in 10 ** np.random.default_rng(3).uniform(-20, 3, 1000):
        assert value <= float(bound(value)) <= 1.11 * value
