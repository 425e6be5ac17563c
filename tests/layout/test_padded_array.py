"""Padded arrays: sizes that no mesh axis divides, through every function, their logical shape kept."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.signal
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import dft, error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import stored_of

SHAPE, SIZES, SPEC = (10, 9, 7), (2, 2, 2), P("x", "y", "z")
KINDS = (AxisType.Auto, AxisType.Explicit)
TURNS = [2 * np.pi * np.fft.fftfreq(n) for n in SHAPE]


def _real(seed: int = 0) -> np.ndarray:
    return noise(SHAPE, "float32", seed)


def _put(x: np.ndarray, kind: AxisType = AxisType.Auto) -> mf.PaddedArray:
    padded = mf.shard(x, mesh(SIZES, kind), SPEC)
    assert isinstance(padded, mf.PaddedArray)
    return padded


def _poisson(x: np.ndarray) -> np.ndarray:
    square = TURNS[0][:, None, None] ** 2 + TURNS[1][:, None] ** 2 + TURNS[2] ** 2
    y = np.fft.fftn(x)
    return np.fft.ifftn(np.where(square > 0, -y / np.where(square > 0, square, 1), 0)).real


def _derivative(x: np.ndarray) -> np.ndarray:
    return np.fft.ifft(1j * TURNS[1][:, None] * np.fft.fft(x, axis=1), axis=1).real


SMALL = noise((3, 2, 3), "float32", 5)
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "fftn": (mf.fftn, lambda x: dft(x, (0, 1, 2))),
    "any order": (lambda x: mf.fftn(x, order="any"), lambda x: dft(x, (0, 1, 2))),
    "fft of one axis": (lambda x: mf.fft(x, axis=1), lambda x: dft(x, (1,))),
    "an axis twice": (lambda x: mf.fftn(x, axes=(1, 1)), lambda x: dft(dft(x, (1,)), (1,))),
    "cropped": (lambda x: mf.fftn(x, s=(11, 5), axes=(0, 1)), lambda x: dft(x, (0, 1), (11, 5))),
    "ifft2": (mf.ifft2, lambda x: dft(x, (1, 2), sign=1) / 63),
    "rfftn": (mf.rfftn, lambda x: dft(x, (0, 1, 2))[..., :4]),
    "there and back": (lambda x: mf.irfftn(mf.rfftn(x), s=SHAPE), lambda x: x),
    "planes": (lambda x: mf.fftn((x, 0 * x))[0], lambda x: dft(x, (0, 1, 2)).real),
    "dctn": (mf.dctn, scipy.fft.dctn),
    "idstn": (lambda x: mf.idstn(x, 3, axes=(1, 2)), lambda x: scipy.fft.idstn(x, 3, axes=(1, 2))),
    "kdftn": (mf.kdftn, lambda x: dft(x, (0, 1, 2))),
    "ikdftn": (lambda x: mf.ikdftn(mf.kdftn(x)).value, lambda x: x),
    "fftshift": (mf.fftshift, np.fft.fftshift),
    "ifftshift": (lambda x: mf.ifftshift(x, (0, 2)), lambda x: np.fft.ifftshift(x, (0, 2))),
    "derivative": (lambda x: mf.derivative(x, 1), _derivative),
    "poisson": (mf.poisson, _poisson),
    "convolve": (lambda x: mf.convolve(x, x), lambda x: np.fft.ifftn(np.fft.fftn(x) ** 2).real),
    "convolve a small one": (
        lambda x: mf.convolve(x, SMALL, mode="same"),
        lambda x: scipy.signal.convolve(x, SMALL, mode="same"),
    ),
    "correlate a small one": (
        lambda x: mf.correlate(x, SMALL, mode="same"),
        lambda x: scipy.signal.correlate(x, SMALL, mode="same"),
    ),
}


@pytest.mark.quick(14)
@pytest.mark.parametrize("kind", KINDS, ids=["auto", "explicit"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_takes_one_and_gives_one_back(name: str, kind: AxisType) -> None:
    """Catches padding transformed as data (9.6 % of a Poisson solution), padding left behind, and a lost layout."""
    function, truth = FUNCTIONS[name]
    x = _real()
    y = function(_put(x, kind))
    expected = truth(x)
    assert isinstance(y, mf.PaddedArray) and y.shape == expected.shape
    assert error(y, expected) <= 5e-7
    assert np.count_nonzero(stored_of(y)) <= expected.size, "padding is not zero"
    assert y.spec == SPEC or name == "any order"


@pytest.mark.quick(19)
@pytest.mark.parametrize("name", slow_but(FUNCTIONS.keys() - {"ikdftn"}, FUNCTIONS))
def test_the_gradient_goes_through_it(name: str) -> None:
    """Catches a gradient that takes padding for data, or leaves some in it: <J v, w> = <v, J^T w> in every function."""
    function, _ = FUNCTIONS[name]
    x, v = _put(_real()), _put(_real(1))
    y = jax.eval_shape(function, x)
    w = jax.tree.map(lambda part: noise(part.shape, str(part.dtype), 2), y)  # padding holds noise too

    @jax.jit
    def both(x: Any, v: Any, w: Any) -> Any:
        return jax.jvp(function, (x,), (v,))[1], *jax.vjp(function, x)[1](w), w

    pushed, pulled, w = both(x, v, w)
    left = np.sum(np.asarray(pushed) * np.asarray(w)).real
    right = np.sum(np.asarray(v) * np.asarray(pulled))
    assert abs(left - right) <= 2e-4 * abs(left) + 1e-3
    assert np.count_nonzero(stored_of(pulled)) <= x.size, "padding of a gradient is not zero"


def test_power_of_a_padded_array() -> None:
    """Catches modes of the padding counted, by Parseval's sum."""
    x = _real()
    found = mf.power_spectrum(_put(x))
    assert int(found.counts.sum()) == x.size
    assert abs(float((found.power * found.counts).sum()) - np.mean(x**2)) <= 1e-6


