"""The known chips: CPU devices, TPUs and GPUs, one row each."""

from ..numerics.dtypes import SHORT_TERMS, TIERS
from .chip import Chip, CompilerOptions, Figure

GIB = 2**30
CHUNK = 30 * 2**20  # glibc keeps blocks up to 32 MiB, headers included (mallopt(3), M_MMAP_THRESHOLD)
# Without the first three a TPU program waits for each all-to-all, and on v3 for each permute. The last sets the latency
# of products to zero: the scheduler overestimates links and would start messages late.
ASYNCHRONOUS: CompilerOptions = (
    ("xla_enable_async_collective_permute", True),
    ("xla_tpu_enable_async_all_to_all", True),
    ("xla_tpu_force_async_all_to_all", True),
    ("xla_lhs_output_fusion_latency_multiplier", "0"),
)
# The compiler would offload large layout changes to the sparse cores, and fail (libtpu 0.0.52).
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
    "link": "links to the other GPUs of a node, one way, all together",
    "outer": "network adapter of each GPU in the maker's node",
}
GPU_ROUNDING = 1.5  # cuFFT and cuBLAS on an H200: up to 1.3 times the bound for a CPU (docs/accuracy.md)
ORDER = "order of magnitude of a current accelerator"
FITTED = (
    "one of 8 devices sharing 2 cores of an EPYC 9004, fitted to parts of a 256^3 complex64 transform: copy 0.008 s, "
    "XLA's FFT along the last axis 0.020 s, the last two 0.045 s, the first 0.11 s, by columns along the first 0.04 s, "
    "one dense product 0.19 s, all_to_all 0.04 s"
)


def _tpu(
    name: str,
    kind: str,
    clock: float,
    cycle: tuple[float, ...],
    torus: tuple[int, ...],
    capacity: Figure,
    link: Figure,
    outer: Figure,
    devices: int = 1,
    side: int = 128,
    scratch: int = 16,
    options: CompilerOptions = (),
    integer: float = 0,
    refuses_bfloat16: bool = False,
    megacore: bool = False,
) -> Chip:
    """A TPU; `cycle`: operations per cycle of bf16, bf16x3, bf16x6 products and vectors, and bytes copied."""
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
        outer=outer,
        sharing=4 * devices,  # a host has 4 chips
        start=Figure(2e-5, "derived", "order of magnitude of a message through two hosts and a data-center network"),
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
        splits=True,
        refuses_bfloat16=refuses_bfloat16,
        planes=True,
        overlaps=True,
        options=ASYNCHRONOUS + options,
    )


