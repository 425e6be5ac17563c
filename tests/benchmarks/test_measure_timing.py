"""Interleaved calls: the order of calls, by hand-made clocks; nothing here is timed."""

import pytest

from benchmarks import timing
from benchmarks.timing import Call, Seconds, spread, timed


def recorders(names: str, heard: list[str]) -> dict[str, Call]:
    """One call per letter, which records that it was called and returns its number."""

    def recorder(name: str, place: int) -> Call:
        def call() -> Seconds:
            heard.append(name)
            return Seconds(99.0 if name == "z" else place)

        return call

    return {name: recorder(name, place) for place, name in enumerate(names)}


def test_a_round_has_every_call_once_in_orders_that_differ() -> None:
    """Catches a call left out of a round or made twice, a cold one, and the same order in every round."""
    heard: list[str] = []
    found = timed(recorders("abcdef", heard), 12)
    warm, *rounds = ["".join(heard[at : at + 6]) for at in range(0, 78, 6)]
    assert warm == "abcdef" and all(sorted(one) == list("abcdef") for one in rounds)
    assert len(set(rounds)) > 6, "of 720 orders twelve should hardly repeat"
    assert len({one[0] for one in rounds}) > 1, "a call that is always first meets another machine than the rest"
    assert {name: one.seconds for name, one in found.items()} == {n: [float(i)] * 12 for i, n in enumerate("abcdef")}
    assert found["c"].median == 2.0 and len(found["c"].cpu) == 12


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


def test_a_call_is_timed_to_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a clock read before the result is finished."""
    events: list[str] = []
    ticks = iter((0.0, 1.0, 10.0, 12.5))

    def clock() -> float:
        events.append("clock")
        return next(ticks)

    monkeypatch.setattr(timing.time, "perf_counter", clock)
    monkeypatch.setattr(timing.jax, "block_until_ready", lambda value: events.append(value))
    assert timed({"one": lambda: "result"}, 1)["one"].seconds == [2.5]
    assert events == ["clock", "result", "clock"] * 2


@pytest.mark.parametrize(("left", "slept"), [(0.0, 0.001), (0.05, 0.051), (9.0, 0.3)])
def test_a_call_begins_when_the_process_rests(monkeypatch: pytest.MonkeyPatch, left: float, slept: float) -> None:
    """Catches a call, cold or in a round, that pays for what another left, as XLA frees memory after a result is there,
    and endless waits.

    Left are the seconds of CPU that other threads take from the start and after each call, at the pace of the clock.
    """
    now, ends, begun = 0.0, left, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def call() -> None:
        nonlocal ends
        begun.append(now)
        ends = now + left

    monkeypatch.setattr(timing.time, "monotonic", lambda: now)
    monkeypatch.setattr(timing.time, "process_time", lambda: min(now, ends))
    monkeypatch.setattr(timing.time, "sleep", sleep)
    timed({"one": call}, 1)
    assert begun == pytest.approx([slept, 2 * slept], abs=0.0025)
