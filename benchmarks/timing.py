"""Seconds of interleaved calls, so that a noisy machine cannot favour one of them.

round     every call once, in an order shuffled every time
ratio     of medians of one run, never of two
"""

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import jax

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


def timed(calls: Mapping[Name, Call], rounds: int) -> dict[Name, Times]:
    """Times of every call, after a first that warms it: until its result is finished, or as its Seconds say."""
    for call in calls.values():
        once(call)
    found, names = {name: Times() for name in calls}, list(calls)
    for _ in range(rounds):
        random.shuffle(names)
        for name in names:
            one = once(calls[name])
            found[name].seconds += one.seconds
            found[name].cpu += one.cpu
    return found


def spread(seconds: Sequence[float]) -> list[float]:
    return statistics.quantiles(seconds, method="inclusive") if len(seconds) > 1 else 3 * [*seconds]


def clocked(call: Callable[[], Result]) -> tuple[Result, float, float]:
    """The finished result of one call, its seconds, and those of the process's CPU."""
    cpu, begun = time.process_time(), time.perf_counter()
    result: Result = jax.block_until_ready(call())
    return result, time.perf_counter() - begun, time.process_time() - cpu


def once(call: Call) -> Times:
    """Begins when the process rests, in 0.3 s at most: XLA frees a call's memory after its result is there."""
    until, busy = time.monotonic() + 0.3, True
    while busy and time.monotonic() < until:
        cpu = time.process_time()
        time.sleep(1e-3)
        busy = time.process_time() - cpu > 2e-4
    result, seconds, cpu = clocked(call)
    return Times([float(result) if isinstance(result, Seconds) else seconds], [cpu])
