"""Seconds of interleaved calls, so that a noisy machine cannot favour one of them.

round     every call once, in an order shuffled every time
thin      a call that takes over SLOW times the median of all joins one round in THIN
ratio     of medians of one run, never of two
"""

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import jax

SLOW, THIN = 4.0, 3
Call = Callable[[], Any]
Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


class Seconds(float):
    """The result of a call that has timed itself."""


@dataclasses.dataclass
class Times:
    """Seconds by the clock and of the process's CPU, a number for each call."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def timed(
    calls: Mapping[Name, Call],
    rounds: int,
    *,
    thin: bool = False,
    told: Callable[[], None] = lambda: None,
) -> dict[Name, Times]:
    """Times of every call, after one that warms it: to the finished result, or the Seconds that it returns.

    With `thin` slow calls join fewer rounds; `told` is called after every round.
    """
    warm = [_once(call).seconds[0] for call in calls.values()]
    every = dict(zip(calls, thinned(warm) if thin else [1] * len(warm), strict=True))
    found = {name: Times() for name in calls}
    for number in range(rounds):
        due = [name for name in calls if number % every[name] == 0]
        random.shuffle(due)
        for name in due:
            one = _once(calls[name])
            found[name].seconds += one.seconds
            found[name].cpu += one.cpu
        told()
    return found


def thinned(warm: Sequence[float]) -> list[int]:
    usual = statistics.median(warm) if warm else 0.0
    return [THIN if seconds > SLOW * usual else 1 for seconds in warm]


def spread(seconds: Sequence[float]) -> list[float]:
    return statistics.quantiles(seconds, method="inclusive") if len(seconds) > 1 else 3 * [*seconds]


def clocked(call: Callable[[], Result]) -> tuple[Result, float, float]:
    """The finished result of one call, its seconds, and those of the process's CPU."""
    cpu, begun = time.process_time(), time.perf_counter()
    result: Result = jax.block_until_ready(call())
    return result, time.perf_counter() - begun, time.process_time() - cpu


def _once(call: Call) -> Times:
    result, seconds, cpu = clocked(call)
    return Times([float(result) if isinstance(result, Seconds) else seconds], [cpu])
