"""The paper's evaluation: its measurements, and every walk that it mentions, as a plan on a machine.

The paper's algorithms send one way and wait for messages, so their seconds are the sum of all resources; other walks
count only exposed time. The paper's KDFT stores its rows of V. Source: Lu et al., "Large-Scale Discrete Fourier
Transform on TPUs", section V, Table I.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.sharding import AbstractMesh

from meshfft.layout.layout import Layout
from meshfft.machine.chip import Chip, rounded_up
from meshfft.machine.machine import Seconds, Work
from meshfft.plans.plan import Plan
from meshfft.plans.planning import plan, ranked

# Table I: seconds on a full pod of 2048 cores, measured by the paper; everything else here is modelled.
MEASURED = {
    8192: {"KDFT": 12.66, "FFT": 8.30},
    4096: {"KDFT": 1.07, "FFT": 1.01},
    2048: {"KDFT": 0.120, "FFT": 0.118},
    1024: {"KDFT": 0.0220, "FFT": 0.0148},
}
Lengths = tuple[int, ...]
SIZES = tuple(MEASURED)
POD, TABLE = "v3:32x32", "table-v3"  # the machine of Table I, and the name of its rows
SHAPE = (4, 4, 128)  # the paper's computation shape (4, 4, n2) on the cores of its pod
BLOCKS = (8, 16, 16)  # blocks of all three dimensions, as near to cubes as may be
BEST, OWN, CUBES = "best of all meshes", "cores along x, y, z as (4, 4, n2)", "blocks as near to cubes as may be"


class Scaling(NamedTuple):
    """A figure of strong scaling: one array on more and more cores, fewest first."""

    name: str
    title: str
    family: str
    shape: Lengths
    cores: Lengths
    block: tuple[int, int] | None  # mesh sizes that the paper keeps, z taking the other cores; None: any mesh


SCALINGS = (
    Scaling("kdft-2d", "2-D KDFT, 8192 x 8192", "KDFT", (8192,) * 2, (2, 4, 8, 16, 32, 64, 128), None),
    Scaling(
        "kdft-3d", "3-D KDFT, 2048 x 2048 x 2048", "KDFT", (2048,) * 3, (32, 64, 128, 256, 512, 1024, 2048), (4, 4)
    ),
    Scaling("fft-3d", "3-D FFT, 2048 x 2048 x 2048", "FFT", (2048,) * 3, (16, 32, 64, 128, 256), (4, 4)),
)


class Algorithm(NamedTuple):
    """A way to transform: name, "KDFT" or "FFT", options of `plan`, and whether nothing overlaps, as in the paper."""

    name: str
    family: str
    options: dict[str, Any]
    apart: bool = False


REAL = 4  # bytes of a float32
ONE_WAY = {"ring": "one-way"}
FOUR = {"method": "kdft", "precision": "bf16x6", "multiplications": 4}
PAPER_KDFT = Algorithm("paper's KDFT", "KDFT", {**FOUR, **ONE_WAY, "precompute": True}, True)
PAPER_FFT = Algorithm("paper's FFT", "FFT", {"method": "cooley-tukey", **ONE_WAY}, True)
KDFT = Algorithm("KDFT, bf16x6", "KDFT", {"method": "kdft", "precision": "bf16x6"})
FFT = Algorithm("FFT, natural order", "FFT", {"method": "auto", "order": "natural"})
ALGORITHMS = (PAPER_KDFT, KDFT, PAPER_FFT, FFT)


class Case(NamedTuple):
    """A plan of the evaluation: its figure or table, whose walk it is, the machine, and how its mesh was found."""

    figure: str
    algorithm: Algorithm
    topology: str
    plan: Plan
    meshes: str

    @property
    def cores(self) -> int:
        return math.prod(self.plan.mesh.axis_sizes) if self.plan.mesh is not None else 1

    @property
    def seconds(self) -> Seconds:
        rates = map(self.plan.machine.seconds, works(self.plan, self.algorithm))
        found = Seconds(*map(sum, zip(*rates, strict=True)))
        return found._replace(total=sum(found[:-1])) if self.algorithm.apart else found


def cases(scalings: Sequence[Scaling] = SCALINGS, sizes: Sequence[int] = SIZES) -> Iterator[Case]:
    for scaling in scalings:
        ways = [one for one in ALGORITHMS if one.family == scaling.family]
        for algorithm, cores in itertools.product(ways, scaling.cores):
            own = scaling.block if algorithm.apart else None
            mesh = (*own, cores // math.prod(own)) if own else None
            yield _case(scaling.name, algorithm, scaling.shape, slice_of(cores), mesh)
    for algorithm, n in itertools.product(ALGORITHMS, sizes):
        for laid in (None, SHAPE if algorithm.apart else BLOCKS):
            yield _case(TABLE, algorithm, (n,) * 3, POD, laid)


def _case(figure: str, algorithm: Algorithm, shape: Lengths, topology: str, mesh: Lengths | None) -> Case:
    """The case on that mesh; without one, where its algorithm is fastest, and fits if it fits on any."""
    if mesh is not None:
        made = plan(shape, mesh=AbstractMesh(mesh, ("x", "y", "z")), topology=topology, **algorithm.options)
        return Case(figure, algorithm, topology, made, OWN if algorithm.apart else CUBES)
    found = [Case(figure, algorithm, topology, one, BEST) for one in ranked(shape, topology, **algorithm.options)]
    return min(found, key=lambda one: (one.plan.fits is False, one.seconds.total)) if algorithm.apart else found[0]


def works(made: Plan, algorithm: Algorithm) -> list[Work]:
    """The work of a plan's steps; of the paper's FFT, and of the einsums that re-order its shards."""
    chip = made.machine.chip
    found = list(made.walk.works(made.dtype.itemsize, chip))
    if algorithm is PAPER_FFT:
        found += [_reordered(layout, step.dims[0], chip) for step, layout in made.walk.pairs if step.sends]
    return found


def _reordered(layout: Layout, dim: int, chip: Chip) -> Work:
    """Two products of the authors' program for a cut dimension: with zeros and ones, before and after the all-to-all.

    Matrices (n, m) and (m, n): n points of a shard, m of them rounded up to a multiple of the shards. Each complex
    product is compiled as three real ones, of 3, 3 and 6 passes in bfloat16, which are two by bf16x6.
    """
    n, parts = layout.block[dim], layout.parts[dim]
    m, lines = -(-n // parts) * parts, math.prod(layout.block) // n
    return Work(
        matrix_flops=2 * (2 * 2 * rounded_up(n, chip.side) * rounded_up(m, chip.side) * lines),
        tier="bf16x6",
        fed_bytes=2 * 3 * (n + m) * lines * REAL,
        memory_bytes=2 * 2 * (n + m) * lines * REAL,  # sums of planes before, and of products after
    )


def slice_of(cores: int) -> str:
    """The slice of a v3 pod with so many cores, two to a chip, as near to square as powers of two allow."""
    chips = cores // 2
    short = 2 ** (int(math.log2(chips)) // 2)
    return f"v3:{short}x{chips // short}"
