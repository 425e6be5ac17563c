"""Machines: one row of rates per kind of device, and the seconds that counted work takes on it (modelled).

A row holds sustained rates of one device. The CPU row is one of eight pretend devices that share two cores, fitted to
measured parts of a 256^3 complex64 transform (copy 0.008 s, XLA's FFT along the last axis 0.020 s and along the first
0.11 s, a matmul FFT along the first 0.07 s, one dense product 0.19 s, all_to_all 0.04 s): its ratios rank walks, its
seconds are that machine's. The accelerator row has the published order of magnitude of a current TPU core and serves
ranking alone.
"""

from typing import NamedTuple

from .work import Work


class Chip(NamedTuple):
    """Sustained rates of one device.

    Attributes:
        matrix_flops: float32-accurate operations per second in matrix products.
        vector_flops: operations per second elsewhere.
        memory_bytes: bytes per second of main memory, read and written.
        link_bytes: bytes per second to other devices, one way.
        hop_seconds: latency of one exchange between neighbours.
    """

    name: str
    matrix_flops: float
    vector_flops: float
    memory_bytes: float
    link_bytes: float
    hop_seconds: float

    def seconds(self, work: Work) -> float:
        """Modelled seconds:

        compute and memory one after the other, links under the products where the step overlaps.
        """
        products = work.matrix_flops / self.matrix_flops
        links = work.sent_bytes / self.link_bytes + (work.hops + work.all_to_alls) * self.hop_seconds
        exposed = max(products, links) if work.overlapped else products + links
        return exposed + work.vector_flops / self.vector_flops + work.memory_bytes / self.memory_bytes


CPU = Chip("cpu", 2.3e10, 6.7e9, 4.2e9, 1.7e9, 2e-5)
ACCELERATOR = Chip("accelerator", 3e13, 5e12, 1e12, 5e10, 2e-6)
CHIPS = {"cpu": CPU}


def chip_for(platform: str) -> Chip:
    """The row for a JAX platform name."""
    return CHIPS.get(platform, ACCELERATOR)
