"""NumPy's methods of padded arrays: reductions, slices, where, refusals and what notebooks show, against NumPy."""

import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from reference import mesh, noise
from shard_maps import hops, mapped

import meshfft as mf

KINDS = [
    pytest.param(AxisType.Auto, id="auto"),
    pytest.param(AxisType.Explicit, id="explicit", marks=(pytest.mark.slow, pytest.mark.more)),
]
SHAPE, SPEC = (7, 5, 6), P("x", "y")
HOW = ("sum", "mean", "max", "min")
AXES = (None, 0, 1, 2, (0, 1), (-1, 0), ())


def _numbers(dtype: str, lost: float = 0.0) -> np.ndarray:
    draw = np.random.default_rng(3)
    if dtype == "bool":
        return draw.random(SHAPE) < 0.5
    x = draw.integers(-9, 9, SHAPE).astype(dtype) if dtype[0] in "iu" else draw.standard_normal(SHAPE).astype(dtype)
    x = x + 1j * draw.standard_normal(SHAPE).astype("float32") if dtype == "complex64" else x
    if lost:
        x[6, 4, 5], x[0, 1, 2] = lost, lost
    return x.astype(dtype)


def _put(x: np.ndarray, kind: AxisType = AxisType.Auto) -> Any:
    return mf.shard(x, mesh((2, 4), kind), SPEC)


class _Numpy(np.ndarray):
    """A NumPy array with `where`."""

    def where(self, condition: Any, other: float) -> np.ndarray:
        return np.where(condition, self, other)


def _same(found: Any, expected: np.ndarray, exact: bool = False) -> None:
    assert found.shape == expected.shape
    assert not isinstance(found, mf.PaddedArray) or np.count_nonzero(found.stored) <= expected.size
    np.testing.assert_allclose(mf.gather(found), expected, rtol=0 if exact else 2e-6, atol=0 if exact else 2e-6)


CASES = [("float32", 0.0), ("float32", np.nan), ("float32", np.inf), ("float32", -np.inf), ("complex64", 0.0)]
CASES += [("complex64", np.nan), ("int32", 0.0), ("int8", 0.0), ("uint8", 0.0), ("bool", 0.0)]


@pytest.mark.quick(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "lost"), CASES)
def test_reductions_are_those_of_the_logical_elements(dtype: str, lost: float, kind: AxisType) -> None:
    """Catches zeros of the padding as the least or largest, counted in a mean, NaN lost, and a wrong type or shape."""
    x = _numbers(dtype, lost)
    a = _put(x, kind)
    x = x - 20 if dtype == "int32" else x  # all negative: 0 would be the largest
    a = a - 20 if dtype == "int32" else a
    axes = AXES[:: 1 if dtype == "float32" and not lost else 3]
    cases = [*itertools.product(HOW if dtype != "complex64" else HOW[:2], axes, (False, True))]

    def every(v: Any) -> list[Any]:
        return [getattr(v, how)(axis=axis, keepdims=keep) for how, axis, keep in cases]

    with jax.set_mesh(mesh((2, 4), kind)):
        found = jax.jit(every)(a)
    for y, one, (how, axis, keep) in zip(found, jax.eval_shape(every, x), cases, strict=True):
        wide = {"dtype": "complex128" if dtype == "complex64" else "float64"} if how == "mean" else {}
        _same(y, getattr(x, how)(axis=axis, keepdims=keep, **wide))
        assert y.dtype == one.dtype, "jax.numpy's"
    _same(a.sum(axis=0), x.sum(axis=0))  # without jit


def test_numpys_functions_reduce_it_where_it_lies() -> None:
    """Catches np.mean(y), which brought the whole array to the host."""
    x = _numbers("float32")
    a = _put(x, AxisType.Explicit)
    for name in HOW:
        y = getattr(np, name)(a, axis=0)
        assert isinstance(y, mf.PaddedArray) and y.spec == P("y", None)
        _same(y, getattr(np, name)(x, axis=0))
    assert a.astype("bfloat16").mean().dtype == jnp.bfloat16


def test_means_have_the_types_of_jax_numpy() -> None:
    """Catches float64 from int8 under 64-bit types, where `jnp.mean` has float32."""
    with jax.enable_x64(True):
        for dtype in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "complex64"):
            x = np.arange(7).astype(dtype)
            y = mf.shard(x, mesh((8,)), P("x")).mean()
            assert y.dtype == jnp.mean(x).dtype and abs(y - jnp.mean(x)) < 1e-2, dtype


