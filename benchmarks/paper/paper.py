"""The paper's evaluation: what it measured, on how many cores, and the line it calls ideal.

    ideal time = T_first / (cores / first)      T_first the time on the fewest cores of the figure

Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section V and Table I.
"""

import math
from typing import NamedTuple

# Table I: seconds on a full pod of 2048 cores, measured by the paper; everything else here is modelled.
MEASURED = {
    8192: {"KDFT": 12.66, "FFT": 8.30},
    4096: {"KDFT": 1.07, "FFT": 1.01},
    2048: {"KDFT": 0.120, "FFT": 0.118},
    1024: {"KDFT": 0.0220, "FFT": 0.0148},
}
POD = "v3:32x32"
LATER = "v5p:8x8x16"  # a machine of as many chips, two generations on
TABLES = {"table-v3": POD, "table-v5p": LATER}
SHAPES = {POD: (4, 4, 128)}  # the paper's computation shape (4, 4, n2) on the cores of its pod
BLOCKS = {POD: (8, 16, 16), LATER: (8, 8, 16)}  # blocks of all three dimensions, as near to cubes as may be


class Scaling(NamedTuple):
    """A figure of strong scaling: one array on more and more cores.

    Attributes:
        name: of the figure, and of its file.
        title: in words.
        family: "KDFT" or "FFT".
        shape: of the array.
        cores: along the abscissa, fewest first.
        block: mesh sizes that the paper keeps, the last dimension taking the other cores; None where any mesh may do.
    """

    name: str
    title: str
    family: str
    shape: tuple[int, ...]
    cores: tuple[int, ...]
    block: tuple[int, int] | None


SCALINGS = (
    Scaling("kdft-2d", "2-D KDFT, 8192 x 8192", "KDFT", (8192,) * 2, (2, 4, 8, 16, 32, 64, 128), None),
    Scaling(
        "kdft-3d", "3-D KDFT, 2048 x 2048 x 2048", "KDFT", (2048,) * 3, (32, 64, 128, 256, 512, 1024, 2048), (4, 4)
    ),
    Scaling("fft-3d", "3-D FFT, 2048 x 2048 x 2048", "FFT", (2048,) * 3, (16, 32, 64, 128, 256), (4, 4)),
)


def ideal(first_seconds: float, first: int, cores: int) -> float:
    """The time of perfect scaling from the fewest cores of a figure."""
    return first_seconds / (cores / first)


def slice_of(cores: int) -> str:
    """The slice of a v3 pod with so many cores, two to a chip, as near to square as powers of two allow."""
    chips = cores // 2
    short = 2 ** (int(math.log2(chips)) // 2)
    return f"v3:{short}x{chips // short}"
