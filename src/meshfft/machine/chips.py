"""The chips that are known: one row each. Add a chip here, and every plan can be made for it.

Rates of TPU products and memory are what the TPU compiler estimates for one large product and one large copy, in
cycles, times the clock; the clock is the published peak over the operations that the matrix units do in a cycle.
"""

from ..numerics.dtypes import TIERS
from .chip import Chip, CompilerOptions, Figure

BOOK = "How to Scale Your Model, jax-ml.github.io/scaling-book"
DOCS = "cloud.google.com/tpu/docs/"
CYCLES = "TPU compiler's estimate (libtpu 0.0.52)"
GPU_BOOK = f"{BOOK}, GPUs"
# Without the first three a TPU program waits for each all-to-all, and on v3 for each permute. With the last its
# scheduler counts on no product to be long: it takes links to be faster than they are, and starts messages late.
ASYNCHRONOUS: CompilerOptions = (
    ("xla_enable_async_collective_permute", True),
    ("xla_tpu_enable_async_all_to_all", True),
    ("xla_tpu_force_async_all_to_all", True),
    ("xla_lhs_output_fusion_latency_multiplier", "0"),
)
CHUNK = 30 * 2**20  # glibc keeps up to 32 MiB, with what it writes beside them (mallopt(3), M_MMAP_THRESHOLD)
BLOCKS = "bf16 terms of this tier: rate of bf16 over the number of products"


def _tpu(
    name: str,
    kind: str,
    clock: float,
    cycle: tuple[float, float, float],
    vector: float,
    copy: float,
    capacity: Figure,
    link: Figure,
    torus: tuple[int, ...],
    devices: int = 1,
    side: int = 128,
) -> Chip:
    """A TPU: per cycle the operations of products in bf16, bf16x3 and bf16x6, vector operations, and bytes copied."""

    def derived(per_cycle: float, what: str) -> Figure:
        return Figure(per_cycle * clock, "derived", f"{per_cycle:g} {what} per cycle, {CYCLES}, times the clock")

    bf16, three, six = (derived(rate, "operations") for rate in cycle)
    products = (("bf16", bf16), ("bf16x3", three), ("bf16x6", six), ("float32", six))
    return Chip(
        name,
        "tpu",
        (kind,),
        products,
        vector=derived(vector, "vector operations"),
        memory=derived(copy, "bytes copied"),
        link=link,
        hop=Figure(1e-6, "published", f"{BOOK}, about 1 us a hop"),
        capacity=capacity,
        clock=Figure(clock, "derived", f"peak of {DOCS}{name} over the operations of its matrix units in a cycle"),
        devices=devices,
        torus=torus,
        side=side,
        planes=True,
        overlaps=True,
        options=ASYNCHRONOUS,
    )


def _gpu(
    name: str, kind: str, bf16: float, simt: float, double: float, memory: float, size: float, link: float
) -> Chip:
    """A GPU behind switches, published rates."""

    def known(value: float) -> Figure:
        return Figure(value, "published", GPU_BOOK)

    split = {tier: Figure(bf16 / TIERS[tier].passes, "derived", BLOCKS) for tier in ("bf16x3", "bf16x6")}
    products = {"float32": known(simt), "float64": known(double), "bf16": known(bf16), **split}
    return Chip(
        name,
        "gpu",
        (kind,),
        tuple(products.items()),
        vector=known(simt),
        memory=known(memory),
        link=known(link),
        hop=Figure(2e-6, "derived", "order of magnitude of one NVLink message"),
        capacity=known(size),
    )


def _cpu(product: float, vector: float, memory: float, link: float, hop: float, source: str) -> Chip:
    """A virtual CPU device; `product` is its measured float32 rate."""
    mark = "measured"
    passes = {tier: 2 if tier == "float64" else row.passes for tier, row in TIERS.items()}
    return Chip(
        "cpu",
        "cpu",
        ("cpu",),
        tuple((tier, Figure(product / many, mark, source)) for tier, many in passes.items()),
        vector=Figure(vector, mark, source),
        memory=Figure(memory, mark, source),
        link=Figure(link, mark, source),
        hop=Figure(hop, mark, source),
        cached=True,
        chunk=CHUNK,
    )


