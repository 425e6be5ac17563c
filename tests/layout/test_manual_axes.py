"""Transforms inside a caller's own shard_map, all mesh axes manual or some, against the same on the whole array."""

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
from reference import dft, error, mesh, noise
from shard_maps import AUTO, EXPLICIT, SHAPE, SPEC, hops, inside, mapped, only, put
from strategies import Case, cases

import meshfft as mf

METHODS = ("auto", "transpose", "cooley-tukey", "kdft")


@st.composite
def _manual_cases(draw: st.DrawFn) -> tuple[Case, tuple[str, ...]]:
    """A case whose sizes divide, some of its mesh axes, and a spec with these before others."""
    case = draw(cases(power=2))
    names = "xyzw"[: len(case.mesh)]
    manual = tuple(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    ordered = (tuple(sorted(axes or (), key=lambda axis: axis not in manual)) for axes in case.spec)
    return case._replace(spec=P(*(axes or None for axes in ordered))), manual


@given(_manual_cases(), st.sampled_from(METHODS), st.booleans(), st.integers(0, 2**31))
def test_value_sharding_and_collectives(drawn: tuple[Case, tuple[str, ...]], method: str, vma: bool, seed: int) -> None:
    """Catches a block taken for the array, an axis mapped twice or not at all, and any collective not in the plan."""
    case, manual = drawn
    devices, x = mesh(case.mesh), noise(case.shape, seed=seed)
    try:
        plan = mf.plan(case.shape, mesh=devices, spec=case.spec, axes=case.axes, method=method)
    except ValueError as refused:
        assert method in ("transpose", "cooley-tukey") and "use method='auto'" in str(refused)
        return
    a = put(x, devices, case.spec)
    run = inside(
        lambda block: mf.fftn(block, axes=case.axes, method=method, spec=case.spec),
        devices,
        manual,
        case.spec,
        check_vma=vma,
    )
    y = jax.jit(run)(a)
    assert error(y, dft(x, case.axes)) <= 4e-7
    assert y.sharding.is_equivalent_to(a.sharding, y.ndim)
    assert hops(run, a) == plan.collectives


WAYS = [(AUTO, "xyz", True), (AUTO, "xyz", False), (EXPLICIT, "xyz", True), (AUTO, "x", True), (AUTO, "yz", False)]
GRADIENTS = [
    *((*way, method) for way in WAYS for method in METHODS[1:]),
    *((EXPLICIT, "y", True, method) for method in ("transpose", "kdft")),
]


@pytest.mark.quick(3, 9)
@pytest.mark.parametrize(("kind", "manual", "vma", "method"), GRADIENTS)
def test_gradients_are_those_of_the_whole_array(kind: AxisType, manual: str, vma: bool, method: str) -> None:
    """Catches cotangents summed once too often or not at all, and a derivative that is not taken on blocks."""
    x, t, weights = noise(SHAPE), noise(SHAPE, seed=1), noise(SHAPE, "float32", 2) ** 2
    if method == "cooley-tukey":
        x, t, weights = (v[:, :8] for v in (x, t, weights))
    devices = mesh((2, 2, 2), kind)
    run = inside(lambda b: mf.fftn(b, method=method, spec=SPEC), devices, manual, SPEC, check_vma=vma)

    def loss(a: Array, transform: Any) -> Array:
        return jnp.sum(jnp.abs(transform(a)) ** 2 * weights)

    with jax.set_mesh(devices):
        a, da = put(x, devices), put(t, devices)
        gradient, slope = jax.jit(lambda a, da: (jax.grad(loss)(a, run), jax.jvp(run, (a,), (da,))[1]))(a, da)
    assert error(gradient, np.asarray(jax.grad(loss)(jnp.asarray(x), jnp.fft.fftn))) <= 2e-6
    assert error(slope, dft(t, (0, 1, 2))) <= 4e-7


@pytest.mark.quick(0)
@pytest.mark.parametrize("method", METHODS)
def test_gradient_inside_has_the_plans_collectives(method: str) -> None:
    """Catches a gradient taken by every device for itself, or one that gathers."""
    devices, x = mesh((2, 2, 2)), noise((8, 8, 8))
    plan = mf.plan((8, 8, 8), mesh=devices, spec=SPEC, method=method)

    def pull(block: Array, ct: Array) -> Array:
        return jax.vjp(lambda b: mf.fftn(b, method=method, spec=SPEC), block)[1](ct)[0]

    for manual in ("xyz", "xz"):
        cut = only(SPEC, manual)
        run, a = mapped(pull, devices, manual, (cut, cut), cut), put(x, devices)
        assert error(jax.jit(run)(a, a), dft(x, (0, 1, 2))) <= 4e-7
        assert hops(run, a, a) == plan.collectives


@pytest.mark.parametrize("given_spec", [P("x"), SPEC])
def test_explicit_rest_is_read_from_the_type(given_spec: P) -> None:
    """Catches a spec asked for where JAX shows it; JAX gathers at the edge of such a shard_map, the walk must not."""
    devices, x = mesh((2, 2, 2), EXPLICIT), noise(SHAPE)
    a, plan = put(x, devices), mf.plan(SHAPE, mesh=devices, spec=SPEC)
    run = inside(lambda b: mf.fftn(b, spec=given_spec), devices, "x", SPEC)
    y = jax.jit(run)(a)
    assert error(y, dft(x, (0, 1, 2))) <= 4e-7 and y.sharding.is_equivalent_to(a.sharding, 3)
    bare = hops(inside(lambda b: 2 * b, devices, "x", SPEC), a)
    assert {name: n - bare.get(name, 0) for name, n in hops(run, a).items() if n > bare.get(name, 0)} == (
        plan.collectives
    )


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_axes_not_named_are_local(kind: AxisType) -> None:
    """Catches a block transformed as part of an array that the caller did not speak of."""
    devices, x = mesh((2, 2, 2), kind), noise(SHAPE)
    a, blocks = put(x, devices), x.reshape(2, 4, 2, 6, 2, 8)
    every = jax.jit(inside(mf.fftn, devices, "xyz", SPEC))(a)
    assert error(every, dft(blocks, (1, 3, 5)).reshape(SHAPE)) <= 4e-7
    rest = None if kind == EXPLICIT else P(None, "y", "z")
    some = jax.jit(inside(lambda b: mf.fftn(b, spec=rest), devices, "x", SPEC))(a)
    assert error(some, dft(x.reshape(2, 4, 12, 16), (1, 2, 3)).reshape(SHAPE)) <= 4e-7


def test_lengths_are_those_of_the_whole_array() -> None:
    """Catches s, norm or a repeated axis read against the block."""
    devices, x = mesh((2, 4)), noise((8, 16))
    a, cut = put(x, devices, P("x", "y")), P("x", "y")
    resized = {"s": (6, 24), "axes": (0, 1)}, {"s": (8, -1), "axes": (1, 0)}, {"s": (4, 8), "axes": (1, 1)}
    for options in (*resized, {"norm": "ortho"}, {"axes": (0, 0)}):
        for name in ("fftn", "ifftn"):
            body = lambda b, name=name, options=options: getattr(mf, name)(b, spec=cut, **options)  # noqa: E731
            y = jax.jit(inside(body, devices, "xy", cut))(a)
            assert error(y, getattr(np.fft, name)(x.astype(complex), **options)) <= 4e-7, options


def test_what_the_result_varies_over() -> None:
    """Catches a result marked as varying over too many axes, which out_specs then refuse, or too few; and inputs that
    do not vary over an axis that cuts them."""
    devices, x = mesh((2, 4)), noise((4, 6))
    found: list[frozenset[str]] = []

    def body(block: Array, constant: Array) -> tuple[Array, Array]:
        y, z = mf.fftn(block, spec=P("x")), mf.fftn(constant, spec=P(None, "y"))
        found.extend(jax.typeof(v).manual_axis_type.varying for v in (y, z))
        return y, z

    run = mapped(body, devices, "xy", (P("x"), P()), (P("x"), P(None, "y")))
    y, z = jax.jit(run)(put(x, devices, P("x")), x)
    assert set(found) == {frozenset("x"), frozenset("y")}
    assert error(y, dft(x, (0, 1))) <= 4e-7
    assert error(z, dft(np.concatenate([x] * 4, 1), (0, 1))) <= 4e-7
    closed = mapped(lambda: mf.fftn(jnp.asarray(x), spec=P("x")) + mf.fftn(x, spec=P("x")), devices, "xy", (), P("x"))
    assert error(jax.jit(closed)(), 2 * dft(np.concatenate([x] * 2), (0, 1))) <= 4e-7


@pytest.mark.quick(0)
@pytest.mark.parametrize("vma", [True, False])
@pytest.mark.parametrize("manual", ["xy", "x"])
def test_vmap_and_scan(manual: str, vma: bool) -> None:
    """Catches a batch dimension that shifts the block's spec, and a carry whose type changes."""
    devices, x, spec = mesh((2, 4)), noise((3, 8, 16)), P(None, "x", "y")
    a = put(x, devices, spec)

    def each(block: Array) -> Array:
        return jax.vmap(lambda b: mf.fftn(b, spec=P("x", "y")), 2, 2)(block.swapaxes(0, 1).swapaxes(1, 2))

    def turned(block: Array) -> Array:
        return each(block).swapaxes(1, 2).swapaxes(0, 1)

    truth = dft(x, (1, 2))
    assert error(jax.jit(inside(turned, devices, manual, spec, check_vma=vma))(a), truth) <= 4e-7
    one = inside(lambda b: mf.fftn(b, spec=P("x", "y")), devices, manual, P("x", "y"), check_vma=vma)
    assert error(jax.jit(jax.vmap(one))(a), truth) <= 4e-7

    def there_and_back(carry: Array, _: None) -> tuple[Array, None]:
        return mf.ifftn(mf.fftn(carry, axes=(1, 2), spec=spec), axes=(1, 2), spec=spec), None

    run = inside(lambda b: jax.lax.scan(there_and_back, b, None, length=3)[0], devices, manual, spec, check_vma=vma)
    assert error(jax.jit(run)(a), x) <= 1e-6


def test_vmap_that_names_a_mapped_axis() -> None:
    """Catches a batch that shard_map has cut already, cut again by the name that vmap gives."""
    devices, x, spec = mesh((2, 4)), noise((8, 6, 5)), P("y", "x")
    a = put(x, devices, spec)
    for manual in ("xy", "x"):
        one = inside(lambda b: mf.fftn(b, spec=P("x")), devices, manual, P("x"))
        run = jax.vmap(one, spmd_axis_name="y") if manual == "xy" else jax.vmap(one)
        assert error(jax.jit(run)(a), dft(x, (1, 2))) <= 4e-7


def test_eager_shard_map() -> None:
    """Catches a primitive that only a traced shard_map can take."""
    devices, x = mesh((2, 2, 2)), noise(SHAPE)
    for manual, vma in (("xyz", True), ("xyz", False), ("x", True)):
        y = inside(lambda b: mf.fftn(b, spec=SPEC), devices, manual, SPEC, check_vma=vma)(put(x, devices))
        assert error(y, dft(x, (0, 1, 2))) <= 4e-7


def test_planes() -> None:
    """Catches two planes if only one of them is cut, or made to vary."""
    devices, x = mesh((2, 4)), noise((8, 16))
    re, im = (put(part, devices, P("x", "y")) for part in (x.real, x.imag))

    def body(*planes: Array) -> tuple[Array, ...]:
        y: Any = mf.fftn(planes, spec=P("x", "y"))
        return tuple(y)

    for manual in ("xy", "y"):
        cut = only(P("x", "y"), manual)
        run = mapped(body, devices, manual, (cut, cut), (cut, cut))
        y = jax.jit(run)(re, im)
        assert error(jax.lax.complex(*y), dft(x, (0, 1))) <= 4e-7


@pytest.mark.quick(1)
@pytest.mark.parametrize("order", ["natural", "any"])
def test_plans_inside(order: str) -> None:
    """Catches a plan that takes the block for its array; padded sizes and any order, since the plan knows out_specs."""
    devices, x, shape = mesh((2, 4)), noise((7, 9, 5)), (7, 9, 5)
    plan = mf.plan(shape, mesh=devices, spec=P("x", "y"), order=order)
    before, after = plan.in_layout.spec, plan.out_layout.spec
    a: Any = mf.shard(x, devices, before)
    forward = mapped(plan, devices, "xy", before, after)
    assert error(mf.gather(jax.jit(forward)(a)), dft(x, (0, 1, 2))) <= 4e-7
    assert hops(forward, a) == plan.collectives
    there = jax.jit(mapped(lambda b: plan.inverse(plan(b)), devices, "xy", before, before))(a)
    assert error(mf.gather(there), x) <= 1e-6
    solved = mapped(lambda b: plan.solve(plan(b)).residual, devices, "xy", before, P())
    assert order == "any" or float(jax.jit(solved)(a)) <= 1e-6


def test_plans_partly_inside() -> None:
    """Catches a plan that maps the manual axes again."""
    devices, x = mesh((2, 2, 2)), noise(SHAPE)
    plan = mf.plan(SHAPE, mesh=devices, spec=SPEC)
    assert error(jax.jit(inside(plan, devices, "y", SPEC))(put(x, devices)), dft(x, (0, 1, 2))) <= 4e-7


def _refused(spec: Any, manual: str, kind: AxisType = AUTO, where: P = SPEC, **options: Any) -> Callable[[], Any]:
    """A transform inside shard_map, of an array cut as `where`."""

    def call() -> Any:
        devices = mesh((2, 2, 2), kind)
        body = options.pop("body", lambda b: mf.fftn(b, spec=spec, **options))
        return jax.jit(inside(body, devices, manual, where))(put(noise(SHAPE), devices, where))

    return call


TALL = P(("y", "x"), None, "z")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "order": (
        _refused(SPEC, "xyz", order="any"),
        "order 'any' inside shard_map .* call a plan inside, and take out_specs=plan.out_layout.spec",
    ),
    "out_spec": (_refused(SPEC, "xyz", out_spec=P("x")), "name the same axes"),
    "out_spec behind": (_refused(SPEC, "x", out_spec=P(None, ("y", "x"), "z")), "manual axes behind others"),
    "hidden": (_refused(None, "x"), r"hidden under Auto mesh axes \(y, z\): pass spec="),
    "behind": (_refused(TALL, "x", where=P(("x", "y"), None, "z")), r"manual axes behind others.*give .*'x', 'y'"),
    "unknown": (_refused(P("w"), "xyz"), "names mesh axis 'w'; the mesh has x=2, y=2, z=2"),
    "other": (_refused(P("x", "z"), "x", EXPLICIT), r"but the array is sharded as .*drop spec="),
    "block": (
        _refused(None, "xyz", body=mf.plan((8, 8, 8), mesh=mesh((2, 2, 2)), spec=SPEC)),
        r"has shape \(4, 6, 8\), inside shard_map the plan takes \(4, 4, 4\)",
    ),
    "mesh": (_refused(None, "xyz", body=mf.plan(SHAPE, mesh=mesh((2, 4)), spec=P("x"))), "plan's mesh has .* one mesh"),
    "plan behind": (
        _refused(None, "x", where=P("x"), body=mf.plan(SHAPE, mesh=mesh((2, 2, 2)), spec=P(("y", "x")))),
        "manual axes behind others, but they cut first",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refusals_say_what_to_do(case: str) -> None:
    """Catches a result in a layout that the caller cannot know, and an error that leaves the reader guessing."""
    call, words = REFUSED[case]
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.more
@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_disjoint_meshes_at_once(kind: AxisType) -> None:
    """Catches a cache that takes one mesh for another of the same shape, and calls that wait for one another."""
    halves = [
        jax.make_mesh((2, 2), ("x", "y"), (kind, kind), devices=jax.devices()[4 * half : 4 * half + 4])
        for half in (0, 1)
    ]
    plans = [mf.plan((8, 12), mesh=half, spec=P("x", "y"), order="any") for half in halves]
    for turn in range(3):
        inputs = [noise((8, 12), seed=2 * turn + half) for half in (0, 1)]
        arrays = [put(x, half, P("x", "y")) for x, half in zip(inputs, halves, strict=True)]
        spectra = [mf.fftn(a) for a in arrays]
        traced = [jax.jit(lambda a: mf.fftn(a, spec=P("x", "y")))(a) for a in reversed(arrays)][::-1]
        back = [mf.ifftn(y) for y in spectra]
        planned = [plan(a) for plan, a in zip(plans, arrays, strict=True)]
        for x, a, y, z, b, p in zip(inputs, arrays, spectra, traced, back, planned, strict=True):
            assert error(y, dft(x, (0, 1))) <= 4e-7 and error(z, dft(x, (0, 1))) <= 4e-7
            assert error(p, dft(x, (0, 1))) <= 4e-7 and error(b, x) <= 1e-6
            assert all(v.sharding.is_equivalent_to(a.sharding, 2) for v in (y, z, b)) and p.devices() == a.devices()


@pytest.mark.parametrize("kinds", [(AxisType.Explicit,) * 2, (AxisType.Auto, AxisType.Explicit)])
@pytest.mark.parametrize("name", ["fft", "irfft", "rfft"])
def test_an_explicit_axis_outside_the_shard_map(name: str, kinds: tuple[AxisType, ...]) -> None:
    """Catches a block whose order XLA's FFT refuses (RET_CHECK failure): other axes cut it, in the program around."""
    over = jax.make_mesh((2, 4), ("x", "y"), axis_types=kinds)
    x = noise((8, 16, 12), "float32" if name == "rfft" else "complex64")
    with jax.set_mesh(over):
        cut = jax.device_put(x, NamedSharding(over, P("x", "y")))
        run = jax.shard_map(getattr(mf, name), mesh=over, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
        assert error(jax.jit(run)(cut), getattr(np.fft, name)(x)) <= 4e-7
