"""The rates of the devices of a mesh, measured as plans price with them: of one device while all are at work.

    memory     2 bytes(block) / seconds of a pass that reads and writes a block
    vector     5 N log2 N lines / (seconds of an FFT along the last axis - seconds of a pass)
    products   operations / seconds of complex products, by tier
    hop        seconds of the smallest message to a neighbour
    start      (seconds of the smallest messages to other domains - a hop) / their number
    link       bytes over the busiest link / (seconds of an all-to-all - its two passes and its hops)
    outer      bytes through the busiest adapter / (seconds of an all-to-all - its hop and its starts)

Each is the median of RUNS timings of a loop. The slowest process decides.
"""

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..collectives.processes import from_all
from ..extras import __version__
from ..kernels.base import flops_of
from ..layout.layout import axis_sizes
from ..machine.machine import ALONE, Machine
from ..machine.network import Load, collective_load
from ..machine.topology import machine_of
from ..numerics.dtypes import WIDE, Dot
from ..numerics.products import product

RUNS = 5
BLOCK = {"cpu": 2**23, "default": 2**28}  # bytes of one device, larger than caches
SIZES = {"cpu": (2**12, 2**16, 2**20, 2**23), "default": (2**12, 2**16, 2**20, 2**24, 2**27)}  # bytes sent
LINE, SIDE = 256, 512  # length of FFTs; rows and columns of products
SHORT = 2**14  # bytes of a message whose latency is measured
WIDTH = {"cpu": 64, "gpu": 2**17, "default": 8192}  # columns that a product multiplies
TARGET, MOST = 0.02, 64  # seconds of one program, and most repetitions
PATIENCE = 1.0  # seconds of one operation that end the search for larger messages
LEAST = 0.2  # least share of a time that subtraction must leave

Body = Callable[[Any], Any]


class Timing(NamedTuple):
    """One collective, of `nbytes` on each device."""

    kind: str  # as machine.Move has them
    axes: tuple[str, ...]
    devices: int  # along these axes
    nbytes: int
    seconds: float


class Measured(NamedTuple):
    rates: dict[str, float]
    products: dict[str, float]
    timings: tuple[Timing, ...]

    def record(self, mesh: Mesh) -> dict[str, object]:
        machine, first = machine_of(mesh), mesh.devices.flat[0]
        network = machine.network
        torus = [] if network is None or network.torus is None else list(network.torus.shape)
        return {
            "platform": first.platform,
            "kind": first.device_kind,
            "devices": mesh.size,
            "domains": 1 if network is None else network.several,
            "torus": torus,
            "jax": jax.__version__,
            "meshfft": __version__,
            "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "mesh": axis_sizes(mesh),
            "rates": self.rates,
            "products": self.products,
            "timings": [{**one._asdict(), "axes": list(one.axes)} for one in self.timings],
        }


