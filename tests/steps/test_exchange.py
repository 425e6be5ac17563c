"""Exchanges do at once, chunk by chunk, what their moves do one by one; the cached FFT works on such chunks."""

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.collectives.all_to_all import cut, fits, join
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import collectives
from meshfft.kernels.stockham import in_place, together
from meshfft.layout.layout import Layout, even_cuts, from_spec
from meshfft.layout.padded_array import padded, stored_of
from meshfft.machine.chips import CPU
from meshfft.machine.machine import Machine
from meshfft.numerics.dtypes import Dot
from meshfft.operators.matrices import Roots
from meshfft.operators.transform import transform_of
from meshfft.plans import execute
from meshfft.plans.primitive import bind
from meshfft.steps import AxisMove, Exchange, LocalFFT, Problem, SixStep
from meshfft.steps.exchange import MOST_CHUNKS
from meshfft.steps.problem import Options
from meshfft.steps.shared_memory import sides
from meshfft.walks import walk as walks
from meshfft.walks.choice import find_walk
from meshfft.walks.search import offered
from meshfft.walks.walk import Walk


class Moves(NamedTuple):
    """Moves of mesh axes, each a source, a target and the mesh axes that move."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    spec: P
    moves: tuple[tuple[int, int, str], ...]
    chunks: tuple[tuple[int, int], ...] = ()


CASES = {
    "one": Moves((8, 16, 6), (4,), P("x"), ((0, 1, "x"),)),
    "one, uneven": Moves((13, 11, 7), (4,), P("x"), ((0, 1, "x"),)),
    "one, in chunks": Moves((8, 16, 6), (4,), P("x"), ((0, 1, "x"),), ((1, 2), (0, 2))),
    "one, chunks of another": Moves((8, 16, 6), (4,), P("x"), ((0, 1, "x"),), ((2, 3),)),
    "onto one": Moves((8, 8, 24), (2, 4), P("x", "y"), ((0, 2, "x"), (1, 2, "y"))),
    "onto one, in chunks": Moves((8, 8, 48), (2, 4), P("x", "y"), ((1, 2, "y"), (0, 2, "x")), ((0, 2), (2, 3))),
    "onto one, uneven": Moves((7, 13, 11), (2, 4), P("x", "y"), ((0, 2, "x"), (1, 2, "y"))),
    "from one": Moves((24, 6, 8), (2, 3), P(("x", "y")), ((0, 1, "y"), (0, 2, "x"))),
    "from one, uneven": Moves((17, 5, 7), (2, 3), P(("x", "y")), ((0, 1, "y"), (0, 2, "x"))),
    "three": Moves((8, 8, 8), (2, 2, 2), P("x", "y", "z"), ((2, 0, "z"), (1, 0, "y"))),
    "all from one": Moves((16, 4, 8), (2, 2, 2), P(("x", "y", "z")), ((0, 1, "z"), (0, 2, "y"), (0, 1, "x"))),
    "all from one, uneven": Moves((19, 5, 3), (2, 2, 2), P(("x", "y", "z")), ((0, 1, "z"), (0, 2, "y"), (0, 1, "x"))),
    "beside an axis of one": Moves((5, 4), (2, 1, 3), P(("y", "z")), ((0, 1, "z"),)),
}


def _walks(case: Moves, packed: bool = False) -> tuple[Walk, Walk]:
    """The moves one by one, and as one exchange, optionally packed."""
    sizes = dict(zip("xyz", case.sizes, strict=False))
    start = at = from_spec(case.shape, sizes, case.spec)
    moves = []
    for source, target, axis in case.moves:
        moves.append(AxisMove(source, target, even_cuts(at.block[target], [(axis, sizes[axis])])))
        at = moves[-1].after(at)
    return Walk(start, tuple(Exchange((move,), packed=True) for move in moves)), Walk(
        start, (Exchange(tuple(moves), packed=True) if packed else Exchange(tuple(moves), case.chunks),)
    )


def _logical(stored: Any, layout: Layout) -> np.ndarray:
    return mf.gather(padded(stored, layout, None))


@pytest.mark.quick(3, 10)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_an_exchange_is_its_moves(name: str, packed: bool) -> None:
    """Catches chunks sent to the wrong device or joined out of order, padding kept, and chunks mixed up."""
    case = CASES[name]
    plain, joint = _walks(case, packed)
    x, where = stored_of(mf.shard(noise(case.shape), mesh(case.sizes), plain.start.spec)), mesh(case.sizes)
    (expected,), (found,) = bind([x], plain, where), bind([x], joint, where)
    assert joint.end == plain.end and found.sharding.is_equivalent_to(expected.sharding, found.ndim)
    np.testing.assert_array_equal(_logical(found, joint.end), _logical(expected, plain.end))
    (back,) = bind([found], joint.transpose(), where)
    assert joint.transpose().end == joint.start
    np.testing.assert_array_equal(_logical(back, joint.start), noise(case.shape))


@given(st.tuples(*[st.integers(1, 9)] * 2), st.permutations(["x", "y", "z"]), st.integers(1, 2))
def test_axes_of_one_device_leave_no_padding(shape: tuple[int, int], axes: list[str], many: int) -> None:
    """Catches a layout that its spec does not describe, because an axis of one device keeps a block of several."""
    sizes = {"x": 1, "y": 3, "z": 1}
    start = from_spec(shape, sizes, P(tuple(axes)))
    move = AxisMove(0, 1, even_cuts(shape[1], [(axis, sizes[axis]) for axis in axes[-many:]]))
    there = move.after(start)
    assert move.transpose(start).after(there) == start
    if "y" in axes[-many:]:
        assert there == from_spec(shape, sizes, P(tuple(axes[:-many]), tuple(axes[-many:])))


@pytest.mark.quick(1, 2, 5, 7, 10, 18, 19)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_collectives_of_an_exchange(name: str, packed: bool) -> None:
    """Catches a second all_to_all, or a gather; and a step that promises other collectives than it has."""
    case = CASES[name]
    _, joint = _walks(case, packed)
    where = mesh(case.sizes)
    x = stored_of(mf.shard(noise(case.shape), where, joint.start.spec))
    program = jax.jit(lambda x: bind([x], joint, where)).lower(x).compile()
    assert (
        collectives(program)
        == joint.collectives
        == {"all-to-all": 1 if packed else math.prod(n for _, n in case.chunks)}
    )


def test_exchange_moves_with_an_inserted_dimension() -> None:
    """Catches moves or chunks that keep their old indices when a batch dimension is inserted in front."""
    _, joint = _walks(CASES["one, in chunks"])
    where, x = mesh((4,)), noise((3, 8, 16, 6))
    (found,) = bind([jax.device_put(x, NamedSharding(where, P(None, "x")))], joint.insert(0, 3, ()), where)
    np.testing.assert_array_equal(mf.gather(found), x)


GRIDS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=4).map(tuple)


@given(GRIDS, st.integers(1, 2), st.integers(1, 3))
def test_chunks_joined_are_the_block(grid: tuple[tuple[int, int], ...], a: int, b: int) -> None:
    """Catches chunks of wrong sizes, or joined in another order than they were cut in."""
    shape = [a, b, 2]
    for dim, parts in grid:
        shape[dim] *= parts
    x = jnp.asarray(noise(shape))
    assert fits(shape, grid)
    np.testing.assert_array_equal(join(cut(x, grid), grid), x)


@given(
    st.sets(st.integers(0, 2), min_size=1),
    st.sampled_from([(), ((0, 2),), ((1, 2), (0, 2)), ((2, 3), (1, 2)), ((1, 2), (1, 2)), ((0, 5),)]),
    st.sampled_from([-1, 1]),
    st.sampled_from([(4, 8, 18), (20, 12, 24), (7, 5, 17), (1, 6, 16)]),
    st.booleans(),
    st.sampled_from([0, 2**20]),
)
@example({1, 2}, ((1, 2), (0, 2)), -1, (4, 8, 18), True, 0)
def test_cached_engine_in_chunks(
    dims: set[int], grid: tuple[tuple[int, int], ...], sign: int, shape: tuple[int, ...], whole: bool, small: int
) -> None:
    """Catches lines joined wrongly from their chunks, columns lost between batches, and digits left in reverse."""
    x = noise(shape)
    run = jax.jit(functools.partial(in_place, dims=tuple(dims), sign=sign, grid=grid, plain=whole))
    with mock.patch("meshfft.kernels.stockham.SMALL_BYTES", small):
        assert error(run(x), dft(x, tuple(dims), sign=sign)) <= 3e-7


@pytest.mark.more
def test_groups_larger_than_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a remainder that is left out, or done twice, if a loop does not divide evenly."""
    monkeypatch.setattr("meshfft.kernels.stockham.SMALL_BYTES", 0)
    monkeypatch.setattr("meshfft.kernels.stockham.COLUMN_BYTES", 2**11)
    monkeypatch.setattr("meshfft.kernels.stockham.ROW_BYTES", 2**11)
    monkeypatch.setattr("meshfft.kernels.stockham.PLANE_BYTES", 2**11)
    x = noise((6, 7, 45))
    for dims in [(0,), (1,), (2,), (0, 1, 2)]:
        assert len(together(x.shape, 8, dims)) == len(dims)
        assert error(in_place(jnp.asarray(x), dims, -1), dft(x, dims)) <= 3e-7


