"""Calls on arrays whose cuts JAX hides, under Auto mesh axes: values, shardings, derivatives, batches, collectives."""

import functools
import re
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import Partial
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import line_shape

SHAPE, SPEC = (4, 12, 10), P("x", "y")
AXES = (0, 1, 2)
POINTS = np.random.default_rng(7).uniform(-0.5, 0.5, (16, 3))
TURNS = [np.random.default_rng(8).uniform(0, 1, n) for n in SHAPE]
WAVES = [2 * np.pi * np.fft.fftfreq(n) for n in SHAPE]
SQUARE = sum(k.reshape([-1 if d == dim else 1 for d in AXES]) ** 2 for dim, k in enumerate(WAVES))
ODD = np.where(np.arange(12) == 6, 0, WAVES[1])[:, None]


def _put(x: np.ndarray, spec: P = SPEC, over: Mesh | None = None) -> Array:
    return jax.device_put(x, NamedSharding(over or mesh((2, 4), AxisType.Auto), spec))


def _filtered(x: np.ndarray, factor: Any) -> np.ndarray:
    y = np.fft.ifftn(np.fft.fftn(x) * factor)
    return y if np.iscomplexobj(x) else y.real


def _at_turns(x: np.ndarray) -> np.ndarray:
    rows = (np.exp(-2j * np.pi * np.outer(t, np.arange(len(t)))) for t in TURNS)
    return np.einsum("ai,bj,ck,ijk->abc", *rows, x)


def _at_points(x: np.ndarray) -> np.ndarray:
    first, second, third = (np.exp(-2j * np.pi * np.outer(POINTS[:, d], np.arange(SHAPE[d]))) for d in AXES)
    return np.einsum("pi,pj,pk,ijk->p", first, second, third, x)


def _adjoint(c: np.ndarray) -> np.ndarray:
    waves = (np.exp(2j * np.pi * np.outer(POINTS[:, d], np.arange(SHAPE[d]))) for d in AXES)
    return np.einsum("pi,pj,pk,p->ijk", *waves, c)


def _type3(c: np.ndarray) -> np.ndarray:
    return np.exp(-2j * np.pi * POINTS @ POINTS.T) @ c


