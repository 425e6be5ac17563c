"""Seconds of calls that take turns, so that a noisy machine cannot favour one of them.

    round     every call once, in an order shuffled every time
    slow      a call that takes over SLOW times the median of all joins one round in THIN
    spread    the quartiles about the median

Nothing is known here of what is called.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

SLOW, THIN = 4.0, 3
Timer = Callable[[], float]


class Spread(NamedTuple):
    """The median of some seconds and the quartiles about it."""

    low: float
    median: float
    high: float


def spread(seconds: Sequence[float]) -> Spread:
    """The quartiles of at least one number."""
    (first, *others) = seconds
    return Spread(*statistics.quantiles(seconds, method="inclusive")) if others else Spread(first, first, first)


def timer(call: Callable[[], Any]) -> Timer:
    """A call that returns the seconds until its result is finished."""

    def run() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(call())
        return time.perf_counter() - begun

    return run


def timer_of_fresh(call: Callable[[Any], Any], make: Callable[[], Any]) -> Timer:
    """As `timer`, of a call that eats its input (it is donated): a new one is made before the clock starts."""

    def run() -> float:
        x = jax.block_until_ready(make())
        begun = time.perf_counter()
        jax.block_until_ready(call(x))
        return time.perf_counter() - begun

    return run


def thinned(warm: Sequence[float]) -> list[int]:
    """In one round of how many each call takes part, by the seconds each took when all were warm."""
    usual = statistics.median(warm) if warm else 0.0
    return [THIN if seconds > SLOW * usual else 1 for seconds in warm]


def interleaved(
    timers: Sequence[Timer],
    rounds: int,
    every: Sequence[int] | None = None,
    seed: int | None = None,
    told: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """Seconds of every call in so many rounds.

    Args:
        timers: the calls, each of which returns its seconds.
        rounds: how many; the first has all calls.
        every: in one round of how many each call takes part; by default in all.
        seed: of the orders; by default they are new each time.
        told: called after every round.

    Returns:
        A list for each call: rounds / every numbers, rounded up.
    """
    found: list[list[float]] = [[] for _ in timers]
    shuffle, often = random.Random(seed).shuffle, every or [1] * len(timers)
    for turn in range(rounds):
        due = [place for place in range(len(timers)) if turn % often[place] == 0]
        shuffle(due)
        for place in due:
            found[place].append(timers[place]())
        told()
    return found
