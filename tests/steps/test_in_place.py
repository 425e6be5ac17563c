"""FFTs of cut dimensions in place, chunk by chunk: values, the way back, and that no program needs more than chunks."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but, slow_rows
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import Layout, from_spec
from meshfft.machine.chips import CPU
from meshfft.machine.machine import Machine
from meshfft.numerics.dtypes import Dot
from meshfft.operators.transform import Kind, transform_of
from meshfft.plans.primitive import bind
from meshfft.steps import InPlace, LocalFFT, Problem, shared_memory
from meshfft.steps import problem as problems
from meshfft.steps.problem import Options
from meshfft.walks.walk import Walk

pytestmark = pytest.mark.optimised

CHUNK = 2**15  # bytes: eight chunks in a block of the cases
CASES = {
    "slab": ((64, 64, 64), (8,), P("x")),
    "pencil": ((32, 64, 128), (2, 4), P("x", "y")),
    "block": ((64, 64, 64), (2, 2, 2), P("x", "y", "z")),
    "two axes": ((64, 128, 32), (2, 4), P(("y", "x"))),
    "odd factors": ((48, 80, 72), (4, 2), P("x", "y")),
    "plane": ((256, 1024), (8,), P("x")),
    "four dimensions": ((16, 8, 48, 48), (2, 2, 2), P("x", None, "y", "z")),
}
QUICK = ("pencil", "two axes", "plane")
LARGE = {"slab": ((8,), P("x")), "pencil": ((2, 4), P("x", "y")), "block": ((2, 2, 2), P("x", "y", "z"))}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(shared_memory, "IN_PLACE_BYTES", CHUNK)
    monkeypatch.setattr(problems, "LARGE_BYTES", CHUNK)


def _start(name: str) -> Layout:
    shape, sizes, spec = CASES[name]
    return from_spec(shape, dict(zip("xyz", sizes, strict=False)), spec)


def _steps(name: str, kind: Kind = "fft", real: bool = False) -> list[InPlace]:
    """Every step that is offered at the start of a case."""
    shape, start = CASES[name][0], _start(name)
    transform = transform_of(tuple(range(len(shape))), shape, None, False, kind)
    problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options("transpose"), start, real=real)
    return list(InPlace.offers(problem, start, problem.todo()))


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_every_offer_transforms_its_dimensions_and_leaves_the_layout(name: str, small_chunks: None) -> None:
    """Catches shares that return to other rows, a chunk done twice or not at all, and lines in the wrong order."""
    shape, sizes, spec = CASES[name]
    host, offers, where = noise(shape), _steps(name), mesh(sizes)
    assert {d for d, parts in enumerate(_start(name).parts) if parts > 1} <= {d for step in offers for d in step.dims}
    x = mf.shard(host, where, spec)
    for step in offers:
        walk = Walk(_start(name), (step,))
        assert step.chunks > 1 and step.dim not in step.dims and walk.end == walk.start
        program = jax.jit(lambda x, walk=walk: bind([x], walk, where)[0]).lower(x).compile()
        y = program(x)
        assert y.sharding.is_equivalent_to(x.sharding, y.ndim)
        assert error(y, dft(host, step.dims)) <= 4e-7, step.name(walk.start)
        assert collectives(program) == walk.collectives == {"all-to-all": 2 * step.chunks}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_back_by_the_adjoint_and_in_a_batch(name: str, small_chunks: None) -> None:
    """Catches a transpose, a conjugate or a batch dimension that the steps of a chunk do not follow."""
    shape, sizes, spec = CASES[name]
    host, step, where = noise(shape), _steps(name)[0], mesh(sizes)
    walk = Walk(_start(name), (step,))
    x = jax.device_put(host, NamedSharding(where, spec))
    (y,) = bind([x], walk, where)
    (back,) = bind([y], walk.adjoint(), where)
    assert error(back, host * math.prod(shape[d] for d in step.dims)) <= 8e-7
    _, pull = jax.vjp(lambda x: bind([x], walk, where)[0], x)
    assert error(pull(y)[0], dft(np.asarray(y), step.dims)) <= 8e-7
    pair = jax.vmap(lambda x: bind([x], walk, where)[0])(jnp.stack([x, 2 * x]))
    assert error(pair, np.stack([y, 2 * y])) <= 4e-7


@pytest.mark.quick(32)
@pytest.mark.parametrize(
    ("name", "kind", "dtype"),
    slow_rows(
        lambda name, kind, dtype: name == "two axes" and (dtype == "float32" or kind in ("dct-1", "dst-4")),
        ("pencil", "block", "two axes", "odd factors"),
        [f"{name}-{type}" for name in ("dct", "dst") for type in (1, 2, 3, 4)],
        ("float32", "complex64"),
    ),
)
def test_cosines_and_sines_in_chunks(
    name: str, kind: Kind, dtype: str, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a line that is cut by the chunks, parts that mix, and a way back or a gradient of other steps."""
    monkeypatch.setattr(shared_memory, "CHUNK_BYTES", CHUNK * np.dtype(dtype).itemsize // 4)  # as many rows of both
    shape, sizes, spec = CASES[name]
    host, where, offers = noise(shape, dtype), mesh(sizes), _steps(name, kind, dtype == "float32")
    x, call = jax.device_put(host, NamedSharding(where, spec)), getattr(scipy.fft, f"{str(kind)[:3]}n")
    assert offers and all(len(step.steps) == 2 + len(step.dims) for step in offers)
    for step in offers[:: max(len(offers) // 3, 1)]:
        walk = Walk(_start(name), (step,), real=dtype == "float32")
        truth = call(host.astype(np.promote_types(dtype, float)), int(str(kind)[-1]), axes=step.dims)
        program = jax.jit(lambda x, walk=walk: bind([x], walk, where)[0]).lower(x).compile()
        assert collectives(program) == walk.collectives
        y = program(x)
        assert error(y, truth) <= 6e-7, step.name(walk.start)
        (back,) = bind([y], walk.inverse(1.0), where)
        ratio = np.vdot(host, back).real / np.vdot(host, host).real  # a walk back inverts up to a scalar
        assert error(np.asarray(back) / np.float32(ratio), host) <= 2e-6
        _, pull = jax.vjp(lambda x, walk=walk: bind([x], walk, where)[0], x)
        c = noise(shape, dtype, 1)
        (slope,) = pull(jax.device_put(c, x.sharding))
        apart = np.sum(np.asarray(slope) * host) - np.sum(c * np.asarray(y))
        assert abs(apart) <= 1e-6 * np.linalg.norm(c) * np.linalg.norm(truth)


@pytest.mark.more
@pytest.mark.parametrize("name", slow_but(("block",), ("pencil", "block", "two axes", "odd factors")))
def test_half_spectra_in_chunks(name: str, small_chunks: None) -> None:
    """Catches half spectra in rows of the lines, padding that becomes data, and a way back or a gradient of others."""
    shape, sizes, spec = CASES[name]
    host, where, start, last = noise(shape, "float32"), mesh(sizes), _start(name), len(shape) - 1
    x, offers = jax.device_put(host, NamedSharding(where, spec)), _steps(name, "rfft", real=True)
    assert offers and all(last in step.dims and step.numbers.becomes == "complex" for step in offers)
    for step in offers:
        walk, half = Walk(start, (step,), real=True), (..., slice(shape[-1] // 2 + 1))
        truth = dft(host, step.dims)[half]
        program = jax.jit(lambda x, walk=walk: bind([x], walk, where)[0]).lower(x).compile()
        assert collectives(program) == walk.collectives == {"all-to-all": 2 * step.chunks}
        y = program(x)
        assert y.shape == walk.end.storage and error(y[half], truth) <= 4e-7, step.name(start)
        (back,) = bind([y], walk.inverse(1.0), where)
        assert error(back, host * math.prod(shape[d] for d in step.dims)) <= 8e-7
        c = noise(y.shape, seed=1)
        (slope,) = jax.vjp(lambda x, walk=walk: bind([x], walk, where)[0], x)[1](jax.device_put(c, y.sharding))
        apart = np.vdot(slope, host) - np.sum(c[half] * truth).real
        assert abs(apart) <= 1e-6 * np.linalg.norm(c) * np.linalg.norm(truth)


@pytest.mark.more
@pytest.mark.parametrize("mesh_name", slow_but(("block",), LARGE))
def test_real_transforms_go_straight_to_their_result(mesh_name: str) -> None:
    """Catches a half spectrum that returns to a cut which does not divide it, and lines of a wrong device."""
    (sizes, spec), shape = LARGE[mesh_name], (192, 192, 192)
    host, where = noise(shape, "float32"), mesh(sizes)
    x = mf.shard(host, where, spec)
    y = mf.rfftn(x)
    goal = mf.out_spec(shape, mesh=where, spec=spec, kind="rfft")
    there = mf.plan(shape, mesh=where, spec=spec, kind="rfft", out_spec=goal)
    assert InPlace in {type(step) for step in there.walk.steps} and there.out_layout.even
    call = functools.partial(mf.rfftn, spec=spec)
    assert collectives(jax.jit(call).lower(x).compile()) == there.collectives
    truth = np.fft.rfftn(host.astype(float))
    assert error(y, truth) <= 4e-7
    back = mf.irfftn(y, out_spec=spec)
    assert error(back, host) <= 8e-7 and back.sharding.is_equivalent_to(x.sharding, 3)
    c = noise(truth.shape, seed=1)
    (slope,) = jax.vjp(call, x)[1](jax.device_put(c, y.sharding))
    assert slope.sharding.is_equivalent_to(x.sharding, 3)
    apart = np.sum(np.asarray(slope) * host) - np.sum(c * truth).real
    assert abs(apart) <= 1e-6 * np.linalg.norm(c) * np.linalg.norm(truth)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["fft", "rfft"])
def test_padding_reaches_no_line(kind: Kind, small_chunks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks of a padded dimension, padding in a line, and a way on to a goal that loses rows."""
    monkeypatch.setattr(problems, "LARGE_BYTES", CHUNK // 2)
    monkeypatch.setattr(shared_memory, "CHUNK_BYTES", 4 * CHUNK)
    shape, real, where, sizes = (63, 32, 512), kind == "rfft", mesh((4, 2)), {"x": 4, "y": 2}
    transform, start = transform_of((0, 1, 2), shape, None, False, kind), from_spec(shape, sizes, P("x", "y"))
    goal = from_spec((63, 32, 257 if real else 512), sizes, P(None, "y", "x"))
    problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(), goal, real=real)
    offers = list(InPlace.offers(problem, start, problem.todo()))
    assert {step.dim for step in offers} == ({1} if real else {1, 2}) and {
        step.after(start) == goal for step in offers
    } > {True}
    host = noise(shape, "float32" if real else "complex64")
    stored = np.pad(host, [(0, 1), (0, 0), (0, 0)], constant_values=np.nan)
    x = jax.device_put(stored, NamedSharding(where, P("x", "y")))
    for step in offers:
        walk = Walk(start, (step,), real=real)
        (y,) = bind([x], walk, where)
        truth = dft(host, step.dims)[..., : goal.shape[2]]
        assert error(np.asarray(y)[tuple(map(slice, truth.shape))], truth) <= 4e-7, step.name(start)


def test_shares_of_the_last_dimension_are_not_narrow(small_chunks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches chunks of a few columns: cosines of 256^3 along two cut dimensions took twice the time."""
    monkeypatch.setattr(shared_memory, "CHUNK_BYTES", 4 * CHUNK)
    start = from_spec((64, 64, 256), {"x": 2, "y": 4}, P("x", "y"))
    transform = transform_of((0, 1), (64, 64), None, False, "dct-2")
    problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options(), start, real=True)
    parts = {
        step: math.prod(start.parts[d] for d in step.dims) for step in InPlace.offers(problem, start, problem.todo())
    }
    assert {step.dim for step in parts} == {0, 1, 2}
    assert all(256 // step.chunks // many >= 16 for step, many in parts.items() if step.dim == 2)


def test_no_step_takes_cropped_lines_or_lengths_that_no_cache_can_do(small_chunks: None) -> None:
    """Catches lines that are cropped, and large primes."""
    for shape, s in (((64, 64, 64), (64, 64, 60)), ((64, 61, 67), None)):
        start = from_spec(shape, {"x": 4, "y": 2}, P("x", "y"))
        transform = transform_of((0, 1, 2), s or shape, None, False)
        problem = Problem(start, transform, Machine(CPU), 8, (Dot("float32", 4),), Options("transpose"), None)
        offers = list(InPlace.offers(problem, start, problem.todo()))
        assert all(2 not in step.dims for step in offers) if s else not offers


def _there_and_back(spec: P) -> dict[str, Callable[[Any], Any]]:
    def turn(x: Any) -> Any:
        return mf.ifftn(mf.fftn(x, spec=spec), spec=spec)

    return {
        "there": lambda x: mf.fftn(x, spec=spec),
        "there and back": turn,
        "scan": lambda x: lax.scan(lambda x, _: (turn(x), None), x, None, length=10)[0],
        "gradient": lambda x: jax.vjp(lambda x: mf.fftn(x, spec=spec), x)[1](x)[0],
    }


@pytest.mark.quick(4)
@pytest.mark.parametrize("mesh_name", LARGE)
@pytest.mark.parametrize("what", ["there", "there and back", "scan", "gradient"])
def test_a_plain_jit_needs_chunks_alone(mesh_name: str, what: str) -> None:
    """Catches temporaries of a block's size in a program of the user's own, which no compiler option can divide: of
    256^3 there were 1.4 to 2.5 blocks, whose pages the kernel cleared at each call.
    """
    sizes, spec = LARGE[mesh_name]
    where, shape = NamedSharding(mesh(sizes), spec), (256, 256, 256)
    call = jax.jit(_there_and_back(spec)[what], donate_argnums=0)
    memory = call.lower(jax.ShapeDtypeStruct(shape, np.complex64, sharding=where)).compile().memory_analysis()
    assert memory is not None and memory.alias_size_in_bytes == 2**24
    assert memory.temp_size_in_bytes <= 4 * shared_memory.CHUNK_BYTES


@pytest.mark.quick(0, 1)
@pytest.mark.parametrize("mesh_name", LARGE)
def test_cosines_in_a_plain_jit_need_chunks_alone(mesh_name: str) -> None:
    """Catches cosines of cut dimensions that exchange whole blocks: of 256^3 there were two to three in temporaries."""
    sizes, spec = LARGE[mesh_name]
    given = jax.ShapeDtypeStruct((256,) * 3, np.float32, sharding=NamedSharding(mesh(sizes), spec))
    memory = jax.jit(lambda x: mf.dctn(x, spec=spec)).lower(given).compile().memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes <= 2 * shared_memory.CHUNK_BYTES


@pytest.mark.quick(0)
@pytest.mark.parametrize("mesh_name", LARGE)
def test_a_spectrum_of_real_numbers_is_finished_where_it_lies(mesh_name: str) -> None:
    """Catches a second array of a spectrum beside the result of rfftn, and a cut last dimension opened as a whole."""
    sizes, spec = LARGE[mesh_name]
    where = NamedSharding(mesh(sizes), spec)
    call = jax.jit(lambda x: mf.rfftn(x, spec=spec))
    memory = call.lower(jax.ShapeDtypeStruct((256,) * 3, np.float32, sharding=where)).compile().memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes <= 4 * shared_memory.CHUNK_BYTES


@pytest.mark.more
def test_a_wire_carries_both_exchanges() -> None:
    """Catches an exchange that sends exact numbers although a wire is requested, and errors that are not printed."""
    where, shape = mesh((2, 4)), (128, 128, 128)
    plan = mf.plan(shape, mesh=where, spec=P("x", "y"), wire="int16")
    assert {type(step) for step in plan.walk.steps} == {InPlace}
    host = noise(shape)
    found = error(plan(mf.shard(host, where, P("x", "y"))), np.fft.fftn(host.astype(complex)))
    assert 1e-6 < found <= plan.walk.error(8) and plan.walk.error(8) > 4 * 2.0**-15


def test_plans_take_it_and_say_so() -> None:
    """Catches a search that prices it out of natural order, a name that hides it, and a count that programs break."""
    where, shape = mesh((2, 4)), (128, 128, 128)
    plan = mf.plan(shape, mesh=where, spec=P("x", "y"))
    assert {type(step) for step in plan.walk.steps} == {InPlace} and "and back, in place in" in plan.name
    assert collectives(compile_plan(plan, where)) == plan.collectives
    assert LocalFFT in {type(step) for step in mf.plan(shape, mesh=where, order="any").walk.steps}