def test_half_precision_is_summed_in_single() -> None:
    """Catches a mean that stops growing at 2048, or overflows."""
    x = np.full((9001,), 9.0, "float16")
    assert float(mf.gather(mf.shard(x, mesh((8,)), P("x")).mean())) == 9.0


INDICES: list[Any] = [
    np.s_[2], np.s_[2:5], np.s_[::-1], np.s_[..., 1], np.s_[:, 3], np.s_[1:6:2, ::-2], np.s_[-1, None, 2:], np.s_[3:3],
    np.s_[:, :, ::2], np.s_[2, 1, 3], np.s_[None], np.s_[...], np.s_[6:0:-3, ..., -1], np.s_[:4, :4], np.s_[5:, 2:3],
]  # fmt: skip


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_numpys(kind: AxisType) -> None:
    """Catches a row of another block or of the padding, rows in another order, and a dimension lost or kept."""
    for dtype in ("float32", "bool"):
        x = _numbers(dtype, np.nan if dtype == "float32" else 0.0)
        a = _put(x, kind)
        some = INDICES[:: 1 if dtype == "float32" else 4]
        with jax.set_mesh(mesh((2, 4), kind)):
            found = jax.jit(lambda v, some=some: [v[index] for index in some])(a)
        for index, y in zip(some, found, strict=True):
            _same(y, x[index], exact=True)
        for index in some[:2]:  # without jit
            _same(a[index], x[index], exact=True)
    even: Any = _put(np.zeros((9, 9), "float32"), kind)[:8, 1:]
    assert isinstance(even, jax.Array) and getattr(even.sharding, "spec", None) == P("x", "y")


def test_slices_of_layouts_with_gaps() -> None:
    """Catches a slice that takes the padding in the middle for data: 7 over (2, 4) is stored as 4 + 0 + 3 + 1 rows."""
    x = np.arange(2.0 * 7).reshape(7, 2).astype("complex64")
    plan = mf.plan((7, 2), mesh=mesh((2, 4)), spec=P(("x", "y")), order="any")
    y = plan(mf.shard(x, mesh((2, 4)), P(("x", "y"))))
    for index in INDICES[1:3]:
        np.testing.assert_allclose(mf.gather(y[index]), mf.gather(y)[index], rtol=1e-6)


@pytest.mark.quick(0)
@pytest.mark.parametrize("inside", [False, True])
def test_slices_along_axes_in_another_order(inside: bool) -> None:
    """Catches rows of another device: XLA counts devices in the mesh's order, not in that of the spec's axes."""
    x, over = np.arange(9 * 5.0, dtype="float32").reshape(9, 5), mesh((2, 4))
    a, spec = mf.shard(x, over, P(("y", "x"))), P(("y", "x"))
    for index in np.s_[3:4], np.s_[::-1], np.s_[2:7, 0], np.s_[8]:
        ended: Any = P() if index == 8 else spec

        def rows(v: Any, index: Any = index) -> Any:
            return v[index]

        _same(jax.jit(mapped(rows, over, "xy", spec, ended))(a) if inside else a[index], x[index], exact=True)


def test_operands_inside_shard_map_are_whole() -> None:
    """Catches an array of the logical shape combined with a block: JAX's error of shapes, or a row of another block."""
    x, over = np.arange(8 * 7.0, dtype="float32").reshape(8, 7), mesh((2, 4))
    rows, whole = np.arange(7, dtype="float32"), np.random.default_rng(2).random((8, 7), "float32") < 0.5

    def body(v: Any) -> Any:
        return v.where(whole, 2 * rows) + x[:, :1] - x[-1:]

    y = jax.jit(mapped(body, over, "xy", SPEC, SPEC))(mf.shard(x, over, SPEC))
    _same(y, np.where(whole, x, 2 * rows) + x[:, :1] - x[-1:], exact=True)
    one = jax.jit(mapped(lambda v: v.where(whole[:1], rows), over, "xy", SPEC, SPEC))(mf.shard(x[:1], over, SPEC))
    _same(one, np.where(whole[:1], x[:1], rows))  # one row over two devices
    none = jax.jit(mapped(lambda v: v[3:3, :5], over, "xy", SPEC, SPEC))(mf.shard(x, over, SPEC))
    assert none.shape == (0, 5)


