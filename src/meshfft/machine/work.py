"""Work: the counted cost of a step on one device.

Counts add along a walk; `peak_bytes` is the largest, plus the bytes held beside all steps.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple


class Move(NamedTuple):
    """Exchanges over a ring: "ring", a block to a neighbour; "two-way ring", to both; "all-to-all", a part to each."""

    kind: str
    axes: tuple[str, ...]
    nbytes: int  # bytes of the block
    times: int


@dataclasses.dataclass(frozen=True)
class Work:
    matrix_flops: int = 0  # real operations of matrix products, padded to the matrix unit, passes not counted
    tier: str = "float32"  # precision tier of these products
    vector_flops: int = 0  # other real operations: FFT butterflies, phases
    kernel_flops: int = 0  # real operations of vector-unit kernels, which cost their cycles
    kernel_cycles: int = 0  # cycles of these kernels, or of their memory traffic if that takes longer
    memory_bytes: int = 0  # bytes read and written outside products and kernels
    fed_bytes: int = 0  # bytes read and written by the products, at the same time
    sent_bytes: int = 0  # bytes sent to other devices
    all_to_alls: int = 0
    hops: int = 0  # collective permutes between neighbours
    moves: tuple[Move, ...] = ()  # everything sent, by kind and mesh axes
    parts: int = 1  # parts computed in sequence, each sent during the next
    peak_bytes: int = 0  # bytes alive at the peak, input and output included
    beside_bytes: int = 0  # bytes of its input or output that steps with a smaller view do not count

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
    )
