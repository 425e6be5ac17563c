"""fftshift, ifftshift and the roll they are made of: values, types, sharding, traffic, gradient, vmap, refusals."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.functions.helpers import shift_walk
from meshfft.inspect.hlo import collectives, every_collective, program_of
from meshfft.layout.layout import axis_sizes, even_cuts, from_spec
from meshfft.machine.chips import GENERIC
from meshfft.plans.primitive import bind
from meshfft.steps import Roll
from meshfft.walks.walk import Walk

KINDS = (AxisType.Auto, AxisType.Explicit)
SIGNS = {"fftshift": 1, "ifftshift": -1}
SHAPE, SPEC = (12, 6, 10), P("x", "y", "z")


def _put(x: Any, spec: P = SPEC, kind: AxisType = AxisType.Explicit, sizes: tuple[int, ...] = (2, 2, 2)) -> Array:
    return jax.device_put(x, NamedSharding(mesh(sizes, kind), spec))


def _sent(program: jax.stages.Compiled) -> int:
    """Bytes a device receives in one run, by the compiled text."""
    return sum(one.times * one.bytes for one in every_collective(program_of(program)))


@given(
    case=cases(power=1),
    name=st.sampled_from(list(SIGNS)),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(["float32", "complex64", "int16", "bool"]),
    data=st.data(),
)
def test_same_values_as_numpy_and_no_more_traffic_than_needed(
    case: Case, name: str, kind: AxisType, dtype: str, data: st.DataObject
) -> None:
    """Catches a wrong row, ring order or count of shifts, a lost sharding or type, a gather, and rows sent in vain."""
    ndim = len(case.shape)
    axes = data.draw(st.none() | st.integers(-ndim, ndim - 1) | st.lists(st.integers(-ndim, ndim - 1), max_size=4))
    x = np.random.default_rng().integers(0, 1000, case.shape).astype(dtype)
    a = _put(x, case.spec, kind, case.mesh)
    spec = case.spec if kind == AxisType.Auto and np.prod(case.mesh) > 1 else None
    program = jax.jit(lambda a: getattr(mf, name)(a, axes, spec=spec)).lower(a).compile()
    y = program(a)
    np.testing.assert_array_equal(y, getattr(np.fft, name)(x, axes))
    assert y.dtype == x.dtype and y.sharding.is_equivalent_to(a.sharding, ndim)
    named = range(ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    start = from_spec(case.shape, axis_sizes(mesh(case.mesh)), case.spec)
    walk = shift_walk(start, tuple(d % ndim for d in named), SIGNS[name])
    works, block = walk.works(x.itemsize, GENERIC), x.nbytes // int(np.prod(start.parts))
    assert collectives(program) == walk.collectives and _sent(program) == walk.work(x.itemsize, GENERIC).sent_bytes
    for step, work in zip(walk.steps, works, strict=True):
        assert isinstance(step, Roll) and work.sent_bytes <= block
        assert work.hops <= (2 if start.parts[step.dim] > 1 else 0)


RINGS = [((3,), ("x",)), ((2, 3), ("y", "x")), *(((2, 1, 2), order) for order in itertools.permutations("xyz"))]


@pytest.mark.quick(0, 9)
@pytest.mark.parametrize(("sizes", "axes"), RINGS)
@pytest.mark.parametrize("rows", [1, 3])
def test_a_roll_by_any_number_and_back(sizes: tuple[int, ...], axes: tuple[str, ...], rows: int) -> None:
    """Catches mesh axes counted in the wrong order, a shift that does not wrap, and a transpose that is no way back."""
    devices, n = mesh(sizes), rows * int(np.prod(sizes))
    layout = from_spec((2, n), axis_sizes(devices), P(None, axes))
    x = noise((2, n), "float32")
    shifts = range(-n - 1, n + 2)

    @jax.jit
    def rolled(a: Array) -> list[tuple[Array, Array]]:
        walks = [Walk(layout, (Roll(1, by),)) for by in shifts]
        there = [bind([a], walk, devices)[0] for walk in walks]
        return [(y, bind([y], walk.transpose(), devices)[0]) for y, walk in zip(there, walks, strict=True)]

    for by, (there, back) in zip(shifts, rolled(_put(x, P(None, axes), AxisType.Auto, sizes)), strict=True):
        np.testing.assert_array_equal(there, np.roll(x, by, 1))
        np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_the_work_of_a_roll(p: int) -> None:
    """Catches a block sent to itself, a hop too many, and traffic of whole blocks where a row moves."""
    layout = from_spec((5 * p, 7), {"x": p}, P("x"))
    row, block = 7 * 8, 5 * 7 * 8

    def sent(by: int) -> tuple[int, int]:
        work = Roll(0, by).work(layout, 8, GENERIC)
        assert sum(move.nbytes for move in work.moves) == work.sent_bytes and block <= work.peak_bytes <= 4 * block
        return work.hops, work.sent_bytes

    assert sent(0) == sent(5 * p) == (0, 0)
    for by in (1, 2, 4):
        assert sent(by) == ((1, by * row) if p > 1 else (0, 0))
        assert sent(-by) == ((1, by * row) if p > 1 else (0, 0))
    assert sent(5) == ((1, block) if p > 1 else (0, 0))
    if p > 2:
        assert sent(7) == (2, block)
        assert [m.times for m in Roll(0, 7).work(layout, 8, GENERIC).moves] == [min(2, p - 2), 1]


@pytest.mark.parametrize("by", [1, -1, 4, 7, 10, 14])
def test_only_the_rows_that_change_devices_travel(by: int) -> None:
    """Catches whole blocks sent where a few rows are needed, by the compiled text."""
    devices = mesh((3,))
    walk = Walk(from_spec((15, 2), axis_sizes(devices), P("x")), (Roll(0, by),))
    x = _put(noise((15, 2)), P("x"), AxisType.Auto, (3,))
    program = jax.jit(lambda a: bind([a], walk, devices)[0]).lower(x).compile()
    assert collectives(program) == walk.collectives and _sent(program) == walk.work(8, GENERIC).sent_bytes


def test_a_roll_among_the_steps_of_a_walk() -> None:
    """Catches a roll that another dimension moves, that claims to transform, or that tables cannot name."""
    walk = Walk(from_spec((4, 6), {}, P()), (Roll(1, 2),)).insert(1, 5, even_cuts(5, []))
    assert walk.steps == (Roll(2, 2),) and walk.end.shape == (4, 5, 6) and walk.error(8) == 0
    assert walk.insert(3, 2, ()).steps == (Roll(2, 2),) and walk.steps[0].dims == ()
    assert walk.steps[0].name(walk.start) == "roll Z by 2" and walk.conjugate() == walk
    assert walk.adjoint().steps == (Roll(2, -2),)


DTYPES = "bool int4 int8 int32 uint8 uint32 float8_e4m3fn bfloat16 float16 float32 complex64".split()


@pytest.mark.quick(1, 6, 7, 8, 9)
@pytest.mark.parametrize("dtype", DTYPES)
def test_types_are_kept(dtype: str) -> None:
    """Catches a cast: to the transform's complex type, or to any other and back with values lost."""
    x = jnp.asarray(np.arange(16) % 2).astype(dtype)
    y = mf.fftshift(_put(x, P(("y", "x"))))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(y), np.fft.fftshift(np.asarray(x)))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_wide_types_are_kept(x64: None, dtype: str) -> None:
    """Catches 64 bits cut to 32 where JAX has them: these values differ only beyond 53 bits of one, or 24."""
    x = (2**62 + np.arange(8)).astype(dtype) if dtype.endswith("int64") else 1 + 1e-12 * noise((8,), dtype)
    for a in (x, _put(x, P("z"))):
        y = mf.ifftshift(a)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, np.fft.ifftshift(x))