GIB = 2**30
PARTS = (
    "one of 8 devices sharing 2 cores of an EPYC 9004, fitted to parts of a 256^3 complex64 transform: copy 0.008 s, "
    "XLA's FFT along the last axis 0.020 s, the last two 0.045 s, the first 0.11 s, by columns along the first 0.04 s, "
    "one dense product 0.19 s, all_to_all 0.04 s"
)
CPU = _cpu(2.3e10, 6.7e9, 4.2e9, 1.7e9, 2e-5, PARTS)
ORDER = "order of magnitude of a current accelerator"
GENERIC = Chip(
    "generic",
    "",
    (),
    (("float32", Figure(3e13, "derived", ORDER)),),
    vector=Figure(5e12, "derived", ORDER),
    memory=Figure(1e12, "derived", ORDER),
    link=Figure(5e10, "derived", ORDER),
    hop=Figure(2e-6, "derived", ORDER),
    rough=True,
)
V2 = _tpu(
    "v2",
    "TPU v2",
    702e6,
    (31923, 10827, 5424),
    1982,
    443,
    Figure(8 * GIB, "published", f"{DOCS}v2, half a chip's 16 GB"),
    Figure(62e9, "published", "Jouppi et al., CACM 63(7), 2020: 496 Gbit/s a link"),
    (16, 16),
    devices=2,
)
V3 = _tpu(
    "v3",
    "TPU v3",
    940e6,
    (62962, 21466, 10827),
    1982,
    445,
    Figure(15.48 * GIB, "derived", f"{DOCS}v3: half a chip's 32 GiB, less what the compiler keeps (libtpu 0.0.52)"),
    Figure(82e9, "published", "Jouppi et al., CACM 63(7), 2020: 656 Gbit/s a link; 340 TB/s all-reduce a pod give 83"),
    (32, 32),
    devices=2,
)
V4 = _tpu(
    "v4",
    "TPU v4",
    1050e6,
    (119100, 39816, 20527),
    1982,
    444,
    Figure(16 * GIB, "published", f"{DOCS}v4, half a chip's 32 GiB"),
    Figure(45e9, "published", BOOK),
    (16, 16, 16),
    devices=2,
)
V5E = _tpu(
    "v5e",
    "TPU v5 lite",
    1503e6,
    (126981, 41187, 21497),
    4014,
    428,
    Figure(16e9, "published", f"{DOCS}v5e"),
    Figure(45e9, "published", BOOK),
    (16, 16),
)
V5P = _tpu(
    "v5p",
    "TPU v5",
    1751e6,
    (252458, 83611, 41413),
    8011,
    1093,
    Figure(95 * GIB, "published", f"{DOCS}v5p"),
    Figure(90e9, "published", BOOK),
    (16, 16, 24),
)
V6E = _tpu(
    "v6e",
    "TPU v6 lite",
    1751e6,
    (461195, 159651, 73806),
    4017,
    756,
    Figure(32e9, "published", f"{DOCS}v6e"),
    Figure(90e9, "published", BOOK),
    (16, 16),
    side=256,
)
V7X = _tpu(
    "tpu7x",
    "TPU7x",
    2200e6,
    (439338, 150374, 73343),
    4021,
    1265,
    Figure(96 * GIB, "published", f"{DOCS}tpu7x, half a chip's 192 GiB"),
    Figure(100e9, "published", f"{DOCS}tpu7x: 1200 GB/s both ways over 6 links"),
    (16, 24, 24),
    devices=2,
    side=256,
)
H100 = _gpu("h100", "NVIDIA H100", 990e12, 67e12, 67e12, 3.35e12, 80e9, 450e9)
H200 = _gpu("h200", "NVIDIA H200", 990e12, 67e12, 67e12, 4.8e12, 141e9, 450e9)
B200 = _gpu("b200", "NVIDIA B200", 2250e12, 80e12, 40e12, 8.0e12, 192e9, 900e9)
CHIPS = {chip.name: chip for chip in (CPU, V2, V3, V4, V5E, V5P, V6E, V7X, H100, H200, B200)}


def chip_for(platform: str | None, kind: str = "") -> Chip:
    """The row for a device as JAX names it; the generic one where none is known."""
    same = [chip for chip in CHIPS.values() if chip.platform == platform]
    named = [chip for chip in same if any(kind.startswith(known) for known in chip.kinds)]
    named.sort(key=lambda chip: max(map(len, chip.kinds)))
    if named:
        return named[-1]
    return CPU if platform == "cpu" else GENERIC
