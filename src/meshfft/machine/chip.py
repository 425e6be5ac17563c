"""Chips: what one device computes, moves and holds in a second, each number with its source; rows are in `chips`.

A device is what JAX counts as one: a core of TPU v2, v3, v4 and v7x, a chip of the others, a GPU, a virtual CPU device.
A number is marked

    published   by the maker, or in a paper
    measured    on such a device
    derived     worked out: from published numbers, or from the cycles its compiler estimates

Everything made of them is modelled.
"""

import dataclasses
from typing import NamedTuple

from ..layout.layout import hashed_once

CompilerOptions = tuple[tuple[str, str | bool], ...]
MARKS = ("published", "measured", "derived")


class Figure(NamedTuple):
    """A number, how it is known, and where from."""

    value: float
    mark: str
    source: str


@hashed_once
@dataclasses.dataclass(frozen=True)
class Chip:
    """Sustained rates of one device.

    Attributes:
        name: what tables call it.
        platform: what JAX calls the platform.
        kinds: what JAX calls the device.
        products: operations per second in matrix products, by tier; passes are not counted.
        vector: operations per second elsewhere.
        memory: bytes per second of main memory, read and written.
        link: bytes per second one way over one link, or without a torus to all other devices together.
        hop: seconds from a device to its neighbour.
        capacity: bytes of main memory.
        clock: cycles per second.
        devices: JAX devices that share a chip and its links.
        torus: the longest axes of a torus of chips, and none where every device reaches every other.
        side: rows and columns of the matrix unit; products are padded to it.
        cached: columns of a block stay in a cache between the stages of a local FFT.
        planes: complex numbers are kept as planes.
        overlaps: sends while it computes.
        rough: the rates only rank; no seconds are printed.
        options: compiler options with which its programs send while they compute.
        chunk: the largest chunk of freed memory, in bytes, that the host keeps for the next program. Larger ones go
            back to the kernel, which clears every page anew. 0 where the device keeps all.
    """

    name: str
    platform: str
    kinds: tuple[str, ...]
    products: tuple[tuple[str, Figure], ...]
    vector: Figure
    memory: Figure
    link: Figure
    hop: Figure
    capacity: Figure | None = None
    clock: Figure | None = None
    devices: int = 1
    torus: tuple[int, ...] = ()
    side: int = 1
    cached: bool = False
    planes: bool = False
    overlaps: bool = False
    rough: bool = False
    options: CompilerOptions = ()
    chunk: int = 0

    def product_rate(self, tier: str) -> float:
        """Operations per second of matrix products in a tier."""
        rates = {name: figure.value for name, figure in self.products}
        return rates.get(tier, rates["float32"])

    def figures(self) -> dict[str, Figure]:
        """All numbers of the row, by name."""
        tiers = {f"{tier} products, op/s": figure for tier, figure in self.products}
        others = {
            "vector, op/s": self.vector,
            "memory, B/s": self.memory,
            "link, B/s": self.link,
            "hop, s": self.hop,
            "capacity, B": self.capacity,
            "clock, Hz": self.clock,
        }
        return {**tiers, **{name: figure for name, figure in others.items() if figure is not None}}
