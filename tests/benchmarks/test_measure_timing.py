"""Calls that take turns: who is called when, by hand-made clocks; nothing here is timed."""

from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.measure.timing import SLOW, THIN, interleaved, spread, thinned, timer, timer_of_fresh


def recorders(names: str, heard: list[str]) -> list[Callable[[], float]]:
    """A call for each letter, which notes that it was called and says a number of its own."""

    def recorder(name: str, place: int) -> Callable[[], float]:
        def call() -> float:
            heard.append(name)
            return float(place)

        return call

    return [recorder(name, place) for place, name in enumerate(names)]


def test_a_round_has_every_call_once_in_orders_that_differ() -> None:
    """Catches a call left out of a round or made twice, and the same order in every round."""
    heard: list[str] = []
    found = interleaved(recorders("abcdef", heard), 12)
    rounds = ["".join(heard[at : at + 6]) for at in range(0, 72, 6)]
    assert all(sorted(one) == list("abcdef") for one in rounds)
    assert len(set(rounds)) > 6, "of 720 orders twelve should hardly repeat"
    assert len({one[0] for one in rounds}) > 1, "a call that is always first meets another machine than the rest"
    assert found == [[float(place)] * 12 for place in range(6)]


def test_orders_follow_a_seed() -> None:
    """Catches a seed that is not used."""
    orders = []
    for seed in (1, 1, 2):
        heard: list[str] = []
        interleaved(recorders("abcdefgh", heard), 3, seed=seed)
        orders.append(heard)
    assert orders[0] == orders[1] != orders[2]


def test_slow_calls_join_fewer_rounds() -> None:
    """Catches slow calls in every round, in none, and fast ones that are taken for slow."""
    assert thinned([0.1, 1.0, 1.0, SLOW, SLOW * 1.01]) == [1, 1, 1, 1, THIN] and thinned([]) == []
    heard: list[str] = []
    told: list[None] = []
    found = interleaved(recorders("ab", heard), 7, [1, THIN], told=lambda: told.append(None))
    assert Counter(heard) == {"a": 7, "b": 3} and [len(seconds) for seconds in found] == [7, 3] and len(told) == 7
    assert set(heard[:2]) == {"a", "b"}, "the first round has all"


@pytest.mark.parametrize(
    ("seconds", "quartiles"),
    [
        ([3.0], (3.0, 3.0, 3.0)),
        ([1.0, 2.0], (1.25, 1.5, 1.75)),
        ([5.0, 1.0, 3.0, 2.0, 4.0], (2.0, 3.0, 4.0)),
        ([1.0, 1.0, 1.0, 100.0], (1.0, 1.0, 25.75)),
    ],
)
def test_medians_and_quartiles_worked_out_by_hand(seconds: list[float], quartiles: tuple[float, ...]) -> None:
    """Catches a mean for a median, quartiles of unsorted numbers, and a single number without a spread."""
    assert spread(seconds) == pytest.approx(quartiles)


def test_a_timer_waits_for_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a clock read before the result is finished."""
    events: list[str] = []
    ticks = iter((10.0, 12.5))

    def clock() -> float:
        events.append("clock")
        return next(ticks)

    monkeypatch.setattr("benchmarks.measure.timing.time.perf_counter", clock)
    monkeypatch.setattr("benchmarks.measure.timing.jax.block_until_ready", lambda value: events.append(value))
    assert timer(lambda: "result")() == 2.5
    assert events == ["clock", "result", "clock"]


def test_what_a_call_eats_is_made_for_each_call() -> None:
    """Catches an input that is used twice, which is gone after a donating call."""
    heard: list[str] = []
    fresh = iter("abc")
    run = timer_of_fresh(heard.append, lambda: next(fresh))
    assert all(run() >= 0 for _ in range(3))
    assert heard == ["a", "b", "c"]