@given(cases(), st.sampled_from(["fftshift", "ifftshift"]), st.sampled_from(["complex64", "bool", "int32"]))
def test_shifts_of_any_size(case: Case, name: str, dtype: str) -> None:
    """Catches rows read from padding, or lost in it."""
    x = np.random.default_rng().integers(0, 1000, case.shape).astype(dtype)
    y = getattr(mf, name)(mf.shard(x, mesh(case.mesh), case.spec), case.axes)
    np.testing.assert_array_equal(mf.gather(y), getattr(np.fft, name)(x, case.axes))


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS, ids=["auto", "explicit"])
def test_jit_scan_and_vmap_carry_it(kind: AxisType) -> None:
    """Catches a layout lost on the way in, out or round, and a batch dimension counted as one of the array's own."""
    x, batch, over = _real(), noise((5, *SHAPE), "float32"), mesh(SIZES, kind)
    a = _put(x, kind)

    def halved(c: Any, _: None) -> tuple[Any, Any]:
        c = mf.ifftn(mf.fftn(c)).real * 0.5
        return c, c

    with jax.set_mesh(over):
        last, every = jax.jit(lambda c: jax.lax.scan(halved, c, length=3))(a)
        many = jax.jit(jax.vmap(mf.fftn))(mf.shard(batch, over, P(None, *SPEC)))
        lent = jax.vmap(lambda c, u: mf.fftn(u) * c, (0, None))(jnp.arange(3, dtype="complex64"), a)
    assert error(last, x / 8) <= 1e-6 and last.spec == SPEC
    assert error(every, np.stack([x / 2, x / 4, x / 8])) <= 1e-6
    assert many.shape == (5, *SHAPE) and error(many, dft(batch, (1, 2, 3))) <= 4e-7
    assert error(lent, np.arange(3)[:, None, None, None] * dft(x, (0, 1, 2))) <= 4e-7


def test_a_batch_that_is_padded_itself() -> None:
    """Catches the logical size of a batch dimension lost in vmap."""
    x = noise((5, 6, 4), "float32")
    y = jax.vmap(mf.fftn, spmd_axis_name="x")(mf.shard(x, mesh((2, 2)), P("x", "y")))
    assert y.shape == x.shape and error(y, dft(x, (1, 2))) <= 4e-7


