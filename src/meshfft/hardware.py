"""Machines: one row of rates per kind of device, and the seconds that counted work takes on it (modelled).

A row holds sustained rates of one device. The CPU row is one of eight pretend devices that share two cores (EPYC 9004),
fitted to measured parts of a 256^3 complex64 transform: copy 0.008 s, XLA's FFT along the last axis 0.020 s, the last
two 0.045 s and the first 0.11 s, a columnwise FFT along the first 0.04 s, one dense product 0.19 s, all_to_all 0.04 s.
Its ratios rank walks, its seconds are that machine's. The generic row has the order of magnitude of a current
accelerator and only ranks.
"""

from typing import NamedTuple

from .work import Work


class Chip(NamedTuple):
    """Sustained rates of one device.

    Attributes:
        name: what tables call it.
        matrix_flops: float32-accurate operations per second in matrix products.
        vector_flops: operations per second elsewhere.
        memory_bytes: bytes per second of main memory, read and written.
        link_bytes: bytes per second to other devices, one way.
        hop_seconds: latency of one exchange between neighbours.
        cached: True where columns of a block stay in a cache between the stages of a local FFT.
    """

    name: str
    matrix_flops: float
    vector_flops: float
    memory_bytes: float
    link_bytes: float
    hop_seconds: float
    cached: bool

    def seconds(self, work: Work) -> float:
        """Modelled seconds of one device.

        Compute and memory one after the other, links under the products where the step overlaps.
        """
        products = work.matrix_flops / self.matrix_flops
        links = work.sent_bytes / self.link_bytes + (work.hops + work.all_to_alls) * self.hop_seconds
        exposed = max(products, links) if work.overlapped else products + links
        return exposed + work.vector_flops / self.vector_flops + work.memory_bytes / self.memory_bytes


CPU = Chip("cpu", 2.3e10, 6.7e9, 4.2e9, 1.7e9, 2e-5, True)
GENERIC = Chip("generic", 3e13, 5e12, 1e12, 5e10, 2e-6, False)
CHIPS: dict[str | None, Chip] = {"cpu": CPU}


def chip_for(platform: str | None) -> Chip:
    """The row for a JAX platform name; the generic one where none is known."""
    return CHIPS.get(platform, GENERIC)
