"""Work: what a step costs one device, counted and never timed.

Counts add along a walk; `peak_bytes` is the largest, not the sum. A machine turns counts into seconds (see machine).
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple


class Move(NamedTuple):
    """What a step sends: `times` exchanges of one kind over the ring of some mesh axes.

    Attributes:
        kind: "ring", a block to one neighbour; "two-way ring", one to each; "all-to-all", a part to every device.
        axes: the mesh axes.
        nbytes: bytes of the block.
        times: how often.
    """

    kind: str
    axes: tuple[str, ...]
    nbytes: int
    times: int


@dataclasses.dataclass(frozen=True)
class Work:
    """Counts for one device.

    Attributes:
        matrix_flops: real operations inside matrix products, padding to the matrix unit counted, passes not.
        tier: the tier of those products.
        vector_flops: real operations elsewhere (an FFT's butterflies, phases).
        memory_bytes: bytes read and written beside the products.
        fed_bytes: bytes that the products themselves read and write, at the same time.
        sent_bytes: bytes sent to other devices.
        all_to_alls: number of all-to-all exchanges.
        hops: number of collective permutes between neighbours.
        moves: the same by kind and mesh axes.
        parts: so many parts are computed and sent in turn, each while the one before it travels.
        peak_bytes: bytes alive at the worst moment, input and output included.
    """

    matrix_flops: int = 0
    tier: str = "float32"
    vector_flops: int = 0
    memory_bytes: int = 0
    fed_bytes: int = 0
    sent_bytes: int = 0
    all_to_alls: int = 0
    hops: int = 0
    moves: tuple[Move, ...] = ()
    parts: int = 1
    peak_bytes: int = 0

    @property
    def flops(self) -> int:
        """Real operations of every kind."""
        return self.matrix_flops + self.vector_flops


def total(works: Iterable[Work]) -> Work:
    """The work of steps taken one after the other."""
    found = list(works)
    return Work(
        matrix_flops=sum(w.matrix_flops for w in found),
        tier=next((w.tier for w in found if w.matrix_flops), "float32"),
        vector_flops=sum(w.vector_flops for w in found),
        memory_bytes=sum(w.memory_bytes for w in found),
        fed_bytes=sum(w.fed_bytes for w in found),
        sent_bytes=sum(w.sent_bytes for w in found),
        all_to_alls=sum(w.all_to_alls for w in found),
        hops=sum(w.hops for w in found),
        moves=tuple(move for w in found for move in w.moves),
        peak_bytes=max((w.peak_bytes for w in found), default=0),
    )