def test_no_gather_for_padding() -> None:
    """Catches a mask, a shift or a transform of a padded array that XLA makes of an all-gather."""
    x = _put(_real())
    for function in (mf.fftn, mf.fftshift, mf.poisson, lambda v: (v * v + 1).map(jnp.exp), mf.irfftn):
        assert collectives(jax.jit(function).lower(x).compile()).keys() <= {"all-to-all", "collective-permute"}


OPERATORS = ("add", "sub", "mul", "truediv", "pow", "lt", "ge", "eq", "ne")


@pytest.mark.quick(1, 2, 4, 8)
@pytest.mark.parametrize("name", OPERATORS)
def test_arithmetic_is_that_of_the_logical_arrays(name: str) -> None:
    """Catches an operand on the wrong side, one stored otherwise, and padding that 1 + x or 1 / x would fill."""
    function, x, z = getattr(operator, name), abs(_real()) + 1, abs(_real(1)) + 1
    a, b = _put(x), _put(z)
    line = z[:, :1, :1]

    def every(a: Any, b: Any, asarray: Any = jnp.asarray) -> list[Any]:
        pairs = [(a, b), (a, 2.0), (3.0, a), (a, z), (z, a), (a, line), (a, asarray(line)), (asarray(z[0]), a)]
        return [function(*pair) for pair in (*pairs, (a, np.float32(2)))]

    runs: list[Any] = [jax.jit(every), every]
    for run in runs if name == "add" else runs[:1]:
        for y, truth in zip(run(a, b), every(x, z, np.asarray), strict=True):
            assert isinstance(y, mf.PaddedArray)
            np.testing.assert_allclose(np.asarray(y), truth, rtol=1e-5)
            stored = np.asarray(y.stored)
            assert np.isfinite(stored).all() and np.count_nonzero(stored) == np.count_nonzero(np.asarray(y))


WHOLE = ((7, 9), (2, 9), (7, 4), (1, 9), (7, 1), (1, 1))


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS, ids=["auto", "explicit"])
@pytest.mark.parametrize("shape", WHOLE)
def test_dimensions_of_one_element_broadcast(shape: tuple[int, ...], kind: AxisType) -> None:
    """Catches the one element of a cut dimension met with the padding behind it: x * x[:1] was 0 in all but a row."""
    x, over = abs(noise(shape, "float32")) + 1, mesh((2, 4), kind)
    a: Any = mf.shard(x, over, P("x", "y"))
    wide = noise((5, 3, 7, shape[1]), "float32", 1) if shape[0] == 1 else noise((3, *shape), "float32", 1)

    def several(v: Any, where: Any) -> list[Any]:
        ends = [(v, v[:1]), (v[:, :1], v), (v[:1], v[:, :1]), (v, v.sum(0, keepdims=True)), (v[0], v), (v, wide)]
        quotients = [first / second for first, second in ends]
        return [*quotients, where(v[:1], v > 1.5, v[:, :1]), wide - v, (v[:1] > 1.5) & (v > 1)]

    expected = several(x, lambda y, holds, other: np.where(holds, y, other))
    with jax.set_mesh(over):
        found = several(a, lambda y, holds, other: y.where(holds, other))
        grad = jax.jit(jax.grad(lambda v: (v * v[:1]).sum()))(a)
    for y, truth in zip(found, expected, strict=True):
        assert y.shape == truth.shape
        np.testing.assert_allclose(mf.gather(y), truth, rtol=1e-5)
        assert np.count_nonzero(stored_of(y)) == np.count_nonzero(truth), "padding is not zero"
    np.testing.assert_allclose(mf.gather(grad), jax.grad(lambda v: jnp.sum(v * v[:1]))(jnp.asarray(x)), rtol=1e-5)


