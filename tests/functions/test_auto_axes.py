"""Calls on arrays whose cuts JAX hides, under Auto mesh axes: values, shardings, derivatives, batches, collectives."""

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from auto_axes import (
    ALL,
    AXES,
    FUNCTIONS,
    GROUPS,
    KERNEL,
    PLACES,
    POINTS,
    SHAPE,
    SPEC,
    TRANSFORMATIONS,
    TURNS,
    check,
    filtered,
    put,
    refusals,
    table_row,
    transformed,
)
from jax import Array
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import Partial
from marks import slow_but
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import line_shape

PAGE = Path(__file__).parent.parent.parent / "docs" / "inside.md"
REASONS = dict(re.findall(r"^- \(([a-z])\) `(.*?)`", PAGE.read_text(), re.M))
OTHERS = [*TRANSFORMATIONS][1:]
ROWS = PAGE.read_text().split("| function | transformations |")[1].split("\n\n")[0].splitlines()[2:]
EVERYWHERE, SOMEWHERE = ROWS[0].split("|")[1].strip("` ").split("`, `"), ROWS[1:]
SOME = ["fftn", "rfftn", "irfftn", "dctn", "fftshift", "kdftn", "derivative", "poisson", "multiply_spectrum", "fft"]
SOME += ["convolve", "nufftn_adjoint"]  # each with another transformation


@pytest.mark.quick(4, 10)
@pytest.mark.parametrize(("name", "other"), [*zip(SOME, OTHERS, strict=True)])
def test_values_shardings_and_collectives(name: str, other: str) -> None:
    """Catches a wrong number or derivative, a result that is cut otherwise, and a gather or a sum of data."""
    y = transformed(name, ("jit", other))
    check(name, "jit", y["jit"])
    check(name, other, y[other])
    assert y["jit"].sharding.is_equivalent_to(NamedSharding(mesh((2, 4)), FUNCTIONS[name].end), y["jit"].ndim)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", slow_but(["fftn"], FUNCTIONS))
def test_the_table(name: str) -> None:
    """Catches a wrong cell of the page: a refusal, another reason, a wrong number, a gather."""
    columns = tuple(itertools.chain(*GROUPS)) if name != "fftn" else (*OTHERS, *PLACES)
    refused = refusals(name, columns)
    assert (name in EVERYWHERE) == (not refused)
    assert not refused or table_row(name, refused, REASONS) in SOMEWHERE


def test_the_table_has_its_rows() -> None:
    """Catches a function of the page that no test runs, or the other way round, and columns that are not there."""
    assert sorted([*EVERYWHERE, *(line.split("`")[1] for line in SOMEWHERE)]) == sorted(FUNCTIONS)
    words = " ".join(PAGE.read_text().split())
    assert all(one in words for group in GROUPS for one in group)


def test_every_kind_of_array() -> None:
    """Catches a kind of placement that is refused, moved or wrong: replicated, made inside, by the context, eager."""
    devices, x = mesh((2, 4), AxisType.Auto), noise(SHAPE)
    want = np.fft.fftn(x.astype(complex))
    assert jax.jit(mf.fftn)(put(x, P())).sharding.is_fully_replicated
    made = jax.jit(lambda x: mf.fftn(jax.lax.with_sharding_constraint(2 * x, NamedSharding(devices, SPEC))))(x)
    assert error(made, 2 * want) <= 4e-7 and made.sharding.spec == SPEC
    with jax.set_mesh(devices):
        assert error(jax.jit(mf.fftn, in_shardings=SPEC)(x), want) <= 4e-7
    assert error(mf.fftn(put(x)), want) <= 4e-7
    eager = jax.grad(lambda a: jnp.sum(abs(mf.fftn(a)) ** 2))(put(x))
    assert error(eager, 2 * x.size * x.conj()) <= 4e-7


def test_beside_dot_products() -> None:
    """Catches an FFT that XLA gives an array of another order than rows first, which it then refuses to run on CPUs."""
    x = noise((4, 8, 8), "float32")
    loss = lambda u: jnp.vdot(u, u - mf.derivative(u, 2, order=2))  # noqa: E731
    want = np.vdot(x, x - filtered(x, -((2 * np.pi * np.fft.fftfreq(8)) ** 2)))
    assert abs(jax.jit(loss)(put(x)) - want) <= 1e-5 * want


def test_beside_explicit_axes() -> None:
    """Catches a type that lost its Explicit axis, and half a spectrum that the type cannot have."""
    devices = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
    x = noise((4, 8, 12), "float32")
    array = put(x, P("y", None, "x"), devices)
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
    program = jax.jit(lambda x: mf.irfftn(3 * mf.rfftn(x))).lower(put(x, P(None, "x", "y"))).compile()
    assert error(program(put(x, P(None, "x", "y"))), 3 * x) <= 1e-6
    assert "all-gather" not in collectives(program)

    def odd(x: Array) -> Array:
        return jnp.pad(mf.fftn(x[:3, :7, :11]), ((0, 1), (0, 1), (0, 1)))

    want = np.pad(np.fft.fftn(x[:3, :7, :11]), ((0, 1), (0, 1), (0, 1)))
    for spec in (P("x", "y"), P("y", None, "x")):
        assert error(jax.jit(odd)(put(x, spec)), want) <= 4e-7


