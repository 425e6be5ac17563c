"""Floors: the fewest seconds that the published rates of a machine allow a transform, nothing else counted.

    KDFT   max(products, ring)     products = 3 x 2 x 3 (Gauss) N^4 / (peak / passes)
    FFT    max(all-to-all, products, memory)

The peak counts bfloat16 operations. The ring is the paper's, both ways, along one axis of the torus at a time.
"""

import math

from meshfft.kernels.factors import balanced
from meshfft.machine.chip import rounded_up

POINT = 8  # bytes of a complex64
PASSES = 6  # of bf16x6


# The paper's pod: cloud.google.com/tpu/docs/v3; links: Jouppi et al., CACM 63(7), 2020.
TORUS, CORES = (32, 32), 2  # chips along each axis, cores of a chip
CHIPS = math.prod(TORUS)
PEAK = 123e12  # bfloat16 operations of a chip a second
LINK, MEMORY = 82e9, 900e9  # bytes a second: of a link one way, of a chip's memory


def floor(family: str, n: int) -> dict[str, float]:
    """The floor of a transform of n^3 points by resource; the largest one binds.

    8192^3 on v3, KDFT: products 18 x 8192^4 / (1024 x 123e12 / 6) = 3.86 s. FFT: links 0.2095 s, products
    18 x 256 x 8192^3 / 2.099e16 = 0.121 s (radices 64 and 128, padded to the 128 rows of a unit), memory
    3 x 2 x 4.295e9 / 900e9 = 0.029 s.
    """
    rate = CHIPS * PEAK / PASSES
    if family == "KDFT":
        return {"products": 18 * n**4 / rate, "links": _least_ring_seconds(n)}
    radices = sum(rounded_up(radix, 128) for radix in balanced(n, 128))
    return {
        "links": exchange_seconds(n),
        "products": 18 * radices * n**3 / rate,
        "memory": 3 * 2 * n**3 * POINT / CHIPS / MEMORY,
    }


def exchange_seconds(n: int) -> float:
    """One all-to-all over the whole torus at the full rate of its links, limited by the longest axis of k chips.

    Half of a ring's V k bytes cross its middle, by two links each way, as V k / 8 a link: 8192^3 on v3 has
    V = 4.295e9 bytes a chip and k = 32, so 4.295e9 x 32 / 8 / 82e9 = 0.2095 s.
    """
    return n**3 * POINT / CHIPS * max(TORUS) / 8 / LINK


def ring_seconds(n: int, parts: tuple[int, ...], paired: int) -> float:
    """All blocks round a ring for each dimension, in order: (p - 1) blocks of a device over a link, half each way.

    Devices of one chip share its links, so a hop carries all their blocks, except in the ring `paired`, where they are
    neighbours: 8192^3 on v3 as (8, 16, 16), paired 0, is (7 x 1 + 15 x 2 + 15 x 2) x 2.147e9 / 82e9 / 2 = 0.88 s.
    """
    block = n**3 * POINT / (CHIPS * CORES)
    hops = sum((p - 1) * (1 if d == paired else CORES) for d, p in enumerate(parts))
    inside = parts[paired] == CORES  # the whole ring is within a chip
    return (hops - (parts[paired] - 1) * inside) * block / LINK / 2


def _least_ring_seconds(n: int) -> float:
    """Both ways, over the mesh that sends least: on v3 (16, 8, 16), 15 + 14 + 30 blocks of a core."""
    count = CHIPS * CORES
    powers = [2**j for j in range(count.bit_length())]
    meshes = [(a, b, count // a // b) for a in powers for b in powers if a * b <= count]
    pairs = [(parts, paired) for parts in meshes for paired in range(3) if parts[paired] % CORES == 0]
    return min(ring_seconds(n, parts, paired) for parts, paired in pairs)
