"""Calibration: the rates of a machine's CPU devices, fitted so that the prices of some steps are the seconds they took.

    seconds of a part = products / product rate + vector / vector rate + memory / memory rate + sent / link rate + hops

The devices share the cores, so every part runs on all of them at once, and a rate is what is left to one of them. The
counts are those of `Step.work`: whatever the steps promise, the rates make it true in the mean. The fit is Newton's in
logarithms, where

    d log seconds / d log rate = -(the resource's share of the seconds),

with a weak pull to the row it starts from, so that rates stay positive and a part that is off by chance moves little.
"""

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding

from .errors import check
from .layout.layout import Layout, even_cuts, from_spec
from .machine.chip import Chip
from .machine.chips import CPU, calibrated
from .machine.machine import Machine
from .machine.work import Work
from .numerics.tiers import dots
from .operators.matrices import Roots
from .steps import LocalFFT, RingDense, Step, Swap

DEVICES = 8
SIZES = (128, 256)  # of the cubes: one block a device that its caches hold, one that they do not
ROUNDS, MORE = 5, 8  # how often each is timed, and how much oftener what takes no time
AXIS, ITEMSIZE = "d", 8
PULL, TURNS = 0.03, 30  # weight of the row it starts from; steps of the fit
HOPS, LEAST_HOP = 16, 1e-6  # hops in a row, to time one; seconds


Body = Callable[[Array], Any]


class Part(NamedTuple):
    """Something to time: what every device does with its block, between which layouts, and what it costs one."""

    name: str
    body: Body
    before: Layout
    after: Layout
    work: Work


class Timing(NamedTuple):
    """A part, the median of its seconds, and what the fitted row makes of it."""

    name: str
    work: Work
    measured: float
    modelled: float = 0.0


class Calibration(NamedTuple):
    """A row, and the parts it was fitted to."""

    chip: Chip
    timings: tuple[Timing, ...]


def calibrate(devices: Sequence[Any], sizes: Sequence[int] = SIZES, rounds: int = ROUNDS) -> Calibration:
    """Measures the row of a machine's CPU devices; takes about ten seconds.

    Args:
        devices: eight CPU devices, or another number that divides the sizes.
        sizes: points along each side of the cubes that are transformed.
        rounds: how often each part is timed; medians count.

    Raises:
        ValueError: the devices are no CPUs, or too few to send to each other.
    """
    kinds = {device.platform for device in devices}
    check(kinds == {"cpu"} and len(devices) > 1, f"{len(devices)} devices of {kinds} given: calibrate 8 CPU devices")
    many, mesh = len(devices), Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))
    floor, around = _timed([_hops(many, 0), _hops(many, HOPS)], mesh, MORE * rounds)
    parts = [part for size in sizes for part in _parts((size,) * 3, many)]
    seconds = [max(took - floor, took / 2) for took in _timed(parts, mesh, rounds)]
    timings = [Timing(part.name, part.work, took) for part, took in zip(parts, seconds, strict=True)]
    chip = fitted(timings, row(rates_of(CPU), max((around - floor) / HOPS, LEAST_HOP), ""))
    timings = [timing._replace(modelled=Machine(chip).price(timing.work)) for timing in timings]
    cubes = " and ".join(f"{size}^3" for size in sizes)
    source = (
        f"one of {many} devices that share the cores, fitted to {len(parts)} parts of transforms of {cubes} complex64 "
        f"numbers, which it gives within a factor {_misfit(timings):.2f} (root mean square)"
    )
    return Calibration(row(rates_of(chip), chip.hop.value, source), tuple(timings))


def fitted(timings: Sequence[Timing], start: Chip) -> Chip:
    """The row whose prices of the parts are nearest to their seconds, in the sense of least squares of logarithms."""
    first = rates = np.log(rates_of(start))
    for _ in range(TURNS):
        machine = Machine(row(np.exp(rates).tolist(), start.hop.value, start.hop.source))
        spent = np.array([_spent(machine, timing.work) for timing in timings])
        whole = np.array([machine.price(timing.work) for timing in timings])
        gaps = np.log([timing.measured for timing in timings]) - np.log(whole)
        matrix = np.vstack([-spent / whole[:, None], PULL * np.eye(len(rates))])
        change, *_ = np.linalg.lstsq(matrix, np.concatenate([gaps, PULL * (first - rates)]))
        rates = rates + np.clip(change, -1, 1)
    return row(np.exp(rates).tolist(), start.hop.value, start.hop.source)


