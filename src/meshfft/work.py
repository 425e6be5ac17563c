"""Work: what a step costs one device, counted and never timed.

Counts add along a walk; `peak_bytes` is the largest, not the sum. A machine turns counts into seconds (see hardware).
"""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Work:
    """Counts for one device.

    Attributes:
        matrix_flops: real operations inside matrix products.
        vector_flops: real operations elsewhere (an FFT's butterflies, phases).
        memory_bytes: bytes read and written.
        sent_bytes: bytes sent to other devices.
        all_to_alls: number of all-to-all exchanges.
        hops: number of collective permutes between neighbours.
        overlapped: True where sending runs under the matrix products.
        peak_bytes: bytes alive at the worst moment, input and output included.
    """

    matrix_flops: int = 0
    vector_flops: int = 0
    memory_bytes: int = 0
    sent_bytes: int = 0
    all_to_alls: int = 0
    hops: int = 0
    overlapped: bool = False
    peak_bytes: int = 0

    @property
    def flops(self) -> int:
        """Real operations of every kind."""
        return self.matrix_flops + self.vector_flops


def total(works: Iterable[Work]) -> Work:
    """The work of steps taken one after the other."""
    parts = list(works)
    return Work(
        matrix_flops=sum(w.matrix_flops for w in parts),
        vector_flops=sum(w.vector_flops for w in parts),
        memory_bytes=sum(w.memory_bytes for w in parts),
        sent_bytes=sum(w.sent_bytes for w in parts),
        all_to_alls=sum(w.all_to_alls for w in parts),
        hops=sum(w.hops for w in parts),
        peak_bytes=max((w.peak_bytes for w in parts), default=0),
    )