@pytest.mark.parametrize("parts", [2, 4])
def test_columns_are_gathered_before_their_first_stage(parts: int) -> None:
    """Catches a first stage that gathers its input: it is not compiled to vectors, and takes twice as long."""
    work = jax.jit(lambda x: in_place(x, (0,), -1, ((0, parts),)))
    text = str(work.lower(jax.ShapeDtypeStruct((256, 8, 64), np.complex64)).compile().as_text())
    stages = [part for part in text.split("\n\n") if " subtract(" in part and " c64[" in part]
    assert stages and not any(" dynamic-slice(" in stage for stage in stages)


def test_half_a_spectrum_compiles_to_little() -> None:
    """Catches eight writes in a loop for a block that fits in a cache, and divisions that mind signs."""
    work = jax.jit(lambda x: in_place(x, (1,), -1, ((1, 8),)))
    text = work.lower(jax.ShapeDtypeStruct((3, 64, 8, 33), np.complex64)).as_text()
    assert text.count("stablehlo.dynamic_update_slice") <= 2 and "stablehlo.sign" not in text, text


@contextlib.contextmanager
def _as_if_large() -> Iterator[None]:
    """Plans for small blocks as for large ones."""
    least = mock.patch("meshfft.steps.problem.LARGE_BYTES", 1), mock.patch("meshfft.kernels.stockham.SMALL_BYTES", 0)
    with least[0], least[1], mock.patch.multiple(walks, MATCHED_BYTES=1, HALVED_BYTES=1):
        find_walk.cache_clear()
        yield
    find_walk.cache_clear()


