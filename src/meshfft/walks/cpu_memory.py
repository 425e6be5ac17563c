"""Bytes of steps as XLA for CPUs allocates them, fitted to `python -m benchmarks plans`, seeds 37 to 41."""

import dataclasses
import math
from collections.abc import Sequence

from ..collectives.all_to_all import UNFUSED, count
from ..layout.layout import Layout
from ..machine.machine import Work
from ..numerics.tiles import in_loop
from ..steps import Step

ALIGNED = 512  # bytes lost to alignment


@dataclasses.dataclass(frozen=True)
class Memory:
    pairs: Sequence[tuple[Step, Layout]]  # steps, each with the layout before it
    reals: Sequence[bool]  # before each step, and at the end
    scaled: bool  # the result is
    real: int  # bytes of a real number
    works: Sequence[Work]
    blocks: Sequence[int]  # bytes, before each step and at the end

    @property
    def last(self) -> int:
        return len(self.pairs) - 1

    def step(self, j: int) -> Step | None:
        return self.pairs[j][0] if 0 <= j <= self.last else None

    def lossy(self, j: int) -> bool:
        step, layout = self.pairs[j]
        return step.sends is not None and step.sends.joint(layout)

    def in_loop(self, j: int) -> bool:
        """Whether tiles are in a loop."""
        step, layout = self.pairs[j]
        lines = math.prod(layout.block) // max(math.prod(layout.block[d] for d in step.dims), 1)
        return in_loop(lines, wide=False)

    def beside(self, j: int) -> int:
        """Bytes of other arrays at step j: the walk's input and result, an exchange's block, a product's second one."""
        (step, layout), work, result = self.pairs[j], self.works[j], self.blocks[-1]
        between = self.blocks[max(j, 1) : min(j + 2, self.last + 1)]
        product, lossy = work.matrix_flops > 0, self.lossy(j)
        held = work.hops > 0 and not product and (j < self.last or (j > 0 and self.works[j - 1].hops > 0))
        held = held or ((product or lossy) and self.scaled and j == self.last)
        sender = step.chunked if j > 0 and step.sends and not lossy else None
        loose = self.reals[j] and not self.pairs[j - 1][0].chunked  # real blocks arrive in one piece
        copied = sender is not None and (sender.sent(layout) is None or loose)
        packed = self.blocks[j] - work.sent_bytes * self.in_result(j) if copied else 0
        more = max(packed, result if held or (max(between, default=0) > result and not copied) else 0)
        again = self.again(j) if product and work.parts < 3 and self.last > 0 else 0
        if self.heavy(j) and sum(map(self.heavy, range(self.last + 1))) > 1:
            more += self.blocks[j] * 3 // 4
        return more + again + max(self.blocks[0] - self.blocks[j], 0)

    def heavy(self, j: int) -> bool:
        """Whether step j is local and holds much, as cosines of type I."""
        work = self.works[j]
        return not (work.matrix_flops or work.hops or work.all_to_alls) and work.peak_bytes > 5 * self.blocks[j]

    def again(self, j: int) -> int:
        """A product's further blocks, fewer if no ring swaps them."""
        rings = [at.parts[step.dims[-1]] for step, at in self.pairs if step.numbers.dots and step.sends]
        swap, block = 2 in rings, max(self.blocks[j : j + 2])
        if swap and self.reals[j] and len(rings) > 1:
            return 2 * block
        if not self.in_loop(j):
            return block * 9 // 8
        return block if swap or not self.pairs[j][1].even else block // 2

    def in_result(self, j: int) -> bool:
        """Whether the block before a packed exchange is put into the result's memory."""
        before, at, after = self.pairs[j - 1][0], self.pairs[j][1], self.step(j + 1)
        if self.blocks[j] > self.blocks[-1]:
            return False
        if before.numbers.dots and not before.chunked:
            return True
        if self.reals[j] or (before.sends and at.even) or after is None or after.sends:
            return False
        if not before.chunked:
            return at.even
        if not at.even:
            return at.ndim - 1 in after.dims
        return at.ndim - 1 in before.dims or (self.scaled and not self.pairs[-1][0].sends)

    def most(self, j: int) -> float:
        """Bytes at an all-to-all that keeps only its shares, input and result; infinite if it may keep more."""
        (step, layout), work, (result, *_) = self.pairs[j], self.works[j], self.blocks[::-1]
        if not work.all_to_alls or step.dims or not step.chunked:
            return math.inf
        around, real = self.blocks[j : j + 2], self.reals[j]
        beside = [one for one in (self.step(j - 1), self.step(j + 1)) if one]
        sent = sum(move.nbytes * move.times for move in work.moves)
        shares = max(*around, sent)
        packed, lossy = step.chunked.sent(layout) is None, self.lossy(j)
        chunked = not (packed or real or (self.scaled and not self.pairs[-1][0].sends))
        chunked = chunked and all(one.chunked for one in beside)
        cosines = packed and real and layout.even and j > 0 and not (beside[0].sends or beside[0].numbers.dots)
        next_to = max(around) <= result and any(one.sends and not one.dims for one in beside)
        last = 2 * work.sent_bytes == sent if j == self.last else next_to or cosines
        if not (lossy or j == 0 or chunked or last or (packed and not real and self.whole(j))):
            return math.inf
        short = lossy and not real and 2 * sent <= max(around) and layout.even and step.after(layout).even
        quarter = lossy or (chunked and count(step.chunked.grids[1]) >= UNFUSED)
        return self.blocks[0] + result + shares * (6 if short else 8) // 4 + shares // 4 * quarter + ALIGNED

    def whole(self, j: int) -> bool:
        """Whether a padded all-to-all of complex blocks, between FFTs alone, keeps no copy that the result cannot hold.

        In two dimensions lines along the first one are copied.
        """
        (step, layout), after = self.pairs[j], self.step(j + 1)
        beside = [(self.works[k], self.blocks[k]) for k in (j - 1, j + 1) if self.step(k)]
        if any(work.matrix_flops or work.peak_bytes > 3 * block for work, block in beside):  # products, cosines
            return False
        uncopied = layout.ndim > 2 or (after is not None and after.dims == (1,))
        padded = not (layout.even and step.after(layout).even)
        return uncopied and padded and max(self.blocks[j : j + 2]) <= self.blocks[-1]

    def gaps(self, j: int) -> int:
        """Bytes between the shares of two exchanges in sequence, which differ in size if one is padded."""
        follows = j > 0 and all(step.sends and not step.dims for step, _ in self.pairs[j - 1 : j + 1])
        return self.blocks[j] * 3 // 4 if follows and not self.pairs[j][1].even else 0

    def cleared(self, j: int) -> int:
        """Bytes of an input cleared of padding beside a loop from it into a second array."""
        step, at = self.pairs[j]
        loops = step.dims and self.works[j].all_to_alls > 3  # chunks, each with two
        second = self.reals[j] != self.reals[j + 1] or step.after(at).block != at.block
        return self.blocks[0] if j == 0 and not at.even and loops and second else 0

    def matrix(self, j: int) -> int:
        """Bytes of a matrix that step j's loop keeps, made before the first step."""
        step, layout = self.pairs[j]
        if not self.works[j].matrix_flops or self.works[j].hops or not self.in_loop(j):
            return 0
        return self.real * math.prod(at.block[step.dims[-1]] for at in (layout, step.after(layout)))

    def counted(self) -> tuple[Work, ...]:
        """The works, with all bytes that coexist."""
        done, crowd = list[Work](), 0
        for j, work in enumerate(self.works):
            after = self.step(j + 1)
            nbytes = work.peak_bytes + self.beside(j) + (work.sent_on_bytes if after and after.sends else 0)
            if work.matrix_flops and not self.in_loop(j):  # a third of another ring's matrices
                nbytes += crowd // 3 * (work.parts > 2)
                crowd = max(crowd, work.peak_bytes)
            matrices = sum(map(self.matrix, range(j + 1, len(self.pairs)))) if work.all_to_alls else 0
            nbytes = int(min(nbytes, self.most(j))) + self.gaps(j) + self.cleared(j) + matrices
            done.append(dataclasses.replace(work, peak_bytes=nbytes))
        return tuple(done)
