"""Runs a compiled plan under jax.profiler: the effect, and nothing else. What it leaves, `trace` reads."""

import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from ..errors import check
from ..extras import installed
from ..inspect.aot import compile_plan
from ..layout.padded_array import padded
from ..plans.plan import Plan
from .trace import RUN

PERFETTO = "perfetto_trace.json.gz"  # as jax.profiler calls it


def check_profiler(platforms: str | None) -> None:
    """Refuses to run where jax.profiler would crash: under a TPU compiler that is not of this JAX's version.

    Args:
        platforms: those that JAX may use, `jax.config.jax_platforms`; without any, all that are installed.

    Raises:
        ImportError: JAX loads libtpu, and asks for another.
    """
    if not installed("libtpu") or (platforms and "tpu" not in platforms):
        return
    found = (re.match(r"libtpu==([\d.]+)", line) for line in metadata.requires("jax") or ())
    wanted, have = next((match[1] for match in found if match), ""), metadata.version("libtpu")
    remedy = f"pip install 'libtpu=={wanted}*', or for CPU devices set JAX_PLATFORMS=cpu in the environment"
    check(have.startswith(wanted), f"with libtpu {have} the profiler of this JAX would crash: {remedy}", ImportError)


def prepared(plan: Plan, mesh: Any) -> tuple[jax.stages.Compiled, Any]:
    """The program of a plan for a mesh of running devices, and an array of ones for it; run once."""
    compiled = compile_plan(plan, mesh)
    sharding = NamedSharding(mesh, plan.in_layout.spec)
    x = jax.jit(lambda: jnp.ones(plan.in_layout.storage, plan.in_dtype), out_shardings=sharding)()
    x = padded(x, plan.in_layout, mesh)
    jax.block_until_ready(compiled(x))
    return compiled, x


def record(compiled: jax.stages.Compiled, x: Any, runs: int, folder: Path, told: Callable[[], None]) -> None:
    """Runs a program so many times, one after the other, and leaves the trace in a folder.

    Once more before, as the first run of a trace is slower: it is in the trace, and in no breakdown.

    Args:
        compiled: the program.
        x: its input.
        runs: how often.
        folder: where traces are kept; it is made where it is missing. Perfetto opens the .json.gz files.
        told: called after every run.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # calls of Python are not wanted, and slow the run
    with jax.profiler.trace(folder, create_perfetto_trace=True, profiler_options=options):
        jax.block_until_ready(compiled(x))
        for run in range(runs):
            with jax.profiler.StepTraceAnnotation(RUN, step_num=run):
                jax.block_until_ready(compiled(x))
            told()