def _inverse(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return _filtered(x, np.where(SQUARE > 0, -1 / SQUARE, 0))


def _dct(x: np.ndarray) -> np.ndarray:
    for dim, n in enumerate(SHAPE):
        k = np.arange(n)
        x = np.moveaxis(np.tensordot(2 * np.cos(np.pi * np.outer(k, 2 * k + 1) / (2 * n)), x, (1, dim)), 0, dim)
    return x


def _smoothed(x: Array) -> Any:
    return mf.multiply_spectrum(x, lambda *waves: 1 / (1 + sum(k**2 for k in waves)))


def _moved(x: Array) -> Any:
    return mf.rfftn(x, out_spec=P("y", "x"))


def _convolved(x: np.ndarray) -> np.ndarray:
    return _filtered(x, np.fft.fftn(KERNEL, SHAPE, AXES))


KERNEL, SCATTERED = noise((3, 5, 4), "float32", 3), mf.Scattered.turns(POINTS)
ALL, LAST = P(("x", "y")), P(None, "x", "y")
Row = tuple[Callable[[Array], Any], Callable[[np.ndarray], np.ndarray], str, tuple[int, ...], P, P]
# The function, its truth in float64, the type, shape and spec of its array, and the spec of its result.
LINEAR: dict[str, Row] = {
    "fftn": (mf.fftn, np.fft.fftn, "complex64", SHAPE, SPEC, SPEC),
    "ifftn": (mf.ifftn, np.fft.ifftn, "complex64", SHAPE, SPEC, SPEC),
    "paper": (lambda x: mf.fftn(x, method="cooley-tukey"), np.fft.fftn, "complex64", SHAPE, SPEC, SPEC),
    "any": (lambda x: mf.fftn(x, order="any"), np.fft.fftn, "complex64", SHAPE, SPEC, SPEC),
    "out_spec": (_moved, np.fft.rfftn, "float32", (4, 6, 12), LAST, P("y", "x")),
    "rfftn": (mf.rfftn, np.fft.rfftn, "float32", SHAPE, SPEC, SPEC),
    "irfftn": (lambda x: mf.irfftn(mf.rfftn(x)), lambda x: x, "float32", (4, 6, 12), LAST, LAST),
    "kdftn": (lambda x: mf.kdftn(x, [*map(mf.Points.turns, TURNS)]), _at_turns, "complex64", SHAPE, SPEC, SPEC),
    "nufftn": (lambda x: mf.nufftn(x, SCATTERED), _at_points, "complex64", SHAPE, SPEC, ALL),
    "adjoint": (lambda c: mf.nufftn_adjoint(c, SCATTERED, SHAPE), _adjoint, "complex64", (16,), ALL, SPEC),
    "type 3": (lambda c: mf.nufftn_type3(c, POINTS, SCATTERED), _type3, "complex64", (16,), ALL, ALL),
    "dctn": (mf.dctn, _dct, "float32", SHAPE, SPEC, SPEC),
    "derivative": (lambda x: mf.derivative(x, 1), lambda x: _filtered(x, 1j * ODD), "float32", SHAPE, SPEC, SPEC),
    "poisson": (mf.poisson, _inverse, "float32", SHAPE, SPEC, SPEC),
    "filter": (_smoothed, lambda x: _filtered(x, 1 / (1 + SQUARE)), "float32", SHAPE, SPEC, SPEC),
    "shift": (mf.fftshift, lambda x: np.fft.fftshift(x), "float32", SHAPE, SPEC, SPEC),
    "convolve": (lambda x: mf.convolve(x, KERNEL), _convolved, "float32", SHAPE, SPEC, SPEC),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_value_transpose_sharding_and_collectives(name: str) -> None:
    """Catches a wrong number, a wrong transpose, a result that is cut otherwise, and a gather or a sum of data."""
    function, truth, kind, shape, start, end = LINEAR[name]
    x, other = noise(shape, kind), noise(shape, kind, 1)
    wide = complex if kind == "complex64" else float
    want, along = truth(x.astype(wide)), truth(other.astype(wide))
    ct = noise(want.shape, "complex64" if np.iscomplexobj(want) else "float32", 2)

    def both(x: Array, ct: Array) -> Any:
        y, back = jax.vjp(function, x)
        return y, x + back(ct)[0]  # as a step of a descent: XLA cuts it as x

    array, limit = _put(x, start), 2e-5 if name in ("nufftn", "adjoint", "type 3") else 1e-6
    program = jax.jit(both).lower(array, ct).compile()
    y, pulled = program(array, ct)
    assert error(y, want) <= limit and y.sharding.is_equivalent_to(NamedSharding(mesh((2, 4)), end), y.ndim)
    assert (
        pulled.shape == shape and pulled.dtype == x.dtype and pulled.sharding.is_equivalent_to(array.sharding, x.ndim)
    )
    paired, norms = np.sum((np.asarray(pulled).astype(wide) - x) * other), np.linalg.norm(ct) * np.linalg.norm(along)
    through = np.sum(ct * along)
    assert abs(paired - (through if wide is complex else through.real)) <= limit * norms
    assert not {"all-gather", "all-reduce"} & collectives(program).keys()


TRANSFORMED: dict[str, Callable[[Callable[[Array], Array]], Callable[[Array], Array]]] = {
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (2 * x,))[1] / 2,
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x]))[1] / 2,
    "vmap behind": lambda f: lambda x: jax.vmap(f, in_axes=-1)(jnp.stack([x, 2 * x], -1))[1] / 2,
    "spmd_axis_name": lambda f: lambda x: jax.vmap(f, spmd_axis_name="x")(jnp.stack([x, 2 * x]))[1] / 2,
    "nested vmap": lambda f: lambda x: jax.vmap(jax.vmap(f))(jnp.stack([jnp.stack([x] * 3)] * 2))[1, 2],
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (c, f(c)), x, None, 2)[1][1],
    "remat": jax.checkpoint,
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "gradient of energy": lambda f: lambda x: jax.grad(lambda x: 0.5 * (f(x) * x).sum())(x),
    "donated": lambda f: jax.jit(f, donate_argnums=0),
    "cond": lambda f: lambda x: jax.lax.cond(x[0, 0, 0] < jnp.inf, f, lambda x: x, x),
}


