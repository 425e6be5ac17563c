"""The paper's evaluation: its measurements, and every walk that it mentions, as a plan on a machine.

The paper's algorithms send one way and wait for messages, so their seconds are the sum of all resources; other walks
count only exposed time. The paper's KDFT stores its rows of V. Source: Lu et al., "Large-Scale Discrete Fourier
Transform on TPUs", section V, Table I.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.sharding import AbstractMesh

from meshfft.layout.layout import Layout
from meshfft.machine.chip import Chip, padded
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
    shape: tuple[int, ...]
    cores: tuple[int, ...]
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


@dataclasses.dataclass(frozen=True)
class Case:
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
        return seconds(self.plan, self.algorithm)

    @property
    def name(self) -> str:
        return f"{self.algorithm.name}, {'x'.join(map(str, self.plan.shape))}, {self.cores} cores"


def cases(scalings: Sequence[Scaling] = SCALINGS, sizes: Sequence[int] = SIZES) -> Iterator[Case]:
    for scaling in scalings:
        yield from _scaling_cases(scaling)
    for algorithm, n in itertools.product(ALGORITHMS, sizes):
        yield _free(TABLE, algorithm, (n,) * 3, POD)
        mesh, meshes = (SHAPE, OWN) if algorithm.apart else (BLOCKS, CUBES)
        yield _laid(TABLE, algorithm, (n,) * 3, POD, mesh, meshes)


def seconds(made: Plan, algorithm: Algorithm) -> Seconds:
    found = Seconds(*map(sum, zip(*map(made.machine.seconds, works(made, algorithm)), strict=True)))
    return found._replace(total=sum(found[:-1])) if algorithm.apart else found


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
        matrix_flops=2 * (2 * 2 * padded(n, chip.side) * padded(m, chip.side) * lines),
        tier="bf16x6",
        fed_bytes=2 * 3 * (n + m) * lines * REAL,
        memory_bytes=2 * 2 * (n + m) * lines * REAL,  # sums of planes before, and of products after
    )


def slice_of(cores: int) -> str:
    """The slice of a v3 pod with so many cores, two to a chip, as near to square as powers of two allow."""
    chips = cores // 2
    short = 2 ** (int(math.log2(chips)) // 2)
    return f"v3:{short}x{chips // short}"


def _scaling_cases(scaling: Scaling) -> Iterator[Case]:
    for algorithm in (PAPER_KDFT, KDFT) if scaling.family == "KDFT" else (PAPER_FFT, FFT):
        for cores in scaling.cores:
            topology = slice_of(cores)
            if algorithm.apart and scaling.block is not None:
                mesh = (*scaling.block, cores // math.prod(scaling.block))
                yield _laid(scaling.name, algorithm, scaling.shape, topology, mesh, OWN)
            else:
                yield _free(scaling.name, algorithm, scaling.shape, topology)


def _laid(
    figure: str, algorithm: Algorithm, shape: tuple[int, ...], topology: str, mesh: tuple[int, ...], meshes: str
) -> Case:
    laid = AbstractMesh(mesh, ("x", "y", "z"))
    made = plan(shape, mesh=laid, topology=topology, **algorithm.options)
    return Case(figure, algorithm, topology, made, meshes)


def _free(figure: str, algorithm: Algorithm, shape: tuple[int, ...], topology: str) -> Case:
    """The case on the mesh where its algorithm is fastest, of those where it fits if it fits any."""
    plans = ranked(shape, topology, **algorithm.options)
    if algorithm.apart:
        plans = sorted(plans, key=lambda one: (one.fits is False, seconds(one, algorithm).total))
    return Case(figure, algorithm, topology, plans[0], BEST)