@pytest.mark.more
@pytest.mark.parametrize("name", slow_but(["kernel"], ["kernel", "factor", "points"]))
def test_gradients_in_what_every_device_has(name: str) -> None:
    """Catches a cotangent that only one device knows, or that is counted once for each: kernels, factors, points."""
    x, t = noise((4, 6), "float32"), np.float32(0.3)
    stack = np.stack([x] * 4)
    batch, turns = put(stack, P("y", "x")), np.asarray(TURNS[:4], np.float32)
    decay = lambda t, k: jnp.exp(-t * k**2)  # noqa: E731
    losses: dict[str, tuple[Callable[..., Array], Any]] = {
        "kernel": (lambda b, x: jnp.sum(jax.vmap(lambda x: mf.convolve(x, b))(x) ** 2), KERNEL[:, 0]),
        "factor": (lambda t, x: jnp.sum(mf.multiply_spectrum(x, Partial(decay, t), axes=(2,)) ** 2), t),
        "points": (lambda t, x: jnp.sum(abs(mf.kdftn(x[0], mf.Points.turns(t), axes=(0,))) ** 2), turns),
    }
    loss, operand = losses[name]
    found, want = jax.jit(jax.grad(loss))(operand, batch), jax.grad(loss)(jnp.asarray(operand), jnp.asarray(stack))
    assert error(found, np.asarray(want)) <= 2e-5


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [None, 16.0])
def test_points_that_are_traced(capacity: float | None) -> None:
    """Catches a gather of an image or of values, with and without a capacity: coordinates alone are gathered."""
    x, turns = noise(SHAPE), POINTS.astype(np.float32)

    def both(x: Array, turns: Array) -> Any:
        loss = lambda turns: jnp.sum(abs(mf.nufftn(x, mf.Scattered.turns(turns), capacity=capacity)) ** 2)  # noqa: E731
        return mf.nufftn(x, mf.Scattered.turns(turns), capacity=capacity), jax.grad(loss)(turns)

    program = jax.jit(both).lower(put(x), put(turns, ALL)).compile()
    y, pulled = program(put(x), put(turns, ALL))
    rows = [np.exp(-2j * np.pi * np.outer(turns[:, d].astype(float), np.arange(SHAPE[d]))) for d in AXES]
    want = np.einsum("pi,pj,pk,ijk->p", *rows, x.astype(complex))
    slopes = [np.einsum("pi,pj,pk,ijk->p", *rows, x * np.arange(SHAPE[d]).reshape(line_shape(d, 3))) for d in AXES]
    assert error(y, want) <= 2e-6
    assert error(pulled, np.stack([2 * (np.conj(want) * -2j * np.pi * one).real for one in slopes], -1)) <= 2e-5
    assert collectives(program).get("all-gather", 0) <= 2


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "of each": jax.vmap(jax.grad(lambda kernel, x: jnp.sum(mf.convolve(x, kernel) ** 2)), (None, 0)),
    "of all": jax.grad(lambda x, kernels: jnp.sum(jax.vmap(mf.convolve, (None, 0))(x, kernels) ** 2)),
    "twice": jax.grad(lambda x, y: jnp.vdot(jax.grad(lambda x: jnp.sum(mf.power_spectrum(x).power ** 2))(x), y)),
}


@pytest.mark.more
@pytest.mark.parametrize("name", slow_but(["of each"], GRADIENTS))
def test_gradients_of_a_batch(name: str) -> None:
    """Catches cotangents of one example that are summed over a batch, of all that are not, and second derivatives."""
    kernel, stack, kernels = KERNEL[0], noise((4, 6, 5), "float32"), noise((4, 2, 3), "float32", 1)
    lines = stack[:, :, 0]
    one, other, specs = {
        "of each": (kernel, stack, (P(), P("y", "x"))),
        "of all": (stack[0], kernels, (P(), P("y"))),
        "twice": (lines, lines[::-1], (P("x"), P("x"))),
    }[name]
    found = jax.jit(GRADIENTS[name])(put(one, specs[0]), put(other, specs[1]))
    assert error(found, GRADIENTS[name](jnp.asarray(one), jnp.asarray(other))) <= 1e-6


@pytest.mark.slow
def test_the_inverse_at_points() -> None:
    """Catches integers among results, which have no derivatives, and a solution that only one device has."""
    x, ct = noise(SHAPE), noise(SHAPE, seed=1)

    def both(x: Array) -> Any:
        y, back = jax.vjp(lambda x: mf.ikdftn(x, axes=(1,)).value, x)
        return y, back(jnp.asarray(ct))[0]

    y, pulled = jax.jit(both)(put(x))
    assert error(y, np.fft.ifft(x, axis=1)) <= 1e-6 and error(pulled, np.fft.ifft(ct, axis=1)) <= 1e-6


