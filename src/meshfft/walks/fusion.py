"""Fusion: the steps of a walk as they are best done one beside the other.

Exchanges send chunks of one size where they can, and local steps take the block apart as the exchange beside them does:
what one step joins the next need not cut again, and the compiler drops both.
"""

import math
from collections.abc import Sequence

from ..collectives.all_to_all import count
from ..layout.layout import Layout
from ..steps import Step
from .walk import Walk

MATCHED_BYTES = 2**21  # of a block whose exchanges all send pieces of one size: below it more messages cost more
HALVED_BYTES = 2**22  # of a block whose pieces are halved
MATCHED_PIECES = 32  # of a block


def fused(start: Layout, steps: tuple[Step, ...], itemsize: int) -> tuple[Step, ...]:
    """The steps with exchanges in chunks, and each as its neighbours leave and take the block."""
    pairs = Walk(start, steps).pairs
    sending = [(step, at) for step, at in pairs if step.sent(at) is not None]
    chunks = iter(_chunks(sending, itemsize) if sending else ())
    steps = tuple(step if step.sent(at) is None else step.in_chunks(at, next(chunks)) for step, at in pairs)
    beside = zip((None, *steps), steps, (*steps[1:], None), strict=False)
    return tuple(step.fuse(before, after) for before, step, after in beside)


def _chunks(sending: Sequence[tuple[Step, Layout]], itemsize: int) -> list[tuple[int, ...]]:
    """What each exchange sends to a device at a time.

    All the same where that leaves few pieces. Half of it where blocks are large: while one half travels, the other is
    computed.
    """
    whole = [step.sent(at) or () for step, at in sending]
    nbytes = min(math.prod(at.block) for _, at in sending) * itemsize
    if nbytes < MATCHED_BYTES:
        return whole
    common = tuple(math.gcd(*sizes) for sizes in zip(*whole, strict=True))
    blocks = (math.prod(piece) * count(step.taken) for piece, (step, _) in zip(whole, sending, strict=True))
    many = max(blocks) // max(math.prod(common), 1)
    matched = many <= MATCHED_PIECES
    chunks = [common] * len(whole) if matched else whole
    halves = [dim for dim in range(len(common) - 1) if all(piece[dim] % 2 == 0 for piece in chunks)]
    if not halves or nbytes < HALVED_BYTES or (matched and 2 * many > MATCHED_PIECES):
        return chunks
    longest = max(reversed(halves), key=lambda dim: min(piece[dim] for piece in chunks))
    return [tuple(size // 2 if dim == longest else size for dim, size in enumerate(piece)) for piece in chunks]