@given(cases(), st.sampled_from(["auto", "transpose"]), st.sampled_from(["natural", "any"]), st.integers(0, 2**31))
def test_drawn_walks_as_of_large_blocks(case: Case, method: str, order: str, seed: int) -> None:
    """Catches any wrong value, sharding, padding or inverse of walks in chunks: drawn blocks are small otherwise."""
    where = mesh(case.mesh)
    with _as_if_large():
        try:
            plan = mf.plan(case.shape, mesh=where, spec=case.spec, axes=case.axes, method=method, order=order)
        except ValueError as refused:
            assert method == "transpose" and "use method='auto'" in str(refused)
            return
    x = noise(case.shape, seed=seed)
    y = plan(mf.shard(x, where, case.spec))
    assert error(mf.gather(y), dft(x, case.axes)) <= 4e-7
    assert np.count_nonzero(stored_of(y)) == np.count_nonzero(mf.gather(y)), "padding is not zero"
    assert y.sharding.is_equivalent_to(jax.sharding.NamedSharding(where, plan.out_layout.spec), y.ndim)
    assert error(mf.gather(plan.inverse(y)), x) <= 8e-7


@pytest.mark.quick(3)
@pytest.mark.parametrize("order", ["natural", "any"])
@pytest.mark.parametrize("spec", [P("x", "y", "z"), P(("x", "y"), "z"), P("x", ("z", "y")), P(("z", "x", "y"))])
def test_walks_in_chunks(order: str, spec: P) -> None:
    """Catches chunks that neighbouring steps cut differently: large blocks have them, so small ones must for once."""
    shape, where = (16, 32, 16), mesh((2, 2, 2))
    with _as_if_large():
        plan = mf.plan(shape, mesh=where, spec=spec, order=order, method="transpose")
    assert any(isinstance(step, Exchange) and step.chunks for step in plan.walk.steps)
    x = noise(shape)
    y = plan(mf.shard(x, where, spec))
    assert error(mf.gather(y), dft(x, (0, 1, 2))) <= 3e-7
    assert error(mf.gather(plan.inverse(y)), x) <= 5e-7