def test_a_batch_of_one_keeps_its_cuts() -> None:
    """Catches a dimension of one element that loses its mesh axis, or has one that cuts another dimension."""
    over = mesh((2, 4))
    a: Any = mf.shard(noise((1, 9), "float32"), over, P("x", "y"))
    b: Any = mf.shard(noise((1, 7), "float32"), over, P("y", "x"))
    assert (a + a.mean(0)).spec == a.spec == (a[0] + a).spec
    assert (a[:, :1] * b).spec == P(None, "x")
    with pytest.raises(ValueError, match="shard them alike"):
        mf.shard(np.ones((7, 1)), over, P("x", "y")) * mf.shard(np.ones((1, 5)), over, P(None, "x"))


@pytest.mark.parametrize("kind", KINDS, ids=["auto", "explicit"])
def test_what_vmap_leaves_elsewhere_is_refused(kind: AxisType) -> None:
    """Catches a batch read as the array's own dimension: sums and means were wrong."""
    a, over = _put(_real(), kind), mesh(SIZES, kind)
    lines = noise((4, SHAPE[2]), "float32")
    with jax.set_mesh(over):
        made = [
            jax.vmap(lambda line: a * line, out_axes=1)(lines),
            jax.jacfwd(lambda c: a * c.sum())(jnp.ones(3)),
        ]
        with pytest.raises(ValueError, match="pytree"):  # JAX compares it with the array
            jax.jacrev(lambda v: v * 2)(a[:2, :1, :3])
    uses: list[Callable[[Any], Any]] = [lambda y: y.shape, lambda y: y.sum(), mf.gather, lambda y: y * 2, mf.fftn]
    assert all(repr(y).startswith("PaddedArray(") for y in made)
    for y, use in zip(made * len(uses), [use for use in uses for _ in made], strict=True):
        with pytest.raises(ValueError, match="leave leading dimensions only"):
            use(y)


@pytest.mark.parametrize("kind", KINDS, ids=["auto", "explicit"])
@pytest.mark.parametrize("names", ["xy", "x"])
def test_broadcasting_inside_shard_map(names: str, kind: AxisType) -> None:
    """Catches a block resharded as the whole array, and one taken for a whole array that makes a dimension longer."""
    x, over = noise((7, 9), "float32"), mesh((2, 4), kind)
    a: Any = mf.shard(x, over, P("x", "y"))
    spec = P("x", "y") if names == "xy" else P("x")
    for function in (lambda y: y[:1] * y, lambda y: y * y[:1], lambda y: y * 2 - y[:1]):
        run = jax.shard_map(function, mesh=over, in_specs=spec, out_specs=spec, axis_names={*names}, check_vma=False)
        with jax.set_mesh(over):
            np.testing.assert_allclose(mf.gather(jax.jit(run)(a)), function(x), rtol=1e-5)
    if names == "xy":
        with pytest.raises(ValueError, match="give one that broadcasts to it"):
            jax.shard_map(lambda y: y[:, :1] * jnp.ones(8), mesh=over, in_specs=spec, out_specs=spec)(a)
        wrong = r"inside shard_map .* give it in_specs=P" if kind == AxisType.Auto else "in_specs passed to shard_map"
        with pytest.raises(ValueError, match=wrong):
            jax.shard_map(mf.fftn, mesh=over, in_specs=P(), out_specs=P(), check_vma=False)(a)


def test_parts_and_types() -> None:
    """Catches attributes that are those of the stored array."""
    x = noise(SHAPE)
    a = _put(x)
    assert (a.shape, a.ndim, a.size, a.dtype, a.spec) == (SHAPE, 3, 630, np.complex64, SPEC)
    for found, expected in ((a.real, x.real), (a.imag, x.imag), (a.conj(), x.conj()), (-a, -x), (abs(a), abs(x))):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (~(a.real > 0)).stored.sum() == np.sum(x.real <= 0)
    assert a.real.astype("float16").dtype == np.float16
    assert repr(a) == "PaddedArray(shape=(10, 9, 7), dtype=complex64, spec=P('x', 'y', 'z'), stored=(10, 10, 8))"
    np.testing.assert_array_equal(a.like(jnp.ones_like(a.stored)), np.ones(SHAPE))
    with pytest.raises(ValueError, match="is stored as"):
        a.like(jnp.ones((*SHAPE[:-1], SHAPE[-1] + 9)))


