"""Runs a plan step by step: each step is compiled, then run, and both are timed."""

import time
from collections.abc import Callable
from typing import Any

import jax

from .show import Timing


def run_stages(
    plan: Any, read: Callable[[], jax.Array], report: Callable[[str], None]
) -> tuple[jax.Array, list[Timing]]:
    """The transform of what `read` gives, and what reading and each step took.

    Args:
        plan: the transform.
        read: makes the array, laid out as the plan expects; not given as an array, which its caller would keep alive.
        report: is told what begins, before it does.
    """
    report("read")
    begun = time.perf_counter()
    x = jax.block_until_ready(read())
    timings = [Timing("read", None, time.perf_counter() - begun)]
    for stage in plan.stages:
        x, timing = _run_stage(stage, x, report)
        timings.append(timing)
    return x, timings


def _run_stage(stage: Any, x: jax.Array, report: Callable[[str], None]) -> tuple[jax.Array, Timing]:
    report(f"compile {stage.name}")
    begun = time.perf_counter()
    compiled = jax.jit(stage).lower(x).compile()
    ready = time.perf_counter()
    report(stage.name)
    y = jax.block_until_ready(compiled(x))
    return y, Timing(stage.name, ready - begun, time.perf_counter() - ready)