@pytest.mark.quick(0)
@pytest.mark.parametrize(
    ("sizes", "spec", "order"),
    [
        ((8,), P("x"), "any"),
        ((2, 4), P("x", "y"), "any"),
    ],
)
def test_chunks_pass_from_step_to_step(sizes: tuple[int, ...], spec: P, order: str) -> None:
    """Catches chunks that are joined and cut again between steps: the compiler drops that only if grids agree. And an
    array that is sliced before its chunks are transformed, which read it in place.
    """
    where = mesh(sizes)
    plan = mf.plan((256,) * 3, mesh=where, spec=spec, order=order, method="transpose")
    assert {type(step) for step in plan.walk.steps} == {LocalFFT, Exchange}
    x = jax.ShapeDtypeStruct(plan.in_layout.storage, np.complex64, sharding=NamedSharding(where, spec))
    entry = str(jax.jit(plan).lower(x).compile().as_text()).split("ENTRY")[1]
    copied = re.findall(r"^ +%(\w*(?:slice|concatenate|copy)[\w.]*) = c64", entry, re.MULTILINE)
    packed = 0 if isinstance(plan.walk.steps[0], LocalFFT) else 16
    assert len(copied) == packed, "the pack of sixteen chunks; the result's join is the program's ROOT"


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("shape", "sizes", "spec", "order"),
    [
        ((256, 256, 256), (8,), P("x"), "any"),
        ((256, 256, 256), (2, 4), P("x", "y"), "any"),
        ((256, 256, 256), (2, 2, 2), P("x", "y", "z"), "any"),
        ((2048, 4096), (4,), P(None, "x"), "any"),  # four along the last dimension, of two each
    ],
)
def test_memory_comes_in_chunks_that_the_host_keeps(
    shape: tuple[int, ...], sizes: tuple[int, ...], spec: P, order: str
) -> None:
    """Catches temporaries requested in one array, whose pages the kernel clears at each call; and an array larger than
    a chunk, which makes the compiler warn the user.
    """
    plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, order=order, method="transpose")
    chip = dataclasses.replace(CPU, chunk=2**24)
    plan = dataclasses.replace(plan, machine=dataclasses.replace(plan.machine, chip=chip))
    options = dict(plan.walk.compiler_options(8, chip))  # as a call outside of jit has them, of one complex array
    (largest,) = options.values()
    with mock.patch.object(mf.Plan, "compiler_options", options):
        memory = compile_plan(plan, mesh(sizes)).memory_analysis()
    assert memory
    held = chunks(memory.serialized_buffer_assignment_proto)
    assert max(held) <= int(largest) < sum(held)


@pytest.mark.parametrize("method", ["transpose", "kdft", "cooley-tukey"])
def test_memory_of_blocks_comes_as_it_will(method: str) -> None:
    """Catches the option where arrays are larger than a chunk: the compiler warns of each."""
    plan = mf.plan((8192, 8192), mesh=mesh((8,)), spec=P("x"), method=method)
    chip = dataclasses.replace(CPU, chunk=2**20)
    assert plan.walk.compiler_options(8, chip) == ()


def test_calls_ask_for_memory_in_chunks() -> None:
    """Catches the options of a plan that calls outside of jit are not compiled with."""
    where = mesh((8,))
    x = jax.device_put(noise((128, 128, 64)), NamedSharding(where, P("x")))
    execute._program.cache_clear()
    with mock.patch.object(jax, "jit", wraps=jax.jit) as compiled:
        mf.fftn(x)
        compiled_with = compiled.call_args.kwargs["compiler_options"]
        jax.make_jaxpr(functools.partial(mf.fftn, spec=P("x")))(x)
        traced_with = compiled.call_args.kwargs["compiler_options"]
    plan = mf.plan(x.shape, mesh=where, spec=P("x"))
    assert compiled_with == dict(plan.walk.compiler_options(8, plan.machine.chip)) and compiled_with
    assert traced_with is None


@pytest.mark.quick(1)
@pytest.mark.parametrize("planes", [False, True], ids=["complex", "planes"])
def test_plans_compiled_ahead_ask_for_the_memory_that_calls_ask_for(planes: bool) -> None:
    """Catches a program that is timed or profiled with other options than calls have: 512^3 took a fifth longer."""
    where = mesh((8,))
    plan = mf.plan((512, 512, 512), mesh=where, spec=P("x"), order="any")
    with mock.patch.object(jax.stages.Lowered, "compile", autospec=True, return_value=None) as compiled:
        compile_plan(plan, where, planes=planes)
    assert compiled.call_args.args[1] == dict(plan.walk.compiler_options(8, plan.machine.chip, plain=not planes))


