"""Chips: rates, memory and links of one device, each number with its source.

A device is one JAX device: a core of TPU v2, v3, v4 and v7x, a chip of other TPUs, a GPU, a virtual CPU device. A
number is "published" by the maker or in a paper, "measured" on such a device, or "derived" from published numbers or
from the compiler's cycles for a large product and a large copy. All results from these numbers are modelled.
"""

import dataclasses
from typing import NamedTuple

from ..layout.layout import hashed_once
from ..numerics.dtypes import TIERS

CompilerOptions = tuple[tuple[str, str | bool], ...]
GIB = 2**30
CHUNK = 30 * 2**20  # glibc keeps blocks up to 32 MiB, headers included (mallopt(3), M_MMAP_THRESHOLD)
# Without the first three a TPU program waits for each all-to-all, and on v3 for each permute. The last sets the
# latency of products to zero: the scheduler overestimates links, and would start messages late.
ASYNCHRONOUS: CompilerOptions = (
    ("xla_enable_async_collective_permute", True),
    ("xla_tpu_enable_async_all_to_all", True),
    ("xla_tpu_force_async_all_to_all", True),
    ("xla_lhs_output_fusion_latency_multiplier", "0"),
)
# The compiler offloads large layout changes to the sparse cores, and then fails (libtpu 0.0.52).
COPIED: CompilerOptions = (("xla_tpu_enable_offloading_copy_to_sparsecore", False),)

BOOK = "How to Scale Your Model, jax-ml.github.io/scaling-book"
PAPER = "Jouppi et al., CACM 63(7), 2020"
DOCS = "cloud.google.com/tpu/docs/"
CYCLES = "TPU compiler's estimate (libtpu 0.0.52)"
SHEET = {
    "bf16": "dense bfloat16 products on tensor cores",
    "float32": "float32",
    "float64": "float64 products on tensor cores",
    "memory": "memory bandwidth",
    "size": "memory",
    "link": "NVLink, one way",
}
ORDER = "order of magnitude of a current accelerator"
FITTED = (
    "one of 8 devices sharing 2 cores of an EPYC 9004, fitted to parts of a 256^3 complex64 transform: copy 0.008 s, "
    "XLA's FFT along the last axis 0.020 s, the last two 0.045 s, the first 0.11 s, by columns along the first 0.04 s, "
    "one dense product 0.19 s, all_to_all 0.04 s"
)


class Figure(NamedTuple):
    value: float
    mark: str
    source: str


@hashed_once
@dataclasses.dataclass(frozen=True)
class Chip:
    name: str
    platform: str  # JAX's name of the platform
    kind: str  # JAX's device kind, or its prefix
    products: tuple[tuple[str, Figure], ...]  # operations per second of matrix products, by tier; passes not counted
    vector: Figure  # other operations per second
    memory: Figure  # bytes per second of main memory, read and written
    link: Figure  # bytes per second one way over a link, or without a torus to all devices together
    hop: Figure  # seconds from a device to its neighbour
    capacity: Figure | None = None  # bytes of main memory
    clock: Figure | None = None  # cycles per second
    devices: int = 1  # JAX devices that share a chip and its links
    megacore: bool = False  # JAX joins these into one device by default
    torus: tuple[int, ...] = ()  # longest axes of a torus of chips; empty if every device reaches every other
    side: int = 1  # rows and columns of the matrix unit; products are padded to it
    scratch: Figure | None = None  # bytes of VMEM, used by vector-unit kernels; None without it
    cached: bool = False  # columns of a block stay in a cache between the stages of a local FFT
    # unit that multiplies float64 slices (numerics/slices.py); "long" if sums leave VMEM
    unit: str = ""
    refuses_bfloat16: bool = False  # the compiler takes no bfloat16 products from a kernel (libtpu 0.0.52)
    planes: bool = False  # complex numbers are stored as two arrays, real and imaginary
    overlaps: bool = False  # sends while it computes
    domain: Figure | None = None  # devices per fast network; None if the torus or slice determines it
    switched: bool = False  # devices are connected by switches; FFTs and exchanges take whole runs
    rough: bool = False  # the rates only rank walks; no seconds are printed
    options: CompilerOptions = ()  # compiler options for programs that send while they compute
    chunk: int = 0  # bytes of freed memory that the host keeps; larger blocks are cleared again

    @property
    def fast_bytes(self) -> float:
        return self.scratch.value if self.scratch else 0.0

    def product_rate(self, tier: str) -> float:
        rates = {name: figure.value for name, figure in self.products}
        return rates.get(tier, rates["float32"])

    def figures(self) -> dict[str, Figure]:
        rates = {"vector, op/s": self.vector, "memory, B/s": self.memory, "link, B/s": self.link, "hop, s": self.hop}
        known = {"capacity, B": self.capacity, "clock, Hz": self.clock, "scratch, B": self.scratch}
        tiers = {f"{tier} products, op/s": figure for tier, figure in self.products}
        return {**tiers, **rates, **{name: figure for name, figure in known.items() if figure is not None}}