@pytest.mark.parametrize("how", TRANSFORMED)
def test_under_every_transformation(how: str) -> None:
    """Catches a rule that is missing, or that changes the number; a self-adjoint function is its own gradient."""
    x = noise(SHAPE, "float32")
    y = jax.jit(TRANSFORMED[how](mf.poisson))(_put(x))
    assert error(y, _inverse(x.astype(float))) <= 1e-6


def test_every_kind_of_array() -> None:
    """Catches a kind of placement that is refused, moved or wrong: replicated, on one device, constant, made inside."""
    devices, x = mesh((2, 4), AxisType.Auto), noise(SHAPE)
    want, run = np.fft.fftn(x.astype(complex)), jax.jit(mf.fftn)
    for array in (_put(x, P()), jnp.asarray(x), _put(x, P("y"))):
        y = run(array)
        assert error(y, want) <= 4e-7 and y.sharding.is_equivalent_to(array.sharding, 3)
    constant = _put(x)
    assert error(jax.jit(lambda: mf.fftn(constant))(), want) <= 4e-7
    made = jax.jit(lambda x: mf.fftn(jax.lax.with_sharding_constraint(2 * x, NamedSharding(devices, SPEC))))(x)
    assert error(made, 2 * want) <= 4e-7 and made.sharding.spec == SPEC
    with jax.set_mesh(devices):
        assert error(jax.jit(mf.fftn, in_shardings=SPEC)(x), want) <= 4e-7
    assert error(mf.fftn(_put(x)), want) <= 4e-7
    eager = jax.grad(lambda a: jnp.sum(abs(mf.fftn(a)) ** 2))(_put(x))
    assert error(eager, 2 * x.size * x.conj()) <= 4e-7


def test_beside_dot_products() -> None:
    """Catches an FFT that XLA gives an array of another order than rows first, which it then refuses to run on CPUs."""
    x = noise((4, 8, 8), "float32")
    loss = lambda u: jnp.vdot(u, u - mf.derivative(u, 2, order=2))  # noqa: E731
    want = np.vdot(x, x - _filtered(x, -((2 * np.pi * np.fft.fftfreq(8)) ** 2)))
    assert abs(jax.jit(loss)(_put(x)) - want) <= 1e-5 * want


def test_beside_explicit_axes() -> None:
    """Catches a type that lost its Explicit axis, and half a spectrum that the type cannot have."""
    devices = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    x = noise((4, 8, 12), "float32")
    array = _put(x, P("y", None, "x"), devices)
    energy = lambda x, **how: jnp.sum(abs(mf.rfftn(x, **how)) ** 2)  # noqa: E731
    with jax.set_mesh(devices):
        y = jax.jit(lambda x: mf.fftn(2 * x))(array)
        assert error(y, 2 * np.fft.fftn(x)) <= 4e-7 and y.sharding.spec == P("y", None, "x")
        pulled = jax.jit(jax.grad(functools.partial(energy, out_spec=P("y", "x"))))(array)
        want = jax.grad(lambda x: jnp.sum(abs(jnp.fft.rfftn(x)) ** 2))(jnp.asarray(x))
        assert error(pulled, want) <= 1e-6
        with pytest.raises(ValueError, match="give out_spec="):
            jax.jit(energy)(array)


