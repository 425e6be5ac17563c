"""Machines: a chip and the network of its devices.

compute = products + vector + memory        links = sum of moves
seconds = compute + links                                             without overlap
        = compute / parts + max((1 - 1 / parts) compute, links)       if each part is sent during the next
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from ..layout.layout import hashed_once
from .chip import Chip
from .network import Load, Network, collective_load, pair_load, ring_domains

RESIDENT = 0.55  # time to feed products from VMEM over that from main memory, fitted to TPU v5e
ALONE = Load(inner=1.0, far=1)  # of a move where all devices are linked alike


class Move(NamedTuple):
    """Exchanges over a ring: "ring", a block to a neighbour; "two-way ring", to both; "all-to-all", a part to each; or
    one of network.STAGES.
    """

    kind: str
    axes: tuple[str, ...]
    nbytes: int  # of the block
    times: int


@dataclasses.dataclass(frozen=True)
class Work:
    matrix_flops: int = 0  # real operations of matrix products, padded to the matrix unit, passes not counted
    tier: str = "float32"  # precision of these products
    vector_flops: int = 0  # other real operations: FFT butterflies, phases
    kernel_flops: int = 0  # of vector-unit kernels, which cost their cycles
    kernel_cycles: int = 0  # of these kernels, or of their memory traffic if longer, and of many short instructions
    memory_bytes: int = 0  # read and written outside products and kernels
    fed_bytes: int = 0  # read and written by the products, at the same time
    sent_bytes: int = 0
    all_to_alls: int = 0
    hops: int = 0  # collective permutes between neighbours
    moves: tuple[Move, ...] = ()  # everything sent, by kind and mesh axes
    parts: int = 1  # computed in sequence, each sent during the next
    peak_bytes: int = 0  # alive at the peak, input and output included
    sent_on_bytes: int = 0  # more of them if an exchange follows
    beside_bytes: int = 0  # alive at every step, as kept rows, and input or output not counted elsewhere

    @property
    def flops(self) -> int:
        return self.matrix_flops + self.vector_flops + self.kernel_flops


def total(works: Iterable[Work]) -> Work:
    works = list(works)
    return Work(
        matrix_flops=sum(w.matrix_flops for w in works),
        tier=next((w.tier for w in works if w.matrix_flops), "float32"),
        vector_flops=sum(w.vector_flops for w in works),
        kernel_flops=sum(w.kernel_flops for w in works),
        kernel_cycles=sum(w.kernel_cycles for w in works),
        memory_bytes=sum(w.memory_bytes for w in works),
        fed_bytes=sum(w.fed_bytes for w in works),
        sent_bytes=sum(w.sent_bytes for w in works),
        all_to_alls=sum(w.all_to_alls for w in works),
        hops=sum(w.hops for w in works),
        moves=tuple(move for w in works for move in w.moves),
        peak_bytes=max((w.peak_bytes for w in works), default=0) + sum(w.beside_bytes for w in works),
        sent_on_bytes=max((w.sent_on_bytes for w in works), default=0),
    )


class Seconds(NamedTuple):
    """Modelled seconds by resource; the total is less than the sum if they overlap."""

    products: float
    vector: float
    memory: float
    links: float
    total: float


@hashed_once
@dataclasses.dataclass(frozen=True)
class Machine:
    """The devices of a mesh, and the time that work takes on them."""

    chip: Chip
    network: Network | None = None  # None if all devices are linked alike
    devices: int = 1
    device: jax.Device | None = None  # a local device for kernel trials
    failed: tuple[str, ...] = ()  # kernels that failed there; XLA's replace them

    @property
    def caveat(self) -> str | None:
        if self.chip.megacore:
            name = self.chip.name
            what = f"{name} is priced with a device for each core, but JAX joins both cores of a chip (megacore)"
            return f"{what}: a mesh there has half as many devices, each with twice the memory"
        return None

    @property
    def most(self) -> int:
        return math.prod(self.chip.torus) * self.chip.devices if self.chip.torus else 0

    @property
    def gridding(self) -> str:
        """The form of gridding (nufft/grid/form.py): the platform's, or "xla"."""
        return "xla" if self.chip.refuses_bfloat16 or self.has_failed("points") else self.chip.platform

    def has_failed(self, *families: str) -> bool:
        return any(name.startswith(families) for name in self.failed)

    def seconds(self, work: Work) -> Seconds:
        fed = work.fed_bytes / self.chip.memory.value  # as products compute
        fed *= RESIDENT if work.peak_bytes < self.chip.fast_bytes else 1
        products = max(work.matrix_flops / self.chip.product_rate(work.tier), fed)
        vector, memory = work.vector_flops / self.chip.vector.value, work.memory_bytes / self.chip.memory.value
        vector += work.kernel_cycles / self.chip.clock.value if self.chip.clock else 0.0
        compute, links = products + vector + memory, self._links(work)
        first = compute / work.parts if self.chip.overlaps else compute
        return Seconds(products, vector, memory, links, first + max(compute - first, links))

    def price(self, work: Work) -> float:
        return self.seconds(work).total

    def _links(self, work: Work) -> float:
        if self.network is not None and work.moves:
            return sum(map(self.move_seconds, work.moves))
        starts, rate = work.hops + work.all_to_alls, self.chip.link.value
        if self.network is not None:  # the search's bound: it does not know where bytes go
            return work.sent_bytes / (rate + self.chip.outer.value if self.chip.outer else rate)
        if work.matrix_flops:
            starts += work.hops + work.parts  # for a hop's imaginary part, and for each product
        return work.sent_bytes / rate + starts * self.chip.hop.value

    def move_seconds(self, move: Move) -> float:
        return move.times * self._load_seconds(self._load(move), move.nbytes)

    def outer_bytes(self, work: Work) -> int:
        """Bytes through the busiest adapter, per device that shares it."""
        return round(sum(self._load(move).outer * move.nbytes * move.times for move in work.moves))

    def _load(self, move: Move) -> Load:
        network = self.network
        return ALONE if network is None else collective_load(network, move.kind, network.numbers(move.axes))

    def leaves(self, move: Move) -> bool:
        return self._load(move).messages > 0

    def stages(self, axes: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Each domain's positions in a ring over these axes, if an all-to-all can go inside domains, then between."""
        network = self.network
        if network is None or network.domains is None:
            return ()
        return ring_domains(network, network.numbers(axes))

    def permute_seconds(self, pairs: Sequence[tuple[int, int]], nbytes: int) -> float:
        """A permute between pairs (source, target) of mesh positions."""
        ends = np.array(pairs, int).reshape(-1, 2).T
        return self._load_seconds(ALONE if self.network is None else pair_load(self.network, *ends), nbytes)

    def outer_seconds(self, nbytes: int) -> float:
        return self._load_seconds(Load(outer=1.0, messages=1), nbytes)

    def _load_seconds(self, load: Load, nbytes: int) -> float:
        """Both levels carry messages at once, after the hops; those to other domains start one by one."""
        inner, outer, start = load.inner * nbytes / self.chip.link.value, self.chip.outer, self.chip.start
        if not load.messages or outer is None or start is None:
            return load.far * self.chip.hop.value + inner
        outside = load.outer * nbytes / outer.value + load.messages * start.value
        return max(load.far, 1) * self.chip.hop.value + max(inner, outside)
