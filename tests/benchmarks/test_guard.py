"""`python -m benchmarks guard`: its verdicts."""

import pytest

from benchmarks.guard import compared

SIZES = {"compiling": 1.0, "temporaries": 1000, "instructions": 200}
BEFORE = [1.0, 1.02, 0.98, 1.01, 0.99]


@pytest.mark.parametrize(
    ("sizes", "seconds", "worse"),
    [
        ({}, [0.97, 1.5, 1.01, 1.02, 1.03], ""),
        ({"compiling": 3.0}, BEFORE, ""),
        ({"temporaries": 1011, "instructions": 150}, BEFORE, "temporaries"),
        ({"instructions": 203}, [1.2, 1.1, 1.06, 1.1, 1.06], "seconds, instructions"),
    ],
)
def test_what_is_worse(sizes: dict[str, float], seconds: list[float], worse: str) -> None:
    """Catches a slower, larger or longer program that passes, and one slow call of a busy machine that fails."""
    row = compared("one", 1.05, (SIZES, BEFORE), (SIZES | sizes, seconds))
    assert row["worse"] == worse and row["instructions"] == (SIZES | sizes)["instructions"] / 200


def test_cases_without_a_program_have_no_sizes() -> None:
    """Catches a division by zero temporaries, and of those that an eager call does not know."""
    for before in ({"compiling": 1.0}, {"compiling": 1.0, "temporaries": 0}):
        row = compared("one", 1.05, (before, BEFORE), (before, BEFORE))
        assert row["worse"] == "" and "temporaries" not in row


def test_a_peer_that_takes_longer_is_above_one() -> None:
    """Catches a quotient upside down: here over before, but a peer over here."""
    known, slow = SIZES | {"cpu": 2.0}, [2 * seconds for seconds in BEFORE]
    row = compared("one", 3, (known, BEFORE), (known | {"cpu": 1.0}, slow), (known | {"cpu": 5.0}, slow))
    assert (row["seconds"], row["peer"], row["cpu"], row["peer_cpu"]) == (2.0, 1.0, 0.5, 5.0)
