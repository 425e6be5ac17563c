"""Floors: the fewest seconds that the published rates of a machine allow a transform, nothing else counted.

    KDFT   max(products, ring)             products = 18 N^4 / (peak / passes)
    FFT    max(all-to-all, products, memory)

with N^3 points of 8 bytes, three real products of 2 N operations for each of three dimensions (Gauss: 3 x 2 x 3 = 18),
and a peak that counts bfloat16 operations, of which a product takes `passes`: 6 as good as float32, 3 for five digits.

The ring is the paper's, both ways, along one axis of the torus at a time; along several at once it could be faster.
"""

import math
from typing import NamedTuple

from meshfft.kernels.xla import balanced
from meshfft.machine.chip import padded

POINT = 8  # bytes of a complex64
PASSES = {"bf16x6": 6, "bf16x3": 3}


class Rates(NamedTuple):
    """What the makers publish of a machine's chips; one-way rates of one link.

    Attributes:
        torus: chips along each axis.
        cores: devices of a chip.
        peak: bfloat16 operations per second of a chip.
        link: bytes per second.
        memory: bytes per second of a chip.
    """

    torus: tuple[int, ...]
    cores: int
    peak: float
    link: float
    memory: float

    @property
    def chips(self) -> int:
        """Chips in all."""
        return math.prod(self.torus)


# cloud.google.com/tpu/docs/v3 and v5p; links: Jouppi et al., CACM 63(7), 2020, and How to Scale Your Model.
PUBLISHED = {
    "v3:32x32": Rates((32, 32), 2, 123e12, 82e9, 900e9),
    "v5p:8x8x16": Rates((8, 8, 16), 1, 459e12, 90e9, 2765e9),
}


def floor(family: str, n: int, topology: str, tier: str = "bf16x6") -> dict[str, float]:
    """The floor of a transform of n^3 points by resource, the largest of which binds.

    Args:
        family: "KDFT" or "FFT".
        n: points along each dimension.
        topology: a key of PUBLISHED.
        tier: of the products, a key of PASSES.

    Raises:
        ValueError: no such family, machine or tier.
    """
    if topology not in PUBLISHED:
        raise ValueError(f"no rates are published here for {topology!r}: use one of {', '.join(PUBLISHED)}")
    if tier not in PASSES:
        raise ValueError(f"tier {tier!r} has no floor: use one of {', '.join(PASSES)}")
    if family not in ("KDFT", "FFT"):
        raise ValueError(f"family {family!r} has no floor: use KDFT or FFT")
    rates, passes = PUBLISHED[topology], PASSES[tier]
    return _kdft(n, rates, passes) if family == "KDFT" else _fft(n, rates, passes)


def _kdft(n: int, rates: Rates, passes: int) -> dict[str, float]:
    """8192^3 on v3: 18 x 8192^4 / (1024 x 123e12 / 6) = 8.106e16 / 2.099e16 = 3.86 s."""
    products = 18 * n**4 / (rates.chips * rates.peak / passes)
    return {"products": products, "links": least_ring_seconds(n, rates)}


def _fft(n: int, rates: Rates, passes: int) -> dict[str, float]:
    """8192^3 on v3: links 0.2095 s, products 18 x 256 x 8192^3 / 2.099e16 = 0.121 s (radices 64 and 128, padded to the
    128 rows of a unit), memory 3 x 2 x 4.295e9 / 900e9 = 0.029 s."""
    radices = sum(padded(radix, 128) for radix in balanced(n, 128))
    return {
        "links": exchange_seconds(n, rates),
        "products": 18 * radices * n**3 / (rates.chips * rates.peak / passes),
        "memory": 3 * 2 * n**3 * POINT / rates.chips / rates.memory,
    }


def exchange_seconds(n: int, rates: Rates) -> float:
    """One all-to-all over the whole torus at the full rate of its links, limited by the longest axis of k chips.

    Half of a ring's V k bytes cross its middle, by two links each way, as V k / 8 a link: 8192^3 on v3 has
    V = 4.295e9 bytes a chip and k = 32, so 4.295e9 x 32 / 8 / 82e9 = 0.2095 s.
    """
    return n**3 * POINT / rates.chips * max(rates.torus) / 8 / rates.link


def ring_seconds(n: int, parts: tuple[int, ...], paired: int, rates: Rates, ways: int = 2) -> float:
    """All blocks round a ring for each dimension, in order: (p - 1) blocks of a device over a link, half of them each
    way where `ways` is 2.

    Devices of one chip share its links, so that a hop carries all their blocks, but in the ring `paired` of which they
    are neighbours: 8192^3 on v3 as (8, 16, 16), paired 0, is (7 x 1 + 15 x 2 + 15 x 2) x 2.147e9 / 82e9 = 1.75 s one
    way, 0.88 s both ways.
    """
    block = n**3 * POINT / (rates.chips * rates.cores)
    hops = sum((p - 1) * (1 if d == paired else rates.cores) * (p > 1) for d, p in enumerate(parts))
    inside = rates.cores > 1 and parts[paired] == rates.cores  # the whole ring lies within a chip
    return (hops - (parts[paired] - 1) * inside) * block / rates.link / ways


def least_ring_seconds(n: int, rates: Rates) -> float:
    """Both ways, over the mesh that sends least: on v3 (16, 8, 16), 15 + 14 + 30 blocks of a core."""
    count = rates.chips * rates.cores
    meshes = [(a, b, count // a // b) for a in _powers(count) for b in _powers(count // a)]
    return min(
        ring_seconds(n, parts, paired, rates)
        for parts in meshes
        for paired in range(3)
        if parts[paired] % rates.cores == 0
    )


def _powers(count: int) -> list[int]:
    """The divisors of a power of two."""
    return [2**j for j in range(count.bit_length())]
