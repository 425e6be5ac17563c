"""Work: what a step costs one device, counted and never timed.

Counts add along a walk; `peak_bytes` is the largest, plus what lies beside all steps. A machine turns counts into
seconds.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple


class Move(NamedTuple):
    """What a step sends: exchanges of one kind over the ring of some mesh axes.

    By kind: "ring", a block to one neighbour; "two-way ring", one to each; "all-to-all", a part to every device.
    """

    kind: str
    axes: tuple[str, ...]
    nbytes: int  # of the block
    times: int


@dataclasses.dataclass(frozen=True)
class Work:
    matrix_flops: int = 0  # real operations in matrix products, with padding to the matrix unit, passes not counted
    tier: str = "float32"  # of those products
    vector_flops: int = 0  # real operations elsewhere: an FFT's butterflies, phases
    kernel_flops: int = 0  # real operations in kernels for a vector unit, which cost their cycles
    kernel_cycles: int = 0  # of these kernels, or of reading and writing under them where that is longer
    memory_bytes: int = 0  # read and written beside products and kernels
    fed_bytes: int = 0  # read and written by the products themselves, at the same time
    sent_bytes: int = 0  # to other devices
    all_to_alls: int = 0
    hops: int = 0  # collective permutes between neighbours
    moves: tuple[Move, ...] = ()  # all that is sent, by kind and mesh axes
    parts: int = 1  # computed and sent in turn, each while the one before it travels
    peak_bytes: int = 0  # alive at the worst moment, input and output included
    beside_bytes: int = 0  # of its input or output that other steps, which see less of it, do not count

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