def _tpu(
    name: str,
    kind: str,
    clock: float,
    cycle: tuple[float, ...],
    torus: tuple[int, ...],
    capacity: Figure,
    link: Figure,
    devices: int = 1,
    side: int = 128,
    scratch: int = 16,
    options: CompilerOptions = (),
    integer: float = 0,
    refuses_bfloat16: bool = False,
    megacore: bool = False,
) -> Chip:
    """A TPU; `cycle` has operations per cycle of bf16, bf16x3, bf16x6 products and vectors, and bytes copied."""
    kinds = (*("operations",) * 3, "vector operations", "bytes copied")
    sources = [f"{rate:g} {what} per cycle, {CYCLES}, times the clock" for rate, what in zip(cycle, kinds, strict=True)]
    rates = [Figure(rate * clock, "derived", source) for rate, source in zip(cycle, sources, strict=True)]
    exact = integer or cycle[0]
    source = f"{exact:g} operations per cycle, {CYCLES}, times the clock, over the number of products"
    slices = [
        (tier, Figure(exact * clock / row.passes, "derived", source)) for tier, row in TIERS.items() if row.slices
    ]
    return Chip(
        name,
        "tpu",
        kind,
        (*zip(("bf16", "bf16x3", "bf16x6", "float32"), (*rates[:3], rates[2]), strict=True), *slices),
        vector=rates[3],
        memory=rates[4],
        link=link,
        hop=Figure(1e-6, "published", f"{BOOK}, about 1 us a hop"),
        capacity=capacity,
        clock=Figure(clock, "derived", f"peak of {DOCS}{name} over the operations of its matrix units in a cycle"),
        devices=devices,
        megacore=megacore,
        torus=torus,
        side=side,
        scratch=Figure(
            scratch * 2**20, "published", "VMEM of a core: TpuInfo of jax.experimental.pallas.tpu, jax 0.10.2"
        ),
        unit=("int8" if scratch > 64 else "int8 long") if integer else "bf16",
        refuses_bfloat16=refuses_bfloat16,
        planes=True,
        overlaps=True,
        options=ASYNCHRONOUS + options,
    )


def _gpu(name: str, kind: str, sheet: str, **rates: float) -> Chip:
    """A GPU by its maker's data sheet, which has sparse products at twice the rate, and both ways of a link."""
    figures = {what: Figure(value, "published", f"{sheet}: {SHEET[what]}") for what, value in rates.items()}
    bf16 = rates["bf16"]
    source = "bf16 terms of this tier: rate of bf16 over the number of products"
    split = {tier: Figure(bf16 / TIERS[tier].passes, "derived", source) for tier in ("bf16x3", "bf16x6")}
    source = "int8: twice the rate of bf16, over the number of products"
    split |= {tier: Figure(2 * bf16 / row.passes, "derived", source) for tier, row in TIERS.items() if row.slices}
    return Chip(
        name,
        "gpu",
        kind,
        (*((tier, figures[tier]) for tier in ("float32", "float64", "bf16")), *split.items()),
        vector=figures["float32"],
        memory=figures["memory"],
        link=figures["link"],
        hop=Figure(2e-6, "derived", "order of magnitude of one NVLink message"),
        capacity=figures["size"],
        domain=Figure(8, "published", f"{BOOK}, GPUs: a node of 8 behind NVLink switches"),
        switched=True,
    )