def test_sizes_that_the_axes_do_not_divide() -> None:
    """Catches padding of XLA's that enters a result: half spectra, and odd sizes that XLA cuts within a program."""
    x = noise((4, 8, 12), "float32")  # half of 12 is 7 numbers, which 4 shards do not divide
    program = jax.jit(lambda x: mf.irfftn(3 * mf.rfftn(x))).lower(_put(x, P(None, "x", "y"))).compile()
    assert error(program(_put(x, P(None, "x", "y"))), 3 * x) <= 1e-6
    assert "all-gather" not in collectives(program)

    def odd(x: Array) -> Array:
        return jnp.pad(mf.fftn(x[:3, :7, :11]), ((0, 1), (0, 1), (0, 1)))

    want = np.pad(np.fft.fftn(x[:3, :7, :11]), ((0, 1), (0, 1), (0, 1)))
    for spec in (P("x", "y"), P("y", None, "x")):
        assert error(jax.jit(odd)(_put(x, spec)), want) <= 4e-7


def test_gradients_in_what_every_device_has() -> None:
    """Catches a cotangent that only one device knows, or that is counted once for each: kernels, factors, points."""
    x, t = noise((4, 6), "float32"), np.float32(0.3)
    stack = np.stack([x] * 4)
    batch, turns = _put(stack, P("y", "x")), np.asarray(TURNS[0], np.float32)
    decay = lambda t, k: jnp.exp(-t * k**2)  # noqa: E731
    losses: dict[str, tuple[Callable[..., Array], Any]] = {
        "kernel": (lambda b, x: jnp.sum(jax.vmap(lambda x: mf.convolve(x, b))(x) ** 2), KERNEL[:, 0]),
        "factor": (lambda t, x: jnp.sum(mf.multiply_spectrum(x, Partial(decay, t), axes=(2,)) ** 2), t),
        "points": (lambda t, x: jnp.sum(abs(mf.kdftn(x[0], mf.Points.turns(t), axes=(0,))) ** 2), turns),
    }
    for name, (loss, operand) in losses.items():
        found = jax.jit(jax.grad(loss))(operand, batch)
        want = jax.grad(loss)(jax.tree.map(jnp.asarray, operand), jnp.asarray(stack))
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
            assert error(one, other) <= 2e-5, name


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [None, 16.0])
def test_points_that_are_traced(capacity: float | None) -> None:
    """Catches a gather of an image or of values, with and without a capacity: coordinates alone are gathered."""
    x, turns = noise(SHAPE), POINTS.astype(np.float32)

    def both(x: Array, turns: Array) -> Any:
        loss = lambda turns: jnp.sum(abs(mf.nufftn(x, mf.Scattered.turns(turns), capacity=capacity)) ** 2)  # noqa: E731
        return mf.nufftn(x, mf.Scattered.turns(turns), capacity=capacity), jax.grad(loss)(turns)

    program = jax.jit(both).lower(_put(x), _put(turns, ALL)).compile()
    y, pulled = program(_put(x), _put(turns, ALL))
    rows = [np.exp(-2j * np.pi * np.outer(turns[:, d].astype(float), np.arange(SHAPE[d]))) for d in AXES]
    want = np.einsum("pi,pj,pk,ijk->p", *rows, x.astype(complex))
    slopes = [np.einsum("pi,pj,pk,ijk->p", *rows, x * np.arange(SHAPE[d]).reshape(line_shape(d, 3))) for d in AXES]
    assert error(y, want) <= 2e-6
    assert error(pulled, np.stack([2 * (np.conj(want) * -2j * np.pi * one).real for one in slopes], -1)) <= 2e-5
    assert collectives(program).get("all-gather", 0) <= 2


def test_gradients_of_a_batch() -> None:
    """Catches cotangents of one example that are summed over a batch, of all that are not, and second derivatives."""
    kernel, stack, kernels = KERNEL[0], noise((4, 6, 5), "float32"), noise((4, 2, 3), "float32", 1)
    of_each = jax.vmap(jax.grad(lambda kernel, x: jnp.sum(mf.convolve(x, kernel) ** 2)), (None, 0))
    of_all = jax.grad(lambda x, kernels: jnp.sum(jax.vmap(mf.convolve, (None, 0))(x, kernels) ** 2))
    of_power = jax.grad(lambda x: jnp.sum(mf.power_spectrum(x).power ** 2))
    twice = jax.grad(lambda x: jnp.vdot(of_power(x), x[::-1]))
    batches = _put(stack, P("y", "x")), _put(kernels, P("y"))
    for found, want in (
        (jax.jit(of_each)(kernel, batches[0]), of_each(jnp.asarray(kernel), jnp.asarray(stack))),
        (jax.jit(of_all)(stack[0], batches[1]), of_all(jnp.asarray(stack[0]), jnp.asarray(kernels))),
        (jax.jit(twice)(_put(stack[:, :, 0], P("x"))), twice(jnp.asarray(stack[:, :, 0]))),
    ):
        assert error(found, want) <= 1e-6