def test_nothing_is_gathered() -> None:
    """Catches a reduction or a slice that XLA implements by an all-gather."""
    a = _put(_numbers("float32"))
    sums = hops(lambda v: [getattr(v, how)(axis=axis) for how in HOW for axis in (None, 0, (0, 2))], a)
    slices = hops(lambda v: [v[index] for index in INDICES], a)
    assert sums.keys() <= {"all-reduce"} and slices.keys() <= {"all-reduce", "collective-permute"}


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind: AxisType) -> None:
    """Catches a gradient that reaches the padding, counts it, or misses an element: against jax.numpy on one device."""
    x = _numbers("float32")
    a, weights = _put(x, kind), np.random.default_rng(4).standard_normal((7, 6)).astype("float32")
    losses: list[Callable[[Any], Any]] = [lambda v: (v**2).sum(), lambda v: v.mean() ** 2, lambda v: v.max() * v.min()]
    losses += [partial(lambda how, v: (getattr(v, how)(axis=1) * weights).sum(), how) for how in HOW]
    losses += [partial(lambda index, v: (v[index] ** 2).sum(), index) for index in INDICES[::4]]
    every = jax.jit(lambda v: [jax.grad(loss)(v) for loss in losses])
    with jax.set_mesh(mesh((2, 4), kind)):
        found: Any = every(a)
    for gradient, truth in zip(found, every(x), strict=True):
        _same(gradient, np.asarray(truth))


@pytest.mark.quick(0)
@pytest.mark.parametrize("vma", [True, False])
def test_inside_shard_map_they_are_of_the_whole_array(vma: bool) -> None:
    """Catches the sum of a block in place of the array's, and rows of a block."""
    x = _numbers("float32", np.nan)
    a, over = _put(x), mesh((2, 4))

    def body(v: Any) -> Any:
        columns = [getattr(v, how)(axis=0) for how in HOW]
        return columns, [getattr(v, how)() for how in HOW], v[5:1:-1], v[:, 2]

    specs = ([P("y")] * 4, [P()] * 4, SPEC, P("x"))
    columns, alone, rows, row = jax.jit(mapped(body, over, "xy", SPEC, specs, check_vma=vma))(a)
    for how, column, one in zip(HOW, columns, alone, strict=True):
        _same(column, getattr(x, how)(axis=0))
        _same(one, getattr(x, how)())
    _same(rows, x[5:1:-1])
    _same(row, x[:, 2])


def test_where_and_loops() -> None:
    """Catches a condition stored otherwise, padding filled by the other value, and vmap's dimension taken for ours."""
    x = _numbers("float32")
    a = _put(x)
    _same(a.where(a > 0, 1.0), np.where(x > 0, x, 1.0))
    _same(a.where(x > 0, a * 2), np.where(x > 0, x, 2 * x))
    many = jax.jit(jax.vmap(lambda c: (a * c).sum(axis=0)))(jnp.arange(3.0))
    _same(many, np.stack([x.sum(0) * c for c in range(3)]))
    rows = jax.jit(jax.vmap(lambda c: (a * c)[1:6:2]))(jnp.arange(3.0))
    _same(rows, np.stack([x[1:6:2] * c for c in range(3)]))
    total = 0.0
    for turn in range(100):  # more than XLA's CPU collectives take at a time
        total += float(a[turn % 7].sum()) * 0 + 1
    assert total == 100