def _gpu(name: str, kind: str, sheet: str, domain: int = 8, joined: str = "NVLink", **rates: float) -> Chip:
    """A GPU by its data sheet, which has sparse products at twice the rate, and both ways of a link."""
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
        hop=Figure(2e-6, "derived", f"order of magnitude of one message over {joined}"),
        capacity=figures["size"],
        domain=Figure(domain, "published", f"{sheet}: {domain} GPUs joined by {joined}"),
        outer=figures["outer"],
        start=Figure(2e-6, "derived", "half the usual rate at messages of about 100 kB, 50 GB/s"),
        switched=True,
        splits=kind.startswith("NVIDIA"),
        run=SHORT_TERMS,
        rounding=GPU_ROUNDING,
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
    outer=Figure(1.25e9 / 8, "derived", "10 Gbit/s Ethernet, shared by 8 devices of a host"),
    sharing=0,
    start=Figure(5e-5, "derived", "order of magnitude of a message over TCP"),
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
    run=SHORT_TERMS,
    rounding=GPU_ROUNDING,
    rough=True,
)
TPUS = (
    _tpu("v2", "TPU v2", 702e6, (31923, 10827, 5424, 1982, 443), (16, 16), devices=2, refuses_bfloat16=True,
         capacity=Figure(8 * GIB, "published", f"{DOCS}v2, half a chip's 16 GB"),
         outer=Figure(1.5625e9, "derived", "100 Gbit/s a host of 8 devices, assumed: none is published"),
         link=Figure(62e9, "published", f"{PAPER}: 496 Gbit/s a link")),
    _tpu("v3", "TPU v3", 940e6, (62962, 21466, 10827, 1982, 445), (32, 32), devices=2, refuses_bfloat16=True,
         capacity=Figure(15.48 * GIB, "derived",
                         f"{DOCS}v3: half a chip's 32 GiB, less what the compiler keeps (libtpu 0.0.52)"),
         outer=Figure(1.5625e9, "derived", "100 Gbit/s a host of 8 devices, assumed: none is published"),
         link=Figure(82e9, "published", f"{PAPER}: 656 Gbit/s a link; 340 TB/s all-reduce a pod give 83")),
    _tpu("v4", "TPU v4", 1050e6, (119100, 39816, 20527, 1982, 444), (16, 16, 16), devices=2, megacore=True,
         capacity=Figure(16 * GIB, "published", f"{DOCS}v4, half a chip's 32 GiB"),
         outer=Figure(3.125e9, "derived", "200 Gbit/s a host of 4 chips, as v5p, half for each core"),
         link=Figure(45e9, "published", BOOK)),
    _tpu("v5e", "TPU v5 lite", 1503e6, (126981, 41187, 21497, 4014, 428), (16, 16), scratch=128,
         integer=252600,
         capacity=Figure(16e9, "published", f"{DOCS}v5e"),
         outer=Figure(3.125e9, "published", f"{DOCS}v5e: 6.4 Tbit/s a pod of 256 chips"),
         link=Figure(45e9, "published", BOOK)),
    _tpu("v5p", "TPU v5", 1751e6, (252458, 83611, 41413, 8011, 1093), (16, 16, 24), scratch=64,
         integer=502339,
         capacity=Figure(95 * GIB, "published", f"{DOCS}v5p"),
         outer=Figure(6.25e9, "published", f"{DOCS}v5p: 50 Gbit/s a chip"),
         link=Figure(90e9, "published", BOOK)),
    _tpu("v6e", "TPU v6 lite", 1751e6, (461195, 159651, 73806, 4017, 756), (16, 16), side=256, scratch=128,
         integer=614527,
         capacity=Figure(32e9, "published", f"{DOCS}v6e"),
         outer=Figure(12.5e9, "published", f"{DOCS}v6e: 25.6 Tbit/s a pod of 256 chips"),
         link=Figure(90e9, "published", BOOK)),
    _tpu("tpu7x", "TPU7x", 2200e6, (439338, 150374, 73343, 4021, 1265), (16, 24, 24), devices=2, side=256, scratch=64,
         options=COPIED,
         capacity=Figure(96 * GIB, "published", f"{DOCS}tpu7x, half a chip's 192 GiB"),
         outer=Figure(6.25e9, "derived", "100 Gbit/s a chip, as v6e, half for each core"),
         link=Figure(100e9, "published", f"{DOCS}tpu7x: 1200 GB/s both ways over 6 links")),
)  # fmt: skip
GPUS = (
    _gpu("a100", "NVIDIA A100", "NVIDIA A100 80 GB SXM and DGX A100 data sheets", bf16=312e12, float32=19.5e12,
         float64=19.5e12, memory=2.039e12, size=80e9, link=300e9, outer=25e9),
    _gpu("h100", "NVIDIA H100", "NVIDIA H100 SXM and DGX H100 data sheets", bf16=990e12, float32=67e12, float64=67e12,
         memory=3.35e12, size=80e9, link=450e9, outer=50e9),
    _gpu("h200", "NVIDIA H200", "NVIDIA H200 SXM and DGX H200 data sheets", bf16=990e12, float32=67e12, float64=67e12,
         memory=4.8e12, size=141e9, link=450e9, outer=50e9),
    _gpu("b200", "NVIDIA B200", "NVIDIA Blackwell and DGX B200 data sheets", bf16=2250e12, float32=80e12,
         float64=40e12, memory=8.0e12, size=192e9, link=900e9, outer=50e9),
    _gpu("gb200", "NVIDIA GB200", "NVIDIA GB200 NVL72 data sheet", domain=72, bf16=2500e12, float32=80e12,
         float64=40e12, memory=8.0e12, size=186e9, link=900e9, outer=50e9),
    _gpu("mi300x", "AMD Instinct MI300X", "AMD Instinct MI300X data sheet and platform", joined="Infinity Fabric",
         bf16=1307.4e12, float32=163.4e12, float64=163.4e12, memory=5.3e12, size=192e9, link=448e9, outer=50e9),
)  # fmt: skip
CHIPS = {chip.name: chip for chip in (CPU, *TPUS, *GPUS)}


def chip_for(platform: str | None, kind: str = "") -> Chip:
    """The chip of a JAX device; the generic one if unknown."""
    named = [chip for chip in CHIPS.values() if chip.platform == platform and kind.startswith(chip.kind)]
    return max(named, key=lambda chip: len(chip.kind), default=CPU if platform == "cpu" else GENERIC)