def chunks(assignment: bytes) -> list[int]:
    """Bytes of each array that a program asks for besides its arguments and results.

    The message is XLA's BufferAssignmentProto (xla/service/hlo.proto): of its allocations (3) the size (2), and whether
    each is an argument (5), a result (7) or a constant (12).
    """
    found = (dict(fields(data)) for number, data in fields(assignment) if number == 3 and isinstance(data, bytes))
    sizes = (one.get(2, 0) for one in found if not any(one.get(kind) for kind in (5, 7, 12)))
    return [size for size in sizes if isinstance(size, int)]


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: integers, and bytes of nested messages."""
    at = 0

    def number() -> int:
        nonlocal at
        start = at
        while message[at] & 128:
            at += 1
        at += 1
        return sum((byte & 127) << 7 * j for j, byte in enumerate(message[start:at]))

    while at < len(message):
        key = number()
        assert key & 7 in (0, 2), f"wire type {key & 7}"
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            size = number()
            at += size
            yield key >> 3, message[at - size : at]


@pytest.mark.quick(7)
@pytest.mark.parametrize("shape", [(254, 256, 256), (256, 250, 256), (251, 257, 255), (384, 320, 256)])
@pytest.mark.parametrize(("sizes", "spec"), [((2, 4), P("x", "y")), ((2, 2, 2), P("x", "y", "z"))])
def test_chunks_of_one_size_are_few(shape: tuple[int, ...], sizes: tuple[int, ...], spec: P) -> None:
    """Catches a program of hundreds of messages where exchanges have no large chunk in common."""
    plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, order="any", method="transpose")
    exchanges = [step for step in plan.walk.steps if isinstance(step, Exchange)]
    counts = [step.parts * math.prod(parts for _, parts in step.chunks) for step in exchanges]
    assert counts and max(counts) <= walks.MATCHED_CHUNKS


LINES = {
    "a line": ((576,), (8,), P("x"), 0),
    "over two axes": ((256,), (2, 4), P(("y", "x")), 0),
    "rows beside": ((2, 90), (3,), P(None, "x"), 1),
    "columns behind": ((144, 5), (2, 3), P("x"), 0),
    "in the middle": ((4, 64, 3), (2, 2), P("y", "x"), 1),
}


def _six_step(name: str) -> tuple[Layout, tuple[int, ...], SixStep]:
    shape, sizes, spec, dim = LINES[name]
    start = from_spec(shape, dict(zip("xyz", sizes, strict=False)), spec)
    return start, sizes, SixStep((dim,), Roots(shape[dim], -1, shape[dim], shape[dim]), (shape[dim],))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("sign", [-1, 1])
def test_six_steps(name: str, sign: int) -> None:
    """Catches a phase of the wrong sign or place, sides that do not fit, and outputs out of order; and other sends."""
    start, sizes, step = _six_step(name)
    walk = Walk(start, (step if sign < 0 else step.conjugate(),))
    x, where = noise(start.shape), mesh(sizes)
    program = jax.jit(lambda x: bind([x], walk, where)).lower(mf.shard(x, where, start.spec)).compile()
    (y,) = program(mf.shard(x, where, start.spec))
    assert error(y, dft(x, (step.dim,), sign=sign)) <= walk.error(8)
    assert collectives(program) == walk.collectives == {"all-to-all": 3}
    (ct,) = jax.vjp(lambda x: bind([x], walk, where)[0], mf.shard(x, where, start.spec))[1](y)
    assert error(ct, dft(np.asarray(y), (step.dim,), sign=sign)) <= 3e-7


@pytest.mark.parametrize(("length", "parts", "widest"), [(2**24, 8, 1), (576, 8, 1), (18, 3, 2), (7 * 81, 9, 7)])
def test_sides_of_six_steps(length: int, parts: int, widest: float) -> None:
    """Catches sides that the shards do not divide, and lopsided ones; a prime no radix takes is left to rows."""
    rows = sides(length, parts)
    assert rows is not None and rows % parts == 0 and (length // rows) % parts == 0
    assert max(rows * rows, length) / min(rows * rows, length) <= widest * 2
    assert sides(length + 1, parts) is None and sides(parts**2 * 11, parts) == parts


@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y"))])
def test_no_exchange_of_many_chunks(spec: P) -> None:
    """Catches moves joined until a program has hundreds of arrays: only as many chunks as MOST_CHUNKS are exchanged."""
    shape = (256,) * 3
    start = from_spec(shape, {"x": 4, "y": 8}, spec)
    transform = transform_of((0, 1, 2), shape, None, False)
    problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options("transpose"), start)
    steps = [step for step in offered(problem, start, problem.todo(frozenset())) if isinstance(step, Exchange)]
    found = [step.parts for step in steps if not step.packed]
    assert found and max(found) <= MOST_CHUNKS


def test_auto_takes_six_steps_for_a_line() -> None:
    """Catches a single line that still uses a ring on CPUs; and one over a mesh without six steps."""
    where = mesh((8,))
    assert mf.plan((2**20,), mesh=where, spec=P("x")).collectives == {"all-to-all": 3}
    assert "collective-permute" in mf.plan((2**20,), mesh=where, spec=P("x"), method="cooley-tukey").collectives
