"""Memory: plans of cosine and sine transforms promise at least the compiler's peak."""

import random
from typing import Any

import jax
import pytest
from jax.sharding import PartitionSpec as P
from reference import mesh

import meshfft as mf
from meshfft.inspect.aot import compile_plan

TRIG_PEAKS = [
    ("dct-2", (40, 55, 58), (1, 2, 2), P("y", None, ("x", "z")), {}),  # sizes that tiles do not divide
    ("dct-4", (33, 24, 20), (2, 2), P(None, None, "y"), {"s": (31, 21, 17), "inverse": True}),  # cropped and scaled
    ("dct-2", (79, 76, 46), (2,), P(None, None, "x"), {"s": (51, 47, 41), "dtype": "complex64"}),  # a result per ring
    ("dst-4", (48, 60, 30), (3, 2), P(None, None, ("y", "x")), {"method": "kdft"}),  # a ring without a loop
    ("dst-1", (9000,), (4,), P("x"), {}),  # matrices that are larger than all the rest
]


@pytest.mark.parametrize(("kind", "shape", "sizes", "spec", "way"), TRIG_PEAKS)
def test_peak_memory_of_cosines_is_never_exceeded(
    kind: str, shape: tuple[int, ...], sizes: tuple[int, ...], spec: P, way: dict[str, Any]
) -> None:
    """Catches sums that XLA copies, or makes for all rings at once, tiles and matrices that the promise leaves out."""
    check_peak(mf.plan(shape, mesh=mesh(sizes), spec=spec, kind=kind, **way))


@pytest.mark.slow
def test_peak_memory_of_drawn_cosines_is_never_exceeded() -> None:
    """Catches a kind, a mesh or a size whose program takes more than is promised."""
    draw = random.Random(5)
    for _ in range(40):
        ndim, sizes = draw.choice([1, 2, 3]), draw.choice([(2,), (8,), (1, 2, 2), (2, 4), (3, 2)])
        shape = tuple(max(2, int(2 ** (16 / ndim) * draw.uniform(0.4, 1.6))) for _ in range(ndim))
        cuts: list[list[str]] = [[] for _ in shape]
        for axis in "xyz"[: len(sizes)]:
            cuts[draw.randrange(ndim)].append(axis)
        kind = f"{draw.choice(['dct', 'dst'])}-{draw.choice([1, 2, 3, 4])}"
        way: dict[str, Any] = {"inverse": draw.random() < 0.3, "dtype": draw.choice(["float32", "complex64"])}
        check_peak(mf.plan(shape, mesh=mesh(sizes), spec=P(*map(tuple, cuts)), kind=kind, **way))


def check_peak(plan: mf.Plan) -> None:
    """The compiler's argument, result and temporaries are at most the promised bytes, and a fair part of them."""
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    memory = compile_plan(plan, plan.mesh).memory_analysis()
    assert memory is not None
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert used <= plan.peak_bytes <= 5 * used, (plan, used, plan.peak_bytes)