def measured_rates(mesh: Mesh, tell: Callable[[str, float], None]) -> Measured:
    """Measures for up to a minute, on every process of the mesh; `tell` gets each part's name and the share done."""
    platform, machine = mesh.devices.flat[0].platform, machine_of(mesh)
    wide, each = jax.config.values["jax_enable_x64"], [(name,) for name in mesh.axis_names]
    tiers = [tier for tier, _ in machine.chip.products if tier not in WIDE or wide]
    sent = [
        (kind, axes)
        for axes in dict.fromkeys((*each, tuple(mesh.axis_names)))
        if math.prod(mesh.shape[name] for name in axes) > 1
        for kind in ("ring", "all-to-all")
    ]
    parts = 2 + len(tiers) + len(sent)
    tell("memory", 0)
    nbytes = _of(BLOCK, platform)
    memory = 2 * nbytes / _seconds(mesh, lambda x: x * np.float32(0.999), np.ones(nbytes // 4, np.float32))
    rates = {"memory": memory}
    if machine.chip.side == 1:  # matrix units use products
        tell("FFT", 1 / parts)
        seconds = _seconds(mesh, _transform, np.ones((nbytes // (8 * LINE), LINE), np.complex64))
        rates["vector"] = flops_of(LINE) * nbytes / 8 / _net(seconds / 2, 2 * nbytes / memory)
    products, timings = dict[str, float](), list[Timing]()
    for done, tier in enumerate(tiers, 2):
        tell(f"{tier} products", done / parts)
        products[tier] = _product_rate(mesh, machine, tier)
    for done, (kind, axes) in enumerate(sent, 2 + len(tiers)):
        tell(f"{kind} over {', '.join(axes)}", done / parts)
        timings += _timings(mesh, kind, axes)
    return Measured(rates | _links(machine, timings, memory), products, tuple(timings))


def _of(values: dict[str, Any], platform: str) -> Any:
    return values.get(platform, values["default"])


def _net(seconds: float, beside: float) -> float:
    return max(seconds - beside, LEAST * seconds)


def _transform(x: Array) -> Array:
    """There and back: no copy of the result, and no growth."""
    return lax.fft(lax.fft(x, lax.FftType.FFT, (LINE,)), lax.FftType.IFFT, (LINE,))


def _product_rate(mesh: Mesh, machine: Machine, tier: str) -> float:
    """Real operations per second of a complex product by four real ones, without passes."""
    kind, width = np.float64 if tier in WIDE else np.float32, _of(WIDTH, machine.chip.platform)
    slices = tier.startswith("int8")
    dot, width = Dot(tier, 4, machine.chip.unit * slices), width // 8 if slices else width
    matrix, block = np.full((SIDE, SIDE), 1 / SIDE, kind), np.ones((SIDE, width), kind)

    def multiply(planes: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        entries, re, im = planes
        maker = lambda start, size: (lax.dynamic_slice_in_dim(entries, start, size, 1),) * 2  # noqa: E731
        sums = product([(maker, (re, im))], 0, dot)
        return entries, sums[0], sums[-1]

    return dot.flops * SIDE * SIDE * width / _seconds(mesh, multiply, matrix, block, block)


def _timings(mesh: Mesh, kind: str, axes: tuple[str, ...]) -> Iterator[Timing]:
    size, seconds, before = math.prod(mesh.shape[name] for name in axes), 0.0, 1
    pairs = [(j, (j + 1) % size) for j in range(size)]

    def send(x: Array) -> Array:
        return lax.ppermute(x, axes, pairs) if kind == "ring" else lax.all_to_all(x, axes, 0, 0, tiled=True)

    for nbytes in _of(SIZES, mesh.devices.flat[0].platform):
        if seconds * nbytes / before <= PATIENCE:
            count = max(nbytes // (4 * size), 1) * size
            seconds, before = _seconds(mesh, send, np.ones(count, np.float32)), nbytes
            yield Timing(kind, axes, size, 4 * count, seconds)


def _links(machine: Machine, timings: list[Timing], memory: float) -> dict[str, float]:
    rows = [(one, _load(machine, one)) for one in timings]
    inner, outer = ([row for row in rows if bool(row[1].messages) == outside] for outside in (False, True))
    short = [one.seconds / load.far for one, load in inner if one.kind == "ring" and one.nbytes < SHORT]
    found = {"hop": statistics.median(short)} if short else {}
    hop = found.get("hop", 0.0)
    if short:
        beside = [load.far * hop + 2 * one.nbytes / memory for one, load in inner]
        found["link"] = _rate(inner, [load.inner for _, load in inner], beside)
    short = [_net(one.seconds, hop) / load.messages for one, load in outer if one.nbytes < SHORT]
    if short:
        found["start"] = statistics.median(short)
        beside = [hop + load.messages * found["start"] for _, load in outer]
        found["outer"] = _rate(outer, [load.outer for _, load in outer], beside)
    return found


def _rate(rows: list[tuple[Timing, Load]], blocks: list[float], beside: list[float]) -> float:
    """The median, over mesh axes, of the largest all-to-all's rate, alone."""
    largest = {one.axes: at for at, (one, _) in enumerate(rows)}.values()
    return statistics.median(blocks[at] * rows[at][0].nbytes / _net(rows[at][0].seconds, beside[at]) for at in largest)


def _load(machine: Machine, one: Timing) -> Load:
    if machine.network is not None:
        return collective_load(machine.network, one.kind, machine.network.numbers(one.axes))
    return ALONE if one.kind == "ring" else ALONE._replace(inner=1 - 1 / one.devices)


def _seconds(mesh: Mesh, body: Body, *blocks: np.ndarray) -> float:
    """Seconds of `body` on each device's block or blocks, in a loop that takes about TARGET."""
    spec = PartitionSpec(tuple(mesh.axis_names))

    def whole() -> list[Array]:
        return [jnp.full((mesh.size * x.shape[0], *x.shape[1:]), x.flat[0]) for x in blocks]

    @functools.partial(jax.jit, static_argnums=0)
    def run(times: int, arrays: list[Array]) -> Any:
        def loop(*state: Array) -> Any:
            return lax.fori_loop(0, times, lambda _, x: body(x), state if len(state) > 1 else state[0])

        return jax.shard_map(loop, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(*arrays)

    arrays = jax.jit(whole, out_shardings=NamedSharding(mesh, spec))()

    once = _timed(mesh, functools.partial(run, 1, arrays), 2)
    times = min(max(round(TARGET / once), 1), MOST)
    return _timed(mesh, functools.partial(run, times, arrays), RUNS) / times


def _timed(mesh: Mesh, run: Callable[[], Any], runs: int) -> float:
    jax.block_until_ready(run())
    every = list[float]()
    for _ in range(runs):
        begun = time.perf_counter()
        jax.block_until_ready(run())
        every.append(time.perf_counter() - begun)
    return max(from_all(statistics.median(every), mesh.devices.flat).values())
