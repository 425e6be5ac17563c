"""Cases: every walk that the evaluation speaks of, as a plan on a machine, by the paper's algorithms and by meshfft's.

    paper's KDFT   dense rings one way, four bf16x6 products, each hop before the product that needs it
    paper's FFT    method "cooley-tukey": its collectives wait, and are waited for
    others         the cheapest walk, which sends while it computes

So the seconds of the paper's algorithms are the sum of all resources, those of the others what is left in sight.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.sharding import AbstractMesh

from meshfft.machine.machine import Seconds
from meshfft.plans.plan import Plan
from meshfft.plans.planning import plan, ranked

from .paper import BLOCKS, SCALINGS, SHAPES, TABLES, Scaling, slice_of

SIZES = (8192, 4096, 2048, 1024)
BEST, OWN, CUBES = "best of all meshes", "cores along x, y, z as (4, 4, n2)", "blocks as near to cubes as may be"


class Algorithm(NamedTuple):
    """A way to transform.

    Attributes:
        name: as rows and tables say it.
        family: "KDFT" or "FFT".
        options: of `plan`.
        apart: nothing overlaps and rings go one way, as in the paper.
    """

    name: str
    family: str
    options: dict[str, Any]
    apart: bool = False


ONE_WAY = {"ring": "one-way"}
FOUR = {"method": "kdft", "precision": "bf16x6", "multiplications": 4}
PAPER_KDFT = Algorithm("paper's KDFT", "KDFT", {**FOUR, **ONE_WAY}, True)
PAPER_FFT = Algorithm("paper's FFT", "FFT", {"method": "cooley-tukey", **ONE_WAY}, True)
KDFT = Algorithm("KDFT, bf16x6", "KDFT", {"method": "kdft", "precision": "bf16x6"})
KDFT_3 = Algorithm("KDFT, bf16x3", "KDFT", {"method": "kdft", "precision": "bf16x3", "multiplications": 3})
FFT = Algorithm("FFT, natural order", "FFT", {"method": "auto", "order": "natural"})
FFT_ANY = Algorithm("FFT, any order", "FFT", {"method": "auto", "order": "any"})
ALGORITHMS = (PAPER_KDFT, KDFT, KDFT_3, PAPER_FFT, FFT, FFT_ANY)


@dataclasses.dataclass(frozen=True)
class Case:
    """A plan of the evaluation.

    Attributes:
        figure: the figure or table it is for.
        algorithm: whose walk it is.
        topology: the machine.
        plan: the plan, by the algorithm's rules.
        meshes: how its mesh was found: BEST, OWN (the paper's) or CUBES.
    """

    figure: str
    algorithm: Algorithm
    topology: str
    plan: Plan
    meshes: str

    @property
    def cores(self) -> int:
        """Devices of the mesh."""
        return math.prod(self.plan.mesh.axis_sizes) if self.plan.mesh is not None else 1

    @property
    def seconds(self) -> Seconds:
        """Modelled seconds by resource, and in all."""
        return seconds(self.plan, self.algorithm.apart)


def cases(
    scalings: Sequence[Scaling] = SCALINGS, tables: dict[str, str] | None = None, sizes: Sequence[int] = SIZES
) -> Iterator[Case]:
    """Every case of the evaluation.

    Args:
        scalings: the figures of strong scaling.
        tables: topologies by the name of their table.
        sizes: points along each dimension of the tables' transforms.
    """
    for scaling in scalings:
        yield from _scaling_cases(scaling)
    for name, topology in (TABLES if tables is None else tables).items():
        for algorithm, n in itertools.product(ALGORITHMS, sizes):
            yield _free(name, algorithm, (n,) * 3, topology)
            if mesh := _given(algorithm, topology):
                yield _laid(name, algorithm, (n,) * 3, topology, mesh, OWN if algorithm.apart else CUBES)


def count() -> int:
    """How many cases the evaluation has."""
    ways = [1 + (_given(*one) is not None) for one in itertools.product(ALGORITHMS, TABLES.values())]
    return sum(2 * len(scaling.cores) for scaling in SCALINGS) + sum(ways) * len(SIZES)


def seconds(made: Plan, apart: bool) -> Seconds:
    """Modelled seconds of a plan, as it overlaps or with everything one after the other."""
    found = made.seconds_by_resource
    return found._replace(total=sum(found[:-1])) if apart else found


def _scaling_cases(scaling: Scaling) -> Iterator[Case]:
    for algorithm in (PAPER_KDFT, KDFT) if scaling.family == "KDFT" else (PAPER_FFT, FFT):
        for cores in scaling.cores:
            topology = slice_of(cores)
            if algorithm.apart and scaling.block is not None:
                mesh = (*scaling.block, cores // math.prod(scaling.block))
                yield _laid(scaling.name, algorithm, scaling.shape, topology, mesh, OWN)
            else:
                yield _free(scaling.name, algorithm, scaling.shape, topology)


def _given(algorithm: Algorithm, topology: str) -> tuple[int, ...] | None:
    """The mesh of a table's second case: the paper's own for its algorithms, blocks for meshfft's."""
    return (SHAPES if algorithm.apart else BLOCKS).get(topology)


def _laid(
    figure: str, algorithm: Algorithm, shape: tuple[int, ...], topology: str, mesh: tuple[int, ...], meshes: str
) -> Case:
    """The case on a mesh that is given, an axis for each dimension."""
    laid = AbstractMesh(mesh, ("x", "y", "z"))
    made = plan(shape, mesh=laid, topology=topology, **algorithm.options)
    return Case(figure, algorithm, topology, made, meshes)


def _free(figure: str, algorithm: Algorithm, shape: tuple[int, ...], topology: str) -> Case:
    """The case on the mesh where its algorithm is fastest, of those where it fits if it fits any."""
    plans = ranked(shape, topology, **algorithm.options)
    if algorithm.apart:
        plans = sorted(plans, key=lambda one: (one.fits is False, seconds(one, True).total))
    return Case(figure, algorithm, topology, plans[0], BEST)
