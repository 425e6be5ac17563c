"""Printed figures of plans beside the compiler's: bytes at the peak, and modelled seconds.

    peak      the compiler's argument, result and temporaries / plan.peak_bytes
    seconds   plan.seconds / the compiler's schedule, played (meshfft.inspect.aot.timeline), for TPUs alone

Draw i depends on the seed and i alone: shape, mesh, spec, kind, method, precision, order and wire. Nothing is run.
"""

import functools
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
from jax.sharding import PartitionSpec

import meshfft as mf
from meshfft.inspect.aot import compile_plan, mesh_for, timeline
from meshfft.layout.layout import AXES

from .common import cpu_devices, mesh_of, table
from .rows import Values, kept

MESHES = ((2,), (5,), (8,), (2, 2), (2, 4), (3, 2), (1, 2, 2), (2, 2, 2))
PODS = ((4,), (2, 2), (1, 2, 2))
POINTS = {False: (2**13, 2**19), True: (2**18, 2**23)}  # of an array, on CPU devices and on TPUs
KINDS = ("fft", "rfft", *(f"{name}-{kind}" for name in ("dct", "dst") for kind in (1, 2, 3, 4)))
METHODS = ("auto", "transpose", "cooley-tukey", "kdft")
TIERS = ("float32", "bf16x3", "bf16x6", "float64")
MOST = 1.02  # a peak above is called exceeded
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)  # quantiles of the table


def main(draws: int = 200, seed: int = 36, topology: str = "", rows: Path | None = None) -> None:
    found = list(kept(rows, (row for row in in_a_process(draws, seed, topology) if row)))
    print_quantiles(found, ("peak", "seconds") if topology else ("peak",))


def in_a_process(draws: int, seed: int, topology: str) -> Iterator[Values | None]:
    """The rows, made in a process that is started again when a compiler ends it."""
    start = functools.partial(ProcessPoolExecutor, 1, get_context("spawn"), initializer=cpu_devices, initargs=(8, True))
    pool = start()
    for at in range(draws):
        try:
            yield pool.submit(measured, seed, at, topology).result()
        except BrokenProcessPool:
            print(f"draw {at}: the compiler ended the process")
            pool = start()


def measured(seed: int, at: int, topology: str) -> Values | None:
    """A row of one draw; nothing if the plan is refused."""
    shape, sizes, how = drawn(random.Random(f"{seed} {at}"), bool(topology))
    mesh = jax.sharding.AbstractMesh(sizes, tuple(AXES[: len(sizes)])) if topology else mesh_of(sizes)
    row = {"draw": at, "seed": seed, "shape": shape, "mesh": sizes, "topology": topology or "cpu", **how}
    try:
        plan = mf.plan(shape, mesh=mesh, topology=topology or None, **how)
    except ValueError as refused:
        print(f"draw {at}: refused: {refused}")
        return None
    on = mesh_for(plan, topology) if topology else mesh_of(sizes)
    compiled = compile_plan(plan, on, planes=plan.machine.chip.planes)
    took = sum(getattr(compiled.memory_analysis(), f"{name}_size_in_bytes") for name in ("argument", "output", "temp"))
    peak = {"planned_bytes": plan.peak_bytes, "compiled_bytes": took, "peak": took / plan.peak_bytes}
    if topology:
        planned, played = plan.seconds or np.nan, timeline(compiled, plan).total
        peak |= {"planned_seconds": planned, "played_seconds": played, "seconds": planned / played}
    return row | {"spec": str(how["spec"]), "steps": plan.name, **peak}


def drawn(draw: random.Random, tpu: bool) -> tuple[tuple[int, ...], tuple[int, ...], Values]:
    ndim, sizes = draw.choice((1, 2, 2, 3, 3, 3, 4)), draw.choice(PODS if tpu else MESHES)
    each = 2 ** (draw.uniform(*np.log2(POINTS[tpu])) / ndim)
    shape = tuple(_length(draw, each * draw.uniform(0.6, 1.6)) for _ in range(ndim))
    cuts: list[list[str]] = [[] for _ in shape]
    for axis in AXES[: len(sizes)]:
        cuts[draw.randrange(ndim)].append(axis)
    kind, tier = draw.choice(KINDS) if draw.random() < 0.5 else "fft", draw.choice(TIERS)
    real = (kind.startswith("d") and draw.random() < 0.7) or kind == "rfft"
    how: Values = {
        "spec": PartitionSpec(*(tuple(one) or None for one in cuts)),
        "kind": kind,
        "inverse": draw.random() < 0.3,
        "dtype": {True: ("float32", "float64"), False: ("complex64", "complex128")}[real][tier == "float64"],
        "precision": None if tier in ("float32", "float64") else tier,
        "method": draw.choice(METHODS) if draw.random() < 0.6 else "auto",
        "order": draw.choice(("natural", "any")),
        "wire": draw.choice(("int16", "int24", "bfloat16")) if draw.random() < 0.3 else "exact",
    }
    if kind == "rfft" and how["inverse"]:  # from half spectra
        how["dtype"] = {"float32": "complex64", "float64": "complex128"}[how["dtype"]]
    return shape, sizes, how


def _length(draw: random.Random, about: float) -> int:
    """A power of two, a multiple of 8, or any length."""
    near = max(round(about), 2)
    return draw.choice((2 ** max(round(np.log2(near)), 1), max(near // 8 * 8, 2), near))


def print_quantiles(found: list[Values], names: Sequence[str]) -> None:
    columns = ([name, *(row[name] for row in found)] for name in names)
    lines = ([name, len(one), *(f"{q:.2f}" for q in np.quantile(one, SHARES))] for name, *one in columns)
    table(("", "draws", *(f"{share:.0%}" for share in SHARES)), lines)
