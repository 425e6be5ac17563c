"""Machines: a chip, and how its devices are linked; turns counted work into modelled seconds.

compute = products + vector + memory        one after the other on a device
links   = sum of moves, one after the other  (see torus for each)
seconds = compute + links                    where nothing overlaps
        = compute / parts + max((1 - 1 / parts) compute, links)   in parts, each computed while the last one travels
"""

import dataclasses
from typing import NamedTuple

from ..layout.layout import hashed_once
from .chip import Chip
from .torus import Order, Torus, exchange_load, ring_load
from .work import Move, Work

EFFICIENCY = 0.7  # of the busiest link that an all-to-all of many messages reaches: assumed, as no figure is published


class Network(NamedTuple):
    """A torus, and which of its devices stands where on a mesh with these axes; `kind` says by what rule."""

    torus: Torus
    order: Order
    names: tuple[str, ...]
    kind: str = "given"


class Seconds(NamedTuple):
    """Modelled seconds by resource, and in all, which is less than their sum where they overlap."""

    products: float
    vector: float
    memory: float
    links: float
    total: float


@hashed_once
@dataclasses.dataclass(frozen=True)
class Machine:
    """What prices a step.

    Attributes:
        chip: the row of rates of each device.
        network: how they are linked; None where every device reaches every other alike.
    """

    chip: Chip
    network: Network | None = None

    def seconds(self, work: Work) -> Seconds:
        """Modelled seconds of one device."""
        fed = work.fed_bytes / self.chip.memory.value  # products read and write as they go
        products = max(work.matrix_flops / self.chip.product_rate(work.tier), fed)
        vector, memory = work.vector_flops / self.chip.vector.value, work.memory_bytes / self.chip.memory.value
        compute, links = products + vector + memory, self._links(work)
        first = compute / work.parts if self.chip.overlaps else compute
        return Seconds(products, vector, memory, links, first + max(compute - first, links))

    def price(self, work: Work) -> float:
        """Modelled seconds in all."""
        return self.seconds(work).total

    def _links(self, work: Work) -> float:
        if self.network is None:
            starts = work.hops + work.parts if work.matrix_flops else 0  # of a hop's second plane, and of each product
            return (
                work.sent_bytes / self.chip.link.value + (work.hops + work.all_to_alls + starts) * self.chip.hop.value
            )
        return sum(map(self.move_seconds, work.moves))

    def move_seconds(self, move: Move) -> float:
        """Modelled seconds of a move on a torus: the busiest link's blocks, and a latency for each exchange."""
        network = self.network
        if network is None:
            return move.times * (move.nbytes / self.chip.link.value + self.chip.hop.value)
        axes = tuple(network.names.index(name) for name in move.axes)
        if move.kind == "all-to-all":
            load, far = exchange_load(network.torus, network.order, axes) / EFFICIENCY, sum(network.torus.shape) // 2
        else:
            load, far = ring_load(network.torus, network.order, axes, move.kind == "two-way ring"), 1
        return move.times * (load * move.nbytes / self.chip.link.value + far * self.chip.hop.value)