def row(rates: Sequence[float], hop: float, source: str) -> Chip:
    """The row of a CPU with these rates (of products, elsewhere, of memory and of links) and seconds a hop."""
    product, vector, memory, link = map(float, rates)
    return calibrated(product, vector, memory, link, hop, source)


def rates_of(chip: Chip) -> tuple[float, ...]:
    """The rates that are fitted, as `row` takes them."""
    return dict(chip.products)["float32"].value, chip.vector.value, chip.memory.value, chip.link.value


def _parts(shape: tuple[int, ...], many: int) -> Iterator[Part]:
    """The steps of a slab transform, wherever in the block they are priced otherwise, a copy, a hop and a product."""
    text, slab = "x".join(map(str, shape)), from_spec(shape, {AXIS: many}, (AXIS,))
    for name, (layout, step) in _steps(slab, shape[0], many).items():
        body = functools.partial(step.apply, layout=layout)
        yield Part(f"{name}, {text}", body, layout, step.after(layout), step.work(layout, ITEMSIZE, CPU))
    copied = Work(memory_bytes=2 * math.prod(slab.block) * ITEMSIZE)
    yield Part(f"copy, {text}", lambda block: block * 2, slab, slab, copied)
    sent = dataclasses.replace(copied, sent_bytes=copied.memory_bytes // 2, hops=1)
    yield Part(f"copy and hop, {text}", lambda block: _hop(block * 2, many), slab, slab, sent)
    product = Work(matrix_flops=2 * shape[0] * math.prod(slab.block))
    yield Part(f"product, {text}", lambda block: _product(block.real), slab, slab, product)


def _product(plane: Array) -> Array:
    """One product: a square of the plane with all of it."""
    lines = plane.reshape(plane.shape[-1], -1)
    return jnp.dot(lines[:, : len(lines)], lines, precision=lax.Precision.HIGHEST).reshape(plane.shape)


def _hops(many: int, times: int) -> Part:
    """What takes no time but that of the call and of its hops, one after the other."""
    slab = from_spec((many,), {AXIS: many}, (AXIS,))
    return Part("hops", lambda block: functools.reduce(_hop, [many] * times, block * 2), slab, slab, Work(hops=times))


def _hop(block: Array, many: int) -> Array:
    return lax.ppermute(block, AXIS, [((i + 1) % many, i) for i in range(many)])


def _steps(slab: Layout, size: int, many: int) -> dict[str, tuple[Layout, Step]]:
    """Steps, each with the layout it starts from."""
    shape, matrix = slab.shape, Roots(size, -1, size, size)
    swap = Swap(0, 1, even_cuts(shape[1], [(AXIS, many)]))
    first, (four,) = swap.after(slab), (dot for dot in dots("float32", None) if dot.multiplications == 4)
    return {
        "FFT of the last axis": (slab, _local(2, size)),
        "FFT of the last two": (slab, LocalFFT((1, 2), -1, (size,) * 2, (size,) * 2)),
        "FFT of the first axis": (first, _local(0, size)),
        "FFT by columns": (first, dataclasses.replace(_local(0, size), engine="cached")),
        "all-to-all": (slab, swap),
        "dense ring": (slab, RingDense(0, matrix, size, slab.cuts[0], four)),
    }


def _local(dim: int, size: int) -> LocalFFT:
    return LocalFFT((dim,), -1, (size,), (size,))


def _timed(parts: Sequence[Part], mesh: Mesh, rounds: int) -> list[float]:
    """The median seconds of each part, in interleaved rounds."""
    calls = [_caller(part, mesh) for part in parts]
    times = [[call() for call in calls] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def _caller(part: Part, mesh: Mesh) -> Callable[[], float]:
    """A call that returns its seconds, to the finished result; compiled, and run once."""
    specs = part.before.spec, part.after.spec
    run = jax.jit(jax.shard_map(part.body, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False))
    sharding = NamedSharding(mesh, part.before.spec)
    x = jax.jit(lambda: jnp.ones(part.before.storage, jnp.complex64), out_shardings=sharding)()
    jax.block_until_ready(run(x))

    def call() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(run(x))
        return time.perf_counter() - begun

    return call


def _spent(machine: Machine, work: Work) -> tuple[float, ...]:
    """Seconds on each of the resources whose rates are fitted."""
    spent = machine.seconds(work)
    return spent.products, spent.vector, spent.memory, work.sent_bytes / machine.chip.link.value


def _misfit(timings: Sequence[Timing]) -> float:
    """How far modelled seconds are from measured ones: the root mean square, as a factor."""
    return math.exp(math.sqrt(statistics.fmean(math.log(one.measured / one.modelled) ** 2 for one in timings)))
