"""Runs a plan step by step: each step is compiled, then run, and both are timed."""

import time
from collections.abc import Callable
from typing import Any

import jax

from ..layout.padded_array import stored_of
from .progress import Report
from .show import Timing


def run_stages(plan: Any, read: Callable[[], Any], report: Report) -> tuple[Any, list[Timing]]:
    """The transform of what `read` gives, and what reading and each step took.

    Args:
        plan: the transform.
        read: makes the array, laid out as the plan expects; not given as an array, which its caller would keep alive.
        report: is told what begins, and the bytes of this process that each step has done.
    """
    report.begin("read")
    begun = time.perf_counter()
    x = jax.block_until_ready(read())
    timings = [Timing("read", None, time.perf_counter() - begun)]
    for stage in plan.stages:
        done = held_bytes(x)
        x, timing = _run_stage(stage, x, report)
        report.advance(done)
        timings.append(timing)
    return x, timings


def held_bytes(x: Any) -> int:
    """Bytes of the blocks that this process holds."""
    return sum(shard.data.nbytes for shard in stored_of(x).addressable_shards)


def _run_stage(stage: Any, x: Any, report: Report) -> tuple[Any, Timing]:
    report.begin(f"compile {stage.name}")
    begun = time.perf_counter()
    compiled = jax.jit(stage).lower(x).compile()
    ready = time.perf_counter()
    report.begin(stage.name)
    y = jax.block_until_ready(compiled(x))
    return y, Timing(stage.name, ready - begun, time.perf_counter() - ready)