def test_eager_batches_and_slopes_need_no_context() -> None:
    """Catches an operator that JAX runs on one device, outside of `jit` and `jax.set_mesh` under Explicit axes."""
    over, x = mesh((3,), AxisType.Explicit), noise((5, 4), "float32")
    y, batch = mf.shard(x, over, P("x")), mf.shard(np.stack([x, 2 * x]), over, P(None, "x"))

    def ops(a: Any) -> tuple[Any, ...]:
        return 2 * a + 1, (a * x)[1:4, ::2], abs(a).sum(axis=0), a.max(axis=1), a.where(a > 0, 0.0)

    for many, one, two in zip(jax.vmap(ops)(batch), ops(x.view(_Numpy)), ops((2 * x).view(_Numpy)), strict=True):
        _same(many, np.stack([one, two]))
    slopes = 2 * x, (x * x)[1:4, ::2], abs(x).sum(axis=0), x.max(axis=1), np.where(x > 0, x, 0)
    for slope, truth in zip(jax.jvp(ops, (y,), (y,))[1], slopes, strict=True):
        _same(slope, truth)


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_elementwise_functions_of_numpy(kind: AxisType) -> None:
    """Catches a function on the host, operands that change places, padding that is not zero, a mesh that is lost."""
    over, x = mesh((2, 4), kind), noise((7, 5), "float32")
    y, z = mf.shard(x, over, P("x", "y")), mf.shard(x + 2, over, P("x", "y"))
    row = np.arange(5, dtype="float32")

    def every(a: Any, b: Any) -> Any:
        return np.exp(a), np.divide(row, b), np.maximum(a, b), np.isfinite(a), row - a, np.float32(2) * a

    for found in (every(y, z), jax.jit(every)(y, z)):
        for one, truth in zip(found, every(x, x + 2), strict=True):
            assert isinstance(one, mf.PaddedArray) and one.spec == P("x", "y") and one.dtype == truth.dtype
            np.testing.assert_allclose(mf.gather(one), truth, rtol=1e-6)
            assert np.count_nonzero(one.stored) == np.count_nonzero(truth)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "exp": (jnp.exp, TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "sum": (jnp.sum, TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "asarray": (jnp.asarray, TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "where": (lambda v: jnp.where(v > 0, v, 0), TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "einsum": (lambda v: jnp.einsum("ijk->i", v), TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "stack": (lambda v: jnp.stack([v, v]), TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "in jit": (jax.jit(jnp.exp), TypeError, r"use y.map\(jax.numpy.exp\).*mf.gather\(y\)"),
    "matmul": (lambda v: np.matmul(v, v), TypeError, r"np.matmul meets a PaddedArray.*use y.map"),
    "two results": (np.modf, TypeError, r"np.modf meets a PaddedArray.*use y.map"),
    "accumulate": (np.add.accumulate, TypeError, r"np.add meets a PaddedArray.*use y.map"),
    "complex": (lambda v: v.astype("complex64").max(), TypeError, "no order: use abs"),
    "axis": (lambda v: v.sum(axis=3), np.exceptions.AxisError, "axis 3 is out of bounds"),
    "twice": (lambda v: v.sum(axis=(0, 0)), ValueError, "repeated"),
    "out": (lambda v: v.sum(out=np.zeros(())), TypeError, "out is array"),
    "empty": (lambda v: v[3:3].max(axis=0), ValueError, r"has no max along \(0,\)"),
    "list": (lambda v: v[[0.5]], TypeError, r"index \[0.5\] is no integer.*y.where.*mf.gather"),
    "mask": (lambda v: v[True], TypeError, "index True is no integer"),
    "far": (lambda v: v[7], IndexError, "index 7 is out of range for a dimension of 7"),
    "long": (lambda v: v[0, 0, 0, 0], IndexError, "give at most 3"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refusals_say_what_to_do(case: str) -> None:
    """Catches a function of JAX that reads the padding, and an error without a remedy."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call(_put(_numbers("float32")))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "lt", "eq"])
def test_jaxs_operators_leave_theirs_to_it(name: str) -> None:
    """Catches the refusal of functions that refuses `jax_array + y` too."""
    x, function = abs(_numbers("float32")) + 1, getattr(operator, name)
    _same(function(jnp.asarray(x), _put(x)), function(x, x))


def test_what_notebooks_show() -> None:
    """Catches a mesh axis whose name is HTML, and numbers brought to the host for a picture."""
    over = jax.make_mesh((2,), ("<b>",))
    array = mf.shard(np.ones(7, "float32"), over, P("<b>"))
    assert isinstance(array, mf.PaddedArray)
    page = array._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;=2" in page and "(7,)" in page and "float32" in page
    points = mf.Scattered.turns(np.linspace(0, 0.4, 12)[:, None])
    page = mf.scattered_plan((8,), points, mesh=over, spec=P("<b>"))._repr_html_()
    assert "<b>" not in page and "12 points, tolerance" in page and page.count("<table>") == 1
