"""Memory: plans promise at least the compiler's peak, and not much more."""

import random
import re
from typing import Any

import jax
import numpy as np
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
    ("dst-1", (1500, 1024), (2,), P("x"), {"axes": (1,)}),  # in place: type I has twice the points
    ("dct-3", (1500, 1024), (2,), P("x"), {"axes": (1,), "dtype": "complex64"}),  # and one part after the other
]


@pytest.mark.quick(5, 6)
@pytest.mark.parametrize(("kind", "shape", "sizes", "spec", "way"), TRIG_PEAKS)
def test_peak_memory_of_cosines_is_never_exceeded(
    kind: str, shape: tuple[int, ...], sizes: tuple[int, ...], spec: P, way: dict[str, Any]
) -> None:
    """Catches sums that XLA copies, or makes for all rings at once, tiles and matrices that the promise leaves out."""
    check_peak(mf.plan(shape, mesh=mesh(sizes), spec=spec, kind=kind, **way))


WAYS = [
    ((256, 64), (1,), {"method": "kdft", "axes": (0,), "precision": "bf16x6"}),  # sums of all terms of a tile
    ((384, 64), (4,), {"method": "cooley-tukey", "axes": (0,)}),  # an unrolled ring
    ((9, 8), (1, 2, 2), {"order": "any", "spec": P(("x", "z"), "y")}),  # one device along x, which still cuts
    ((32, 38, 64), (2, 2, 2), {"spec": P("x", "y", "z"), "precision": "bf16x6"}),  # exchanges after the first FFT
    ((88, 137), (5,), {"method": "transpose", "inverse": True}),  # a last exchange, which holds a block more
    ((524288,), (5,), {"method": "cooley-tukey"}),  # a chirp whose spectrum is made on the devices
    ((97, 64), (2,), {"method": "cooley-tukey", "axes": (0,)}),  # through a chirp
    ((37, 64, 50), (2, 4), {"method": "transpose", "spec": P(None, "x", "y"), "order": "any"}),  # shares of two sizes
    ((192, 192, 190), (8,), {"spec": P(None, None, "x"), "kind": "rfft", "axes": (2,)}),  # padding cleared in a copy
    ((37, 64, 26), (8,), {"kind": "rfft", "inverse": True, "method": "transpose"}),  # halves of the bins between
]


@pytest.mark.quick(0, 4)
@pytest.mark.parametrize(("shape", "sizes", "way"), WAYS)
def test_peak_memory_is_never_exceeded(shape: tuple[int, ...], sizes: tuple[int, ...], way: dict[str, Any]) -> None:
    """Catches products of bfloat16 terms that a plan does not count, and a promise of twice the compiler's bytes."""
    check_peak(mf.plan(shape, mesh=mesh(sizes), **way), most=2)


CLOSE = [
    ((48, 24, 32), (5,), {"method": "transpose", "order": "any"}),  # padded shares between FFTs
    ((35531,), (2,), {"method": "cooley-tukey"}),  # a longer line, in two stages
    ((107564,), (2,), {"method": "cooley-tukey"}),  # parts with a large prime factor: a chirp on each device
    ((131072,), (8,), {}),  # six steps
    ((21, 31, 41), (4,), {"method": "cooley-tukey", "spec": P(None, "x")}),  # a longer line, and lines behind it
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("shape", "sizes", "way"), CLOSE)
def test_peak_memory_is_close(shape: tuple[int, ...], sizes: tuple[int, ...], way: dict[str, Any]) -> None:
    """Catches copies in a promise that the compiler does not make, or the reverse."""
    check_peak(mf.plan(shape, mesh=mesh(sizes), **way), most=1.2)


def test_sums_of_many_shards_stay_in_place() -> None:
    """Catches a sum and its loss in two arrays: XLA copied both for every tile."""
    plan = mf.plan((88, 16, 130), mesh=mesh((5,)), spec=P(None, None, "x"), kind="dst-3", method="kdft", axes=(2,))
    assert isinstance(plan.mesh, jax.sharding.Mesh) and plan.name.startswith("ring Z (dense"), plan.name
    text = compile_plan(plan, plan.mesh).as_text()
    assert text and len(re.findall(r"\[1408,26,1\]\S* copy\(", text)) <= 6, text


def test_an_axis_of_one_device_pads_no_block() -> None:
    """Catches a program whose block lacks the padding that its layout has: it does not compile."""
    x = np.random.default_rng(0).standard_normal((9, 8)).astype("complex64")
    on, spec = mesh((1, 2, 2)), P(("x", "z"), "y")
    found = mf.gather(mf.plan(x.shape, mesh=on, spec=spec, order="any")(mf.shard(x, on, spec)))
    np.testing.assert_allclose(found, np.fft.fftn(x), atol=1e-4)


@pytest.mark.slow
def test_peak_memory_of_drawn_cosines_is_never_exceeded() -> None:
    """Catches a kind, a mesh or a size whose program takes more than is promised."""
    draw = random.Random(5)
    for _ in range(20):
        ndim, sizes = draw.choice([1, 2, 3]), draw.choice([(2,), (8,), (1, 2, 2), (2, 4), (3, 2)])
        shape = tuple(max(2, int(2 ** (16 / ndim) * draw.uniform(0.4, 1.6))) for _ in range(ndim))
        cuts: list[list[str]] = [[] for _ in shape]
        for axis in "xyz"[: len(sizes)]:
            cuts[draw.randrange(ndim)].append(axis)
        kind = f"{draw.choice(['dct', 'dst'])}-{draw.choice([1, 2, 3, 4])}"
        way: dict[str, Any] = {"inverse": draw.random() < 0.3, "dtype": draw.choice(["float32", "complex64"])}
        check_peak(mf.plan(shape, mesh=mesh(sizes), spec=P(*map(tuple, cuts)), kind=kind, **way))


def check_peak(plan: mf.Plan, most: float = 5) -> None:
    """The compiler's argument, result and temporaries exceed the promised bytes by 2 % and 1 kB at most."""
    assert isinstance(plan.mesh, jax.sharding.Mesh)
    memory = compile_plan(plan, plan.mesh).memory_analysis()
    assert memory is not None
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert used <= 1.02 * plan.peak_bytes + 1024 and plan.peak_bytes <= most * used, (plan, used, plan.peak_bytes)