def test_a_kernel_as_large_as_a_block() -> None:
    """Catches a kernel that is taken for a block of one: each device would have its own part of it."""
    x, kernel = noise(SHAPE, "float32"), noise((2, 3, 10), "float32", 1)
    want = _filtered(x, np.fft.fftn(kernel, SHAPE, AXES))
    assert error(jax.jit(lambda x: mf.convolve(x, kernel))(_put(x)), want) <= 1e-6


def test_programs_of_one_shape_have_names() -> None:
    """Catches programs that JAX's compilation cache takes for one another, if it leaves pointers out of its keys."""
    x = _put(noise(SHAPE))
    texts = [jax.jit(lambda x, f=f: f(x)).lower(x).as_text() for f in (mf.fftn, mf.ifftn)]
    assert len({re.sub(r'backend_config = "\d+"', "", text) for text in texts}) == 2


def test_power_spectra() -> None:
    """Catches a sum over devices that its gradient takes twice, and a cross spectrum of arrays cut apart."""
    x, y = noise(SHAPE, "float32"), noise(SHAPE, "float32", 1)
    loss = lambda x, y: jnp.sum(mf.cross_spectrum(x, y).power ** 2 + mf.power_spectrum(x).power)  # noqa: E731
    found = jax.jit(jax.value_and_grad(loss, (0, 1)))(_put(x), _put(y, P(None, "x", None)))
    want = jax.value_and_grad(loss, (0, 1))(jnp.asarray(x), jnp.asarray(y))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        assert error(one, other) <= 1e-5


def test_what_is_refused() -> None:
    """Catches a traced array within a function that fails in XLA's callback, and a remedy that does not help."""
    x = _put(noise(SHAPE, "float32"))
    with pytest.raises(ValueError, match=r"give it as jax.tree_util.Partial\(f, array\)"):
        jax.jit(lambda x, t: mf.multiply_spectrum(x, lambda *k: jnp.exp(-t * k[0] ** 2)))(x, 0.5)
    with pytest.raises(ValueError, match="names mesh axis 'w'"):
        jax.jit(lambda x: mf.fftn(x, out_spec=P("w")))(x)
    with pytest.raises(ValueError, match="method 'fast' is unknown"):
        jax.jit(lambda x: mf.fftn(x, method="fast"))(x)
    with pytest.raises(TypeError, match="got no argument 'a'"):
        jax.jit(lambda x: mf.fftn(x=x))(x)  # type: ignore[call-overload]


def test_equal_calls_are_one_work() -> None:
    """Catches work that is made, and so compiled, anew for each of equal calls."""
    x = _put(noise(SHAPE))

    def work(axes: tuple[int, ...]) -> object:
        return jax.make_jaxpr(lambda x: mf.fftn(x, axes=axes))(x).eqns[0].params["work"]

    assert work((0, 1)) is work((0, 1)) and work((0, 1)) is not work((1, 2))


def test_an_array_that_changes_in_place() -> None:
    """Catches a call that is taken for one with other edges of its bins, because their array is the same object."""
    x, bins = noise((8, 8), "float32"), cast(Any, np.array([0.0, 1.0, 9.0]))
    run = jax.grad(lambda x: mf.power_spectrum(x, bins=bins).power[0])
    before = np.asarray(run(_put(x)))
    bins[1] = 3.0
    assert (
        error(run(_put(x)), np.asarray(jax.grad(lambda x: mf.power_spectrum(x, bins=bins).power[0])(jnp.asarray(x))))
        <= 1e-6
    )
    assert not np.allclose(before, run(_put(x)))
