"""A chip: rates, memory and links of one device, each number with its source.

A device is a core of TPU v2, v3, v4 and v7x (by default JAX joins the two of v4: `megacore`), a chip of other TPUs, a
GPU, or a virtual CPU device. A number is "published", "measured", "derived" from published numbers or the compiler's
cycles, "measured here" by `meshfft measure`, or "given" by the caller.
"""

import dataclasses
import itertools
from typing import NamedTuple

from ..layout.layout import hashed_once
from ..numerics.split_complex import LANES as LANES

CompilerOptions = tuple[tuple[str, str | bool], ...]
HERE = "measured here"
SUBLANES = 8  # rows of a tile, which has LANES columns


class Figure(NamedTuple):
    value: float
    mark: str
    source: str


@hashed_once
@dataclasses.dataclass(frozen=True)
class Chip:
    """One device: rates, sizes, and how its programs behave."""

    name: str
    platform: str  # as JAX names it
    kind: str  # JAX's device kind, or its prefix
    products: tuple[tuple[str, Figure], ...]  # operations per second of matrix products, by tier; passes not counted
    vector: Figure  # other operations per second
    memory: Figure  # bytes per second of main memory, read and written
    link: Figure  # bytes per second one way over a link, or without a torus to all devices together
    hop: Figure  # seconds from a device to its neighbour
    capacity: Figure | None = None  # bytes of main memory
    clock: Figure | None = None  # cycles per second
    devices: int = 1  # JAX devices on a chip, which share its links
    megacore: bool = False  # JAX joins these into one device by default
    torus: tuple[int, ...] = ()  # longest axes of a torus of chips; () if all devices are linked alike
    side: int = 1  # rows and columns of the matrix unit; products are padded to them
    scratch: Figure | None = None  # bytes of VMEM, for vector-unit kernels
    cached: bool = False  # columns of a block stay in cache between stages of a local FFT
    # unit that multiplies float64 slices (numerics/slices.py); "long" if sums leave VMEM
    unit: str = ""
    splits: bool = False  # multiplies float32 as bfloat16 terms by default
    run: int = 0  # terms of a product that one float adds, one by one; 0 if unknown, or by tiles (CPUs)
    rounding: float = 1.0  # errors of its FFTs and sums over those of a CPU
    refuses_bfloat16: bool = False  # the compiler refuses bfloat16 products in a kernel (libtpu 0.0.52)
    planes: bool = False  # complex numbers are two arrays, real and imaginary
    overlaps: bool = False  # sends while it computes
    domain: Figure | None = None  # most devices per fast network; None if torus or host determines it
    outer: Figure | None = None  # bytes per second from a device to other domains, its share of an adapter
    sharing: int = 1  # devices that share an adapter; 0: all of a domain
    start: Figure | None = None  # seconds that a message to another domain takes beside its bytes
    switched: bool = False  # switches connect devices; FFTs and exchanges take whole runs
    rough: bool = False  # the rates only rank walks; no seconds are printed
    options: CompilerOptions = ()  # of programs that send while they compute
    chunk: int = 0  # bytes of freed memory that the host keeps; larger blocks are cleared again

    @property
    def domain_name(self) -> str:
        return {"tpu": "slice", "gpu": "node"}.get(self.platform, "host")

    @property
    def is_measured_here(self) -> bool:
        return self.memory.mark == HERE

    @property
    def fast_bytes(self) -> float:
        return self.scratch.value if self.scratch else 0.0

    def waste(self, block: tuple[int, ...], row_major: bool = False) -> float:
        """Numbers stored for each number of a block: a TPU pads two dimensions to tiles, the last two or those that pad
        least.
        """
        if self.side == 1 or len(block) < 2 or 0 in block:
            return 1.0
        pairs = [(block[-1], block[-2])] if row_major else itertools.permutations(block, 2)
        return min(_tiled(lanes, LANES) * _tiled(rows, SUBLANES) for lanes, rows in pairs)

    def product_rate(self, tier: str) -> float:
        rates = {name: figure.value for name, figure in self.products}
        return rates.get(tier, rates["float32"])

    def figures(self) -> dict[str, Figure]:
        rates = {"vector, op/s": self.vector, "memory, B/s": self.memory, "link, B/s": self.link, "hop, s": self.hop}
        known = {"capacity, B": self.capacity, "clock, Hz": self.clock, "scratch, B": self.scratch}
        known |= {"outer, B/s": self.outer, "start, s": self.start}
        tiers = {f"{tier} products, op/s": figure for tier, figure in self.products}
        return {**tiers, **rates, **{name: figure for name, figure in known.items() if figure is not None}}


def _tiled(size: int, tile: int) -> float:
    """Padding to a tile, or of few rows to a power of two."""
    tile = tile if tile == LANES else min(tile, 1 << (size - 1).bit_length())
    return rounded_up(size, tile) / size


def rounded_up(size: int, to: int) -> int:
    return -(-size // to) * to