def test_wavenumbers_of_a_padded_spectrum_multiply_it() -> None:
    """Catches wavenumbers as long as the storage, indistinguishable from data."""
    x, over = _real(), mesh(SIZES)
    plan = mf.plan(SHAPE, mesh=over, spec=SPEC, kind="rfft", order="any")
    k = mf.wavenumbers(plan)
    y = plan.inverse(
        sum((one**2 for one in k), start=jnp.zeros(())).astype("complex64") * plan(mf.shard(x, over, SPEC))
    )
    square = TURNS[0][:, None, None] ** 2 + TURNS[1][:, None] ** 2 + TURNS[2] ** 2
    assert error(y, np.fft.ifftn(square * np.fft.fftn(x)).real) <= 5e-7


def test_it_is_not_taken_for_data() -> None:
    """Catches a function that reads the padding: of JAX, of NumPy, a plan's given storage, a batch in the middle."""
    a, other = _put(_real()), mf.shard(_real(), mesh((2, 4)), P("x", "y"))
    plan = mf.plan(SHAPE, mesh=mesh(SIZES), spec=SPEC)
    for refused in (lambda v: jnp.sum(v), lambda v: jnp.exp(v), bool, iter, lambda v: v[[True]], lambda v: "text" * v):
        with pytest.raises(TypeError):
            refused(a)
    np.testing.assert_array_equal(np.asarray(a), mf.gather(a))
    with pytest.raises(ValueError, match="leave copy=False out"):
        np.array(a, copy=False)
    with pytest.raises(ValueError, match=r"takes \(10, 9, 7\) padded to \(10, 10, 8\).*cannot be told from data"):
        plan(a.stored)
    with pytest.raises(ValueError, match="the plan takes"):
        plan(other)
    with pytest.raises(ValueError, match="shard them alike"):
        a + other
    with pytest.raises(ValueError, match="give one that broadcasts with it"):
        a + jnp.ones(a.stored.shape)
    for refused in (mf.fftn, mf.gather, lambda v: v * 2, lambda v: v.shape):
        with pytest.raises(ValueError, match="leading dimensions only"):
            jax.vmap(refused, in_axes=2)(a)
    with pytest.raises(ValueError, match="give an elementwise one"):
        a.map(lambda v: v[:2])
    with pytest.raises(ValueError, match="drop spec="):
        mf.fftn(a, spec=P("y"))


def test_a_result_that_no_layout_divides_is_padded() -> None:
    """Catches a refusal where a result can be given: half the spectrum of a line that is cut."""
    x = noise((16,), "float32")
    y: Any = mf.rfft(mf.shard(x, mesh((8,)), P("x")))
    assert isinstance(y, mf.PaddedArray) and y.shape == (9,) and error(y, np.fft.rfft(x)) <= 4e-7
    back = mf.irfft(y)
    assert isinstance(back, jax.Array) and error(back, x) <= 4e-7


def test_sums_shards_and_scipys_names() -> None:
    """Catches padding in a sum, the way to the blocks lost, and an array gathered by SciPy's functions."""
    x = _real()
    a = _put(x)
    assert (
        abs(float(mf.gather(a.sum())) - x.sum()) <= 1e-3
        and abs(float(mf.gather(((a - 1) * a).sum())) - ((x - 1) * x).sum()) <= 1e-3
    )
    assert [shard.index for shard in a.addressable_shards] == [shard.index for shard in a.stored.addressable_shards]
    with scipy.fft.set_backend(mf.scipy_backend, only=True):
        y = scipy.fft.fftn(a)
    assert isinstance(y, mf.PaddedArray) and error(y, dft(x, (0, 1, 2))) <= 4e-7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_parts_of_numbers(dtype: str, kind: AxisType) -> None:
    """Catches `jnp.imag` of real numbers, which JAX refuses under Explicit axes, and another type than NumPy's."""
    x = noise(SHAPE) if dtype == "complex64" else (5 * _real()).astype(dtype)
    a = _put(x, kind)
    for found, expected in (a.real, x.real), (a.imag, x.imag), (a.conj(), x.conj()):
        assert np.array_equal(mf.gather(found), expected) and found.dtype == expected.dtype