CPU = Chip(
    "cpu",
    "cpu",
    "cpu",
    tuple(
        (tier, Figure(2.3e10 / (2 if tier == "float64" else row.passes), "measured", FITTED))
        for tier, row in TIERS.items()
    ),
    vector=Figure(6.7e9, "measured", FITTED),
    memory=Figure(4.2e9, "measured", FITTED),
    link=Figure(1.7e9, "measured", FITTED),
    hop=Figure(2e-5, "measured", FITTED),
    cached=True,
    chunk=CHUNK,
)
GENERIC = Chip(
    "generic",
    "",
    "",
    (("float32", Figure(3e13, "derived", ORDER)),),
    vector=Figure(5e12, "derived", ORDER),
    memory=Figure(1e12, "derived", ORDER),
    link=Figure(5e10, "derived", ORDER),
    hop=Figure(2e-6, "derived", ORDER),
    rough=True,
)
TPUS = (
    _tpu("v2", "TPU v2", 702e6, (31923, 10827, 5424, 1982, 443), (16, 16), devices=2, refuses_bfloat16=True,
         capacity=Figure(8 * GIB, "published", f"{DOCS}v2, half a chip's 16 GB"),
         link=Figure(62e9, "published", f"{PAPER}: 496 Gbit/s a link")),
    _tpu("v3", "TPU v3", 940e6, (62962, 21466, 10827, 1982, 445), (32, 32), devices=2, refuses_bfloat16=True,
         capacity=Figure(15.48 * GIB, "derived",
                         f"{DOCS}v3: half a chip's 32 GiB, less what the compiler keeps (libtpu 0.0.52)"),
         link=Figure(82e9, "published", f"{PAPER}: 656 Gbit/s a link; 340 TB/s all-reduce a pod give 83")),
    _tpu("v4", "TPU v4", 1050e6, (119100, 39816, 20527, 1982, 444), (16, 16, 16), devices=2, megacore=True,
         capacity=Figure(16 * GIB, "published", f"{DOCS}v4, half a chip's 32 GiB"),
         link=Figure(45e9, "published", BOOK)),
    _tpu("v5e", "TPU v5 lite", 1503e6, (126981, 41187, 21497, 4014, 428), (16, 16), scratch=128,
         integer=252600,
         capacity=Figure(16e9, "published", f"{DOCS}v5e"),
         link=Figure(45e9, "published", BOOK)),
    _tpu("v5p", "TPU v5", 1751e6, (252458, 83611, 41413, 8011, 1093), (16, 16, 24), scratch=64,
         integer=502339,
         capacity=Figure(95 * GIB, "published", f"{DOCS}v5p"),
         link=Figure(90e9, "published", BOOK)),
    _tpu("v6e", "TPU v6 lite", 1751e6, (461195, 159651, 73806, 4017, 756), (16, 16), side=256, scratch=128,
         integer=614527,
         capacity=Figure(32e9, "published", f"{DOCS}v6e"),
         link=Figure(90e9, "published", BOOK)),
    _tpu("tpu7x", "TPU7x", 2200e6, (439338, 150374, 73343, 4021, 1265), (16, 24, 24), devices=2, side=256, scratch=64,
         options=COPIED,
         capacity=Figure(96 * GIB, "published", f"{DOCS}tpu7x, half a chip's 192 GiB"),
         link=Figure(100e9, "published", f"{DOCS}tpu7x: 1200 GB/s both ways over 6 links")),
)  # fmt: skip
GPUS = (
    _gpu("h100", "NVIDIA H100", "NVIDIA H100 SXM data sheet", bf16=990e12, float32=67e12, float64=67e12,
         memory=3.35e12, size=80e9, link=450e9),
    _gpu("h200", "NVIDIA H200", "NVIDIA H200 SXM data sheet", bf16=990e12, float32=67e12, float64=67e12,
         memory=4.8e12, size=141e9, link=450e9),
    _gpu("b200", "NVIDIA B200", "NVIDIA Blackwell data sheet, B200", bf16=2250e12, float32=80e12, float64=40e12,
         memory=8.0e12, size=192e9, link=900e9),
)  # fmt: skip
CHIPS = {chip.name: chip for chip in (CPU, *TPUS, *GPUS)}


def chip_for(platform: str | None, kind: str = "") -> Chip:
    """The chip of a JAX device; the generic one if unknown."""
    named = [chip for chip in CHIPS.values() if chip.platform == platform and kind.startswith(chip.kind)]
    return max(named, key=lambda chip: len(chip.kind), default=CPU if platform == "cpu" else GENERIC)


def padded(size: int, side: int) -> int:
    return -(-size // side) * side
