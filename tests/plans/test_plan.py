"""Plans: they print what happens, and the search finds the cheapest walk."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import cheapest, dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.layout.layout import Layout, from_spec
from meshfft.machine.chip import Chip
from meshfft.machine.chips import CHIPS, CPU
from meshfft.machine.machine import Machine, Work
from meshfft.numerics.dtypes import Dot
from meshfft.operators.transform import transform_of
from meshfft.plans.planning import rank
from meshfft.steps import Bands, Exchange, LocalFFT, Margin, Problem, Step
from meshfft.steps.problem import Options
from meshfft.walks.choice import natural_end
from meshfft.walks.search import offered, search
from meshfft.walks.walk import Walk


def test_a_plan_teaches() -> None:
    """Catches a table that is too wide, or silent on layouts, bytes, hops, flops or memory."""
    text = str(mf.plan((97, 113, 89), mesh=mesh((2, 2, 2)), spec=P("x", "y", "z"), method="kdft"))
    assert max(map(len, text.splitlines())) <= 80
    for word in ("97 x 113 x 89", "complex64", "x=2, y=2, z=2", "kdft", "A[X'_x, Y'_y, Z'_z]", "hops", "sent", "peak"):
        assert word in text
    long = str(mf.plan((4,) * 5, mesh=AbstractMesh((2, 2, 2, 2), ("rows", "columns", "planes", "time"))))
    assert max(map(len, long.splitlines())) <= 80
    in_place = str(mf.plan((256,) * 3, mesh=mesh((2, 2, 2)), spec=P("x", "y", "z")))
    assert max(map(len, in_place.splitlines())) <= 80 and "X'_x Y'_y Z'_z" in in_place


def test_plans_need_no_device_and_no_memory() -> None:
    """Catches a plan that allocates: 8192^3 on 2048 devices that this machine does not have."""
    plan = mf.plan((8192,) * 3, mesh=AbstractMesh((8, 16, 16), ("x", "y", "z")))
    assert plan.in_layout.block == (1024, 512, 512) and "modelled" not in str(plan)
    assert json.loads(json.dumps(plan.to_dict()))["mesh"] == {"x": 8, "y": 16, "z": 16}


def test_plans_are_values() -> None:
    """Catches a plan that cannot be a jit argument, a dictionary key, or compared."""
    first, second = (mf.plan((8, 8), mesh=mesh((2,)), spec=P("x")) for _ in range(2))
    assert first == second and len({first, second}) == 1
    assert first != dataclasses.replace(first, options=Options(order="any"))


def test_stages_do_the_same_one_by_one() -> None:
    """Catches a stage that loses the layout or the factor."""
    plan = mf.plan((6, 10, 7), mesh=mesh((2, 2, 2)), spec=P("x", "y", "z"), norm="ortho", inverse=True)
    x = noise((6, 10, 7))
    y = mf.shard(x, mesh((2, 2, 2)), P("x", "y", "z"))
    for stage in plan.stages:
        assert stage.name
        y = stage(y)
    np.testing.assert_allclose(y, plan(x), rtol=1e-6, atol=1e-6)


def test_cropped_and_padded_lengths() -> None:
    """Catches a plan that ignores s, at sizes that nothing divides, and wrong printed shapes."""
    x = noise((7, 9))
    plan = mf.plan((7, 9), mesh=mesh((2, 2)), spec=P("x", "y"), s=(11, 5))
    assert plan.out_shape == (11, 5) and plan.out_layout.storage == (12, 6)
    assert error(mf.gather(plan(x)), np.fft.fftn(x.astype(complex), s=(11, 5), axes=(0, 1))) <= 4e-7
    padded = mf.plan((7, 9), mesh=mesh((2, 2)), spec=P("x", "y"), s=(11, 16))
    assert error(mf.gather(padded.inverse(padded(x))), x) <= 4e-7


@pytest.mark.quick(0)
@pytest.mark.parametrize("method", ["auto", "transpose", "cooley-tukey", "kdft"])
def test_inverse_and_adjoint_walk_back(method: str) -> None:
    """Catches an inverse of other steps than the forward ones, reversed."""
    plan = mf.plan((16, 16, 16), mesh=mesh((2, 2, 2)), spec=P("x", "y", "z"), method=method)
    back = plan.walk.adjoint()
    assert back.start == plan.out_layout and back.end == plan.in_layout
    assert [type(s) for s in back.steps] == [type(s) for s in reversed(plan.walk.steps)]
    x = noise((16, 16, 16))
    assert error(plan.adjoint(plan(x)), 16**3 * x) <= 6e-7


def test_wrong_arrays_are_refused_before_any_work() -> None:
    """Catches a plan that runs on another shape or sharding than it was made for."""
    plan = mf.plan((9, 8), mesh=mesh((2, 4)), spec=P("x", "y"))
    with pytest.raises(ValueError, match=r"shape \(9, 7\), the plan takes \(9, 8\)"):
        plan(noise((9, 7)))
    with pytest.raises(
        ValueError, match=r"takes \(9, 8\) padded to \(10, 8\), .* its sizes do not divide: use mf.shard"
    ):
        plan(jax.numpy.zeros((9, 8)))
    other = jax.device_put(np.zeros((10, 8), np.complex64), NamedSharding(mesh((2, 4)), P("x")))
    with pytest.raises(ValueError, match=r"cannot be told from data: use mf.shard"):
        plan(other)
    with pytest.raises(ValueError, match=r"sharded as .* the plan takes .* use mf.shard"):
        mf.plan((10, 8), mesh=mesh((2, 4)), spec=P("x", "y"))(other)
    with pytest.raises(ValueError, match=r"shape \(10, 16\), the plan takes \(10, 8\)"):
        mf.plan((10, 8), mesh=mesh((2, 4)), spec=P("x", "y"))(mf.shard(noise((10, 16)), mesh((2, 4)), P("x", "y")))
    with pytest.raises(ValueError, match="2 axes, the array 1 dimensions: say with spec="):
        mf.plan((8,), mesh=mesh((2, 4)))
    with pytest.raises(ValueError, match="precision 1e-10 needs 64-bit types"):
        mf.plan((8,), precision=1e-10)
    with pytest.raises(ValueError, match="float64 needs 64-bit types"):
        mf.plan((8,), dtype="float64")
    for machine in (None, "v3:2x2"):
        with pytest.raises(ValueError, match="negative size"):
            mf.plan((-1, 8), topology=machine)


PEAKS = [
    ((64, 64, 64), (2, 2, 2), P("x", "y", "z"), {"method": "transpose"}),
    ((64, 64, 64), (2, 2, 2), P("x", "y", "z"), {"method": "cooley-tukey"}),
    ((64, 64, 64), (2, 2, 2), P("x", "y", "z"), {"method": "kdft"}),
    ((400, 240), (4,), P(None, "x"), {"method": "transpose", "out_spec": P("x")}),  # shares, and their original layout
    ((64, 300), (4,), P("x"), {"method": "cooley-tukey", "out_spec": P(None, "x")}),  # the sum is cut into shares
    ((65, 300), (4,), P("x"), {"method": "cooley-tukey", "out_spec": P(None, "x")}),
    ((100, 300), (5,), P("x"), {"method": "cooley-tukey"}),  # the longest ring whose hops are written out
    ((24, 96, 38), (2, 2), P(None, "x", "y"), {"method": "cooley-tukey"}),  # a padded gathering after a ring
    ((192, 512), (8,), P("x"), {"method": "cooley-tukey", "kind": "hfft"}),  # a step after a ring
    ((64, 48, 81), (2,), P(None, None, "x"), {"method": "kdft", "axes": (2,)}),  # cleared of padding
    ((64, 48, 60), (4, 2), P(None, None, ("x", "y")), {"method": "kdft", "out_spec": P("x", "y")}),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("shape", "sizes", "spec", "way"), PEAKS)
def test_peak_memory_is_the_compilers(
    shape: tuple[int, ...], sizes: tuple[int, ...], spec: P, way: dict[str, Any]
) -> None:
    """Catches a promise of memory that the compiled program breaks, by more than its small constants."""
    where = mesh(sizes)
    plan = mf.plan(shape, mesh=where, spec=spec, **way)
    memory = compile_plan(plan, where).memory_analysis()
    assert memory is not None
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert used <= 1.04 * plan.peak_bytes <= 2.7 * used, (plan.name, used, plan.peak_bytes)


def _price(start: Layout, steps: tuple[Step, ...]) -> float:
    layouts = list(itertools.accumulate(steps, lambda layout, step: step.after(layout), initial=start))
    return sum(Machine(CPU).price(step.work(layout, 8, CPU)) for step, layout in zip(steps, layouts, strict=False))


SHAPES = [(256, 256), (64, 48, 96), (17, 13, 96), (8, 8, 8, 8), (256, 128, 256)]  # the last in place, chunk by chunk
SIZES = [(8,), (2, 4), (2, 2, 2), (1, 4), (2, 1, 2)]


def _soon(shape: tuple[int, ...], sizes: tuple[int, ...], method: str, free: bool) -> bool:
    """Shapes and meshes of many walks are searched by the method that has them all, and few by the remaining
    methods."""
    return (method == "auto" and (free or len(shape) < 4)) or len(shape) == 2 or len(sizes) == 2


@pytest.mark.quick(6, 79, 109, 133)
@pytest.mark.parametrize(
    ("shape", "sizes", "method", "free"),
    slow_rows(_soon, SHAPES, SIZES, ("auto", "transpose", "kdft"), (False, True)),
)
def test_the_search_finds_the_cheapest_walk(
    shape: tuple[int, ...], sizes: tuple[int, ...], method: str, free: bool
) -> None:
    """Catches an invalid lower bound on the remaining cost, with which the search stops at a dearer walk. Four
    dimensions over three axes may have more edges than the search takes for the best walk.
    """
    axes = dict(zip("xyz", sizes, strict=False))
    spec = [("x", "z") if "z" in axes and len(shape) == 2 else "x", *(a for a in ("y", "z") if a in axes)][: len(shape)]
    start = from_spec(shape, axes, spec)
    transform = transform_of(tuple(range(len(shape))), shape, None, False)
    problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(method), None if free else start)
    (steps,) = search(problem)
    assert _price(start, steps) == pytest.approx(cheapest(problem), rel=0.01 if len(shape) + len(sizes) > 6 else 1e-9)


@pytest.mark.parametrize("spec", [(("w", "x"), "y"), ("x", ("w", "y")), (("x", "w"), "y")], ids=str)
@pytest.mark.parametrize("free", [False, True])
def test_an_axis_of_one_device_is_not_searched_for(spec: tuple[Any, ...], free: bool) -> None:
    """Catches a search over every place of a mesh axis that cuts nothing, and walks that are lost for its sake."""
    found = []
    for sizes, cut in (({"x": 2, "y": 4}, ("x", "y")), ({"x": 2, "y": 4, "w": 1}, spec)):
        start = from_spec((8, 16), sizes, cut)
        transform = transform_of((0, 1), start.shape, None, False)
        goal = None if free else start
        with mock.patch("meshfft.walks.search.offered", wraps=offered) as nodes:
            (steps,) = search(Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(), goal))
        found.append((_price(start, steps), nodes.call_count))
    (price, few), (same, many) = found
    assert same == pytest.approx(price, rel=1e-9) and many <= 1.5 * few


LONGER = [
    ("fft", (2**13,), (2**14,), P("x")),
    ("fft", (20_011, 2), (2**14, 3), P(("x", "y"))),
    ("rfft", (2**13,), (2**14,), P(("x", "y"))),
    ("fft", (64, 96, 64), (128, 96, 128), P("y", "x")),
    ("fft", (16, 16, 8), (16, 32, 16), P("y", "x", "z")),
]


@dataclasses.dataclass(frozen=True)
class _Passes(Margin):
    """A step that costs passes over the block."""

    passes: int = 0

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        return Work(memory_bytes=self.passes * math.prod(layout.block) * itemsize)


@dataclasses.dataclass(frozen=True)
class _Ending:
    """What follows a transform is dear unless dimension `dim` is cut."""

    dim: int

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        return (_Passes((), True, 1 if layout.parts[self.dim] > 1 else 10**6),)

    def least(self, layout: Layout) -> tuple[Step, ...]:
        return self(layout)


def test_the_search_prices_what_follows_in_every_layout() -> None:
    """Catches a bound on the steps after a transform that leaves out layouts: here the only cheap one, uneven and cut
    along a dimension that is not transformed."""
    start = from_spec((1, 64, 64), {"x": 2}, P(None, "x"))
    transform = transform_of((1, 2), (64, 64), None, False)
    problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options("transpose"), ending=_Ending(0))
    assert Walk(start, search(problem)[0]).end.parts == (2, 1, 1)


@pytest.mark.quick(1, 3)
@pytest.mark.parametrize(("kind", "shape", "s", "spec"), LONGER)
def test_the_search_finds_the_cheapest_walk_of_other_lengths(
    kind: str, shape: tuple[int, ...], s: tuple[int, ...], spec: P
) -> None:
    """Catches a lower bound that is invalid once a dimension is padded or cropped, and a step that is not offered
    then."""
    start, dims = from_spec(shape, {"x": 4, "y": 2, "z": 2}, spec), tuple(range(len(shape)))
    transform, real = transform_of(dims, s, None, False, kind), kind == "rfft"
    for goal in (None, natural_end(start, transform)):
        problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(), goal, real=real)
        (steps,) = search(problem)
        assert len(shape) == 3 or any(isinstance(step, Bands) for step in steps)
        price = sum(map(Machine(CPU).price, Walk(start, steps, real=real).works(8, CPU)))
        assert price == pytest.approx(cheapest(problem), rel=1e-9)


@pytest.mark.parametrize("chip", ["cpu", "h100"])
def test_the_search_finds_the_cheapest_walk_to_other_layouts(chip: str) -> None:
    """Catches a bound that counts an exchange too many if the goal leaves a dimension whole, after the first step."""
    start, machine = from_spec((64, 64, 256), {"x": 4, "y": 2}, ("x", "y", None)), Machine(CHIPS[chip])
    transform = transform_of((0, 1, 2), (64, 64, 240), None, False)
    for spec in ((("y", "x"), None, None), (None, ("x", "y"), None), ("y", None, "x")):
        goal = from_spec((64, 64, 240), {"x": 4, "y": 2}, spec)
        problem = Problem(start, transform, machine, 8, (Dot("float32", 4),), Options(), goal)
        (steps,) = search(problem)
        price = sum(map(machine.price, Walk(start, steps).works(8, machine.chip)))
        assert price == pytest.approx(cheapest(problem), rel=1e-9)


def test_auto_is_never_dearer_than_a_method() -> None:
    """Catches auto missing a walk that a restriction finds."""
    for shape, sizes in (((64, 64, 64), (2, 2, 2)), ((97, 12), (4, 2)), ((4096,), (8,))):
        plans = {m: mf.plan(shape, mesh=mesh(sizes), method=m) for m in ("auto", "kdft")}
        auto, kdft = plans["auto"].seconds, plans["kdft"].seconds
        assert auto is not None and kdft is not None and auto <= kdft * (1 + 1e-9)


def test_awkward_sizes_go_another_way() -> None:
    """Catches auto stopping at a size that its shards do not divide."""
    plan = mf.plan((12,), mesh=mesh((8,)))
    assert error(mf.gather(plan(noise((12,)))), dft(noise((12,)), (0,))) <= 4e-7


@pytest.mark.quick(4, 5, 6, 7, 11)
@pytest.mark.parametrize("n", [32, 48, 64, 80])
@pytest.mark.parametrize("sizes", [(8,), (2, 4), (2, 2, 2)])
def test_small_blocks_on_cpus_are_exchanged_whole(n: int, sizes: tuple[int, ...]) -> None:
    """Catches a short dense ring priced below two all-to-alls, which take a fifth less; chunks in a small program."""
    steps = mf.plan((n,) * 3, mesh=mesh(sizes), spec=P(*"xyz"[: len(sizes)])).walk.steps
    assert {type(step) for step in steps} == {Exchange, LocalFFT}
    assert all(step.packed for step in steps if isinstance(step, Exchange))
    assert not any(step.engine.chunked for step in steps if isinstance(step, LocalFFT))


@pytest.mark.parametrize("method", ["auto", "kdft", "cooley-tukey"])
def test_an_empty_dimension_is_lengthened_beside_others(method: str) -> None:
    """Catches a share of nothing, in prices or in products: NumPy pads such lines to zeros."""
    plan = mf.plan((32, 0), mesh=mesh((8,)), spec=P("x"), axes=(1, 0), s=(2, 32), method=method)
    y = mf.gather(plan(mf.shard(np.zeros((32, 0), np.complex64), mesh((8,)), P("x"))))
    assert y.shape == (32, 2) and not y.any()


def test_plans_that_do_not_fit_are_ranked_by_memory() -> None:
    """Catches a plan that needs more devices before one that needs fewer, as it would be faster; and a slow plan before
    a fast one for a peak that prints alike.
    """
    small, large, alike = (mock.Mock(fits=False, peak_bytes=n, seconds=1 / n) for n in (2000, 3000, 2001))
    slow, fast = (mock.Mock(fits=True, peak_bytes=4, seconds=n) for n in (2.0, 1.0))
    assert sorted((large, small, slow, alike, fast), key=rank) == [fast, slow, alike, small, large]


def test_plans_read_well_at_a_prompt() -> None:
    """Catches a repr of nested records."""
    assert len(repr(mf.plan((97, 113, 89), mesh=mesh((2, 2, 2))))) < 200


def test_a_described_mesh_is_for_planning_only() -> None:
    """Catches a crash inside the compiler where a plan without devices is run."""
    plan = mf.plan((8, 8), mesh=AbstractMesh((2,), ("x",)))
    with pytest.raises(ValueError, match=r"only described: plan with a jax.sharding.Mesh"):
        plan(noise((8, 8)))


def test_common_slips_of_the_pen_are_refused() -> None:
    """Catches a raw traceback, or worse an answer, for common typing errors."""
    plan, fftn, fft = cast(Any, mf.plan), cast(Any, mf.fftn), cast(Any, mf.fft)  # the types would refuse them too
    slips: dict[str, Callable[[], Any]] = {
        "give its spec": lambda: plan((8,), mesh=mesh((2,)), spec=NamedSharding(mesh((2,)), P("x"))),
        "give a PartitionSpec": lambda: plan((8,), mesh=mesh((2,)), spec="x"),
        "give a jax.sharding.Mesh": lambda: plan((8, 8), mesh=(2, 2)),
        r"shape is an array of shape \(4,\): give its shape, x.shape": lambda: plan(np.zeros(4)),
        r"shape is an array of shape \(4, 4\): give its shape": lambda: mf.scattered_plan(
            cast(Any, np.zeros((4, 4), int)), mf.Scattered.turns([[0.0]])
        ),
        "which are points: give the array first": lambda: mf.nufftn(
            cast(Any, mf.Scattered.turns([[0.0]])), cast(Any, np.ones(4))
        ),
        "shape is 16.0: give a sequence": lambda: plan(16.0),
        "axes is True: give a sequence": lambda: fftn(np.zeros((4, 4)), axes=True),
        r"axes is \[0.5\]": lambda: fftn(np.zeros((4, 4)), axes=[0.5]),
        "s is 16.0": lambda: fftn(np.zeros(4), s=16.0),
        "axis is None: give an integer": lambda: fft(np.zeros(4), axis=None),
    }
    for words, call in slips.items():
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(ValueError, match="no mesh is given: pass mesh="):
        mf.plan((8,), spec=P("x"))
    with pytest.raises(ValueError, match="s has 3 lengths, the array 2 dimensions"):
        mf.fftn(np.zeros((4, 4)), s=(4, 4, 4))
    with pytest.raises(ValueError, match=r"fewer than 2\^29"):
        mf.plan((2**29,), mesh=mesh((8,)), method="kdft")


def test_each_stage_has_its_own_inverse() -> None:
    """Catches a stage that divides by the points of the whole transform."""
    plan = mf.plan((8, 8, 8), mesh=mesh((2, 4)), spec=P("x", "y"), norm="ortho")
    y = mf.shard(noise((8, 8, 8)), mesh((2, 4)), P("x", "y"))
    for stage in plan.stages:
        assert error(stage.inverse(stage(y)), np.asarray(y)) <= 4e-7
        y = stage(y)


def test_a_plan_for_one_device_refuses_sharded_arrays() -> None:
    """Catches a silent gather by a plan that was made without a mesh."""
    plan = mf.plan((8, 8))
    with pytest.raises(ValueError, match="plan with mesh="):
        plan(mf.shard(noise((8, 8)), mesh((2,)), P("x")))


def test_search_time_is_bounded_and_any_order_is_never_dearer() -> None:
    """Catches a search that visits every layout of six axes, and pruning that costs more than it saves."""
    plan = mf.plan((16,) * 6, mesh=AbstractMesh((2,) * 6, tuple("abcdef")))
    assert plan.walk.end == plan.walk.start
    odd = {"shape": (8, 4096, 1000), "mesh": AbstractMesh((32, 32), ("x", "y")), "spec": (None, "x", "y")}
    for method in ("auto", "transpose"):
        natural, free = (
            mf.plan(**odd, s=(-1, 8, 8), axes=(0, 1, 2), method=method, order=order)  # type: ignore[arg-type]
            for order in ("natural", "any")
        )
        price = [sum(map(p.machine.price, p.walk.works(8, p.machine.chip))) for p in (natural, free)]
        assert price[1] <= price[0] * (1 + 1e-9)


def test_a_plan_never_rounds_wide_data_unasked(x64: None) -> None:
    """Catches float64 computed in single precision, as the plan's default type, without a word."""
    x, plan = np.ones((8, 8)), mf.plan((8, 8))
    for call in (plan, jax.jit(plan), jax.grad(lambda x: abs(plan(x)).sum()), plan.inverse, plan.solve):
        with pytest.raises(TypeError, match=r"float64, and the plan computes in complex64: make .* dtype='float64'"):
            call(x)
    assert mf.plan((8, 8), dtype=x.dtype)(x).dtype == np.complex128
    assert plan(x.astype(int)).dtype == np.complex64, "integers are what a plan was made for"
    for precision in ("float32", 1e-5):
        assert mf.plan((8, 8), precision=precision)(x).dtype == np.complex64