def test_a_spec_for_the_result() -> None:
    """Catches a result that is not cut as asked, a wrong derivative, and a gather of what moves."""
    x, ct = noise((4, 6, 12), "float32"), noise((4, 6, 7), seed=1)

    def both(x: Array) -> Any:
        y, back = jax.vjp(lambda x: mf.rfftn(x, out_spec=P("y", "x")), x)
        return y, x + back(jnp.asarray(ct))[0]  # as a step of a descent: XLA cuts it as x

    array = put(x, P(None, "x", "y"))
    program = jax.jit(both).lower(array).compile()
    y, pulled = program(array)
    assert error(y, np.fft.rfftn(x)) <= 1e-6 and y.sharding.is_equivalent_to(
        NamedSharding(mesh((2, 4)), P("y", "x")), 3
    )
    want = jax.vjp(jnp.fft.rfftn, jnp.asarray(x))[1](jnp.asarray(ct))[0]
    assert error(pulled, x + np.asarray(want)) <= 1e-6 and "all-gather" not in collectives(program)


def test_a_kernel_as_large_as_a_block() -> None:
    """Catches a kernel that is taken for a block of one: each device would have its own part of it."""
    x, kernel = noise(SHAPE, "float32"), noise((2, 3, 10), "float32", 1)
    want = filtered(x, np.fft.fftn(kernel, SHAPE, AXES))
    assert error(jax.jit(lambda x: mf.convolve(x, kernel))(put(x)), want) <= 1e-6


def test_programs_have_names_by_content() -> None:
    """Catches programs that JAX's compilation cache takes for one another, or equal ones that it never finds."""
    x, scale = put(noise(SHAPE)), 1.0
    calls: list[Callable[[Array], Any]] = [
        mf.fftn,
        mf.ifftn,
        lambda x: mf.fftn(x, wire="int16"),
        lambda x: mf.convolve(x, KERNEL),
        lambda x: mf.convolve(x, 2 * KERNEL),
        lambda x: mf.multiply_spectrum(x, lambda *k: scale / (1 + k[0] ** 2)),
    ]

    def names() -> list[str]:
        texts = (jax.jit(lambda x, f=f: f(x)).lower(x).as_text() for f in calls)
        return [re.sub(r'backend_config = "\d+"', "", text) for text in texts]

    first, _, scale = names(), jax.clear_caches(), 2.0
    assert len(set(first)) == len(calls)
    assert [one == other for one, other in zip(first, names(), strict=True)] == [True] * 5 + [False]


def test_what_tpus_refuse() -> None:
    """Catches a program that the TPU compiler refuses in its own words: it asks nobody how to cut an array."""
    kind = AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    described = AbstractMesh((2, 4), ("x", "y"), (AxisType.Auto,) * 2, abstract_device=kind)
    x = jax.ShapeDtypeStruct(SHAPE, "complex64", sharding=NamedSharding(described, SPEC))
    with pytest.raises(NotImplementedError, match="pass spec="):
        jax.eval_shape(mf.fftn, x)


@pytest.mark.more
def test_cross_spectra() -> None:
    """Catches a sum over devices that its gradient takes twice, and a cross spectrum of arrays cut apart."""
    x, y = noise(SHAPE, "float32"), noise(SHAPE, "float32", 1)
    loss = lambda x, y: jnp.sum(mf.cross_spectrum(x, y).power ** 2)  # noqa: E731
    found = jax.jit(jax.value_and_grad(loss, (0, 1)))(put(x), put(y, P(None, "x", None)))
    want = jax.value_and_grad(loss, (0, 1))(jnp.asarray(x), jnp.asarray(y))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        assert error(one, other) <= 1e-5


def test_what_is_refused() -> None:
    """Catches a traced array within a function that fails in XLA's callback, and a remedy that does not help."""
    x = put(noise(SHAPE, "float32"))
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
    x = put(noise(SHAPE))

    def work(axes: tuple[int, ...]) -> object:
        return jax.make_jaxpr(lambda x: mf.fftn(x, axes=axes))(x).eqns[0].params["work"]

    assert work((0, 1)) is work((0, 1)) and work((0, 1)) is not work((1, 2))


@pytest.mark.more
def test_an_array_that_changes_in_place() -> None:
    """Catches a call that is taken for one with other edges of its bins, because their array is the same object."""
    x, bins = noise((8, 8), "float32"), cast(Any, np.array([0.0, 1.0, 9.0]))
    run = jax.grad(lambda x: mf.power_spectrum(x, bins=bins).power[0])
    before = np.asarray(run(put(x)))
    bins[1] = 3.0
    assert not np.allclose(before, run(put(x)))