def test_what_numpy_takes() -> None:
    """Catches lists, big-endian, single positions and empty arrays refused, or signed zeros and NaN changed."""
    empty = np.zeros((0, 3)), np.zeros((4, 0))
    taken: list[Any] = [[1, 2, 3], [[1]], [-0.0, np.nan, 2], np.arange(7, dtype=">i4"), *empty]
    for x in taken:
        y = mf.fftshift(x)
        np.testing.assert_array_equal(y, np.fft.fftshift(x))
        np.testing.assert_array_equal(np.signbit(y), np.signbit(np.fft.fftshift(x)))
    assert mf.fftshift(_put(jnp.zeros((0, 3)), P("x"))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_planes_in_planes_out(dtype: str) -> None:
    """Catches planes joined, mixed or stacked, and traffic that the walk does not count."""
    re, im = (np.arange(720).reshape(SHAPE).astype(dtype) for _ in range(2))
    pair = (_put(re), _put(-im))
    program = jax.jit(mf.fftshift).lower(pair).compile()
    for y, x in zip(program(pair), (re, -im), strict=True):
        np.testing.assert_array_equal(y, np.fft.fftshift(x))
    walk = shift_walk(from_spec(SHAPE, axis_sizes(mesh((2, 2, 2))), SPEC), (0, 1, 2), 1)
    assert collectives(program) == {kind: 2 * many for kind, many in walk.collectives.items()}
    assert mf.ifftshift(pair)[1].dtype == dtype


def test_inverse_of_each_other_on_odd_sizes() -> None:
    """Catches one function shifting by the other's number: they differ only where n is odd."""
    x = noise((9, 15), "float32")
    a = _put(x, P("x", "y"), sizes=(3, 1))
    np.testing.assert_array_equal(mf.ifftshift(mf.fftshift(a)), x)
    assert not np.array_equal(mf.fftshift(mf.fftshift(a)), x)


def test_jit_auto_takes_spec() -> None:
    """Catches a spec that is not heeded under Auto axes, where JAX hides the sharding of traced arrays."""
    x = noise(SHAPE)
    a = _put(x, kind=AxisType.Auto)
    np.testing.assert_array_equal(jax.jit(lambda: mf.fftshift(a))(), np.fft.fftshift(x))
    with jax.set_mesh(mesh((2, 2, 2), AxisType.Auto)):
        y = jax.jit(lambda: mf.fftshift(jnp.asarray(x), spec=SPEC))()
    np.testing.assert_array_equal(y, np.fft.fftshift(x))
    assert y.sharding.is_equivalent_to(_put(x).sharding, 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_gradient_shifts_back(kind: AxisType, dtype: str) -> None:
    """Catches a gradient that shifts in the wrong direction (visible at odd sizes), gathers, or loses the sharding."""
    x, weights = noise((6, 15), dtype), noise((6, 15), dtype, 1)
    spec = P("x", ("z", "y"))
    a, w = (_put(v, spec, kind, (2, 1, 3)) for v in (x, weights))
    shift = _with_spec(spec if kind == AxisType.Auto else None)
    program = jax.jit(lambda a, w: jax.vjp(shift, a)[1](w)[0]).lower(a, w).compile()
    pulled = program(a, w)
    np.testing.assert_array_equal(pulled, np.fft.ifftshift(weights))
    assert pulled.sharding.is_equivalent_to(a.sharding, 2) and set(collectives(program)) == {"collective-permute"}
    np.testing.assert_array_equal(jax.jit(lambda a, w: jax.jvp(shift, (a,), (w,))[1])(a, w), np.fft.fftshift(weights))


def _with_spec(spec: P | None) -> Callable[[Array], Array]:
    return lambda a: mf.fftshift(a, spec=spec)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_vmap_leaves_the_batch_where_it_is(batch: int) -> None:
    """Catches a batch dimension shifted, gathered or moved; planes and a repeated axis go the same way."""
    x, others = noise(SHAPE), tuple(d for d in range(3) if d != batch)
    a = _put(x)
    run = jax.jit(jax.vmap(mf.fftshift, batch, batch))
    y = run(a)
    np.testing.assert_array_equal(y, np.fft.fftshift(x, others))
    assert y.sharding.is_equivalent_to(a.sharding, 3)
    assert set(collectives(run.lower(a).compile())) <= {"collective-permute"}
    planes = jax.vmap(lambda p: mf.ifftshift(p, (0, 0)), batch, batch)((a.real, a.imag))
    np.testing.assert_array_equal(planes[1], np.fft.ifftshift(x.imag, (others[0], others[0])))


def test_vmap_under_auto_axes_takes_spmd_axis_name() -> None:
    """Catches a gathered batch where vmap itself names the mesh axis."""
    run = jax.jit(jax.vmap(_with_spec(P("y", "z")), spmd_axis_name="x"))
    a = _put(noise(SHAPE), kind=AxisType.Auto)
    np.testing.assert_array_equal(run(a), np.fft.fftshift(noise(SHAPE), (1, 2)))
    assert set(collectives(run.lower(a).compile())) <= {"collective-permute"}


def test_shapes_beyond_memory_are_evaluated_without_arrays() -> None:
    """Catches allocation, and shifts that overflow 32 bits."""
    sharding = NamedSharding(mesh((2, 2, 2), AxisType.Explicit), P(("x", "y", "z")))
    x = jax.ShapeDtypeStruct((2**34,), np.int8, sharding=sharding)
    assert jax.eval_shape(mf.fftshift, x).shape == x.shape


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "axis": (lambda: mf.fftshift(np.zeros((2, 3)), 2), ValueError, "axis 2 is out of range.* 2 dimensions"),
    "axes": (lambda: mf.ifftshift(np.zeros(4), 0.5), TypeError, r"axes is 0.5: give a sequence"),  # type: ignore[call-overload]
    "bool": (lambda: mf.fftshift(np.zeros(4), True), TypeError, "axes is .*True"),
    "objects": (lambda: mf.fftshift(np.array([{}, None])), TypeError, "dtype object is not numeric"),
    "keys": (lambda: mf.fftshift(jax.random.split(jax.random.key(0), 4)), TypeError, "not numeric"),
    "other spec": (lambda: mf.fftshift(_put(noise(SHAPE)), spec=P("y")), ValueError, "sharded as .*drop spec="),
    "planes": (lambda: mf.fftshift((np.zeros(4), np.zeros(5))), ValueError, "planes have shapes"),
    "uneven": (
        lambda: jax.jit(lambda a: mf.fftshift(a, spec=P("x")))(_put(noise((9,)), P(), AxisType.Auto)),
        ValueError,
        r"\(9,\) is not divided by spec .*'x'.*: .* give a spec whose mesh axes divide it",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
