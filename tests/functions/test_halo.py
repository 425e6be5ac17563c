"""Halos and their sums: values, types, sharding, traffic, gradients, uneven blocks, transformations, refusals."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise
from shard_maps import inside

import meshfft as mf
from meshfft.inspect.hlo import collectives, every_collective, program_of
from meshfft.layout.layout import Layout, axis_sizes, from_spec

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], P, Any, Any]] = {
    "one": ((2, 4), (6, 8, 5), P("x", "y"), 1, True),
    "wider than a block": ((2, 4), (6, 8), P("x", "y"), (4, 5), True),
    "around more than once": ((2,), (4, 3), P("x"), (9, 7), True),
    "one side, of two mesh axes": ((2, 2), (8, 3), P(("y", "x")), ((0, 2), (1, 0)), True),
    "with ends": ((8,), (16, 4), P("x"), ((3, 1), 2), (False, True)),
    "wider, with ends": ((2, 4), (4, 4), P("x", "y"), (3, 5), False),
    "on one device": ((1,), (5,), P(), 2, False),
}


def _positions(layout: Layout, dim: int, before: int, behind: int, periodic: bool) -> np.ndarray:
    """The cell of each place along a dimension of the extended array, -1 for none."""
    n, rows = layout.shape[dim], list[int]()
    for start, count in zip(layout.starts(dim), layout.counts(dim), strict=True):
        rows += range(start - before, start + count + behind)
    return np.array([i % n if periodic or 0 <= i < n else -1 for i in rows])


def _extended(x: np.ndarray, layout: Layout, width: Any, periodic: Any) -> np.ndarray:
    many = x.ndim
    widths = [width] * many if isinstance(width, int) else width
    ends = [periodic] * many if isinstance(periodic, bool) else periodic
    for dim, (cells, wraps) in enumerate(zip(widths, ends, strict=True)):
        before, behind = (cells, cells) if isinstance(cells, int) else cells
        at = _positions(layout, dim, before, behind, wraps)
        gone = np.expand_dims(at < 0, tuple(d for d in range(many) if d != dim))
        x = np.where(gone, np.zeros((), x.dtype), np.take(x, at, dim))
    return x


def _sent(program: jax.stages.Compiled) -> int:
    return sum(one.times * one.bytes for one in every_collective(program_of(program)))


@pytest.mark.quick(5, 10, 13)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("kind", "dtype"), [(AUTO, "complex64"), (EXPLICIT, "int16")])
def test_cells_of_the_neighbours(case: str, kind: AxisType, dtype: str) -> None:
    """Catches a cell of another block, a hop the wrong way, a wrapped end, bytes beside the halos, and a gather."""
    sizes, shape, spec, width, periodic = CASES[case]
    devices, made = mesh(sizes, kind), "complex64" if dtype == "complex64" else "float32"
    x = (100 * noise(shape, made)).astype(dtype)
    a = jax.device_put(x, NamedSharding(devices, spec))
    how: Any = {"periodic": periodic, "spec": spec if kind == AUTO and a.sharding.num_devices > 1 else None}
    program = jax.jit(lambda a: mf.halo(a, width, **how)).lower(a).compile()
    y, layout = program(a), from_spec(shape, axis_sizes(devices), spec)
    want = _extended(x, layout, width, periodic)
    np.testing.assert_array_equal(y, want)
    assert y.dtype == x.dtype and y.sharding.is_equivalent_to(a.sharding, x.ndim)
    assert collectives(program).keys() <= {"collective-permute"}
    halos = (want.size - x.size) // int(np.prod(layout.parts)) * x.itemsize
    assert (_sent(program) > 0) == (a.sharding.num_devices > 1)

    ct = (100 * noise(want.shape, made, 1)).astype(dtype)
    b = jax.device_put(ct, a.sharding)
    back = jax.jit(lambda b: mf.add_halo(b, width, **how)).lower(b).compile()
    assert _sent(program) <= _sent(back) <= halos and back(b).shape == shape  # XLA sends a row once to two places
    assert np.isclose(np.vdot(np.asarray(back(b), "c16"), x), np.vdot(ct.astype("c16"), want), 1e-4)
    if dtype != "int16":
        np.testing.assert_array_equal(jax.vjp(lambda a: mf.halo(a, width, **how), a)[1](b)[0], back(b))


@pytest.mark.parametrize("periodic", [True, False])
def test_a_last_block_that_is_short(periodic: bool) -> None:
    """Catches a halo behind the padding instead of the last cell, padding that is sent, and sums that enter it."""
    x = noise((14, 11), "float32")
    a = mf.shard(x, mesh((4, 2)), P("x", "y"))
    y = mf.halo(a, ((2, 1), 3), periodic=periodic)
    assert isinstance(a, mf.PaddedArray) and isinstance(y, mf.PaddedArray) and y.spec == P("x", "y")
    want = _extended(x, a.layout, ((2, 1), 3), periodic)
    np.testing.assert_array_equal(mf.gather(y), want)
    np.testing.assert_allclose(np.asarray(y.stored).sum(), want.sum(), atol=1e-3)
    ct = noise(want.shape, "float32", 1)
    filled = y * 0 + ct
    back = mf.add_halo(filled, ((2, 1), 3), periodic=periodic)
    assert back.shape == x.shape and error(np.vdot(mf.gather(back), x), np.vdot(ct, want)) <= 1e-5
    (slope,) = jax.vjp(lambda a: mf.halo(a, ((2, 1), 3), periodic=periodic), a)[1](filled)
    np.testing.assert_array_equal(mf.gather(slope), mf.gather(back))
    assert not np.asarray(back.stored)[14:].any() and not np.asarray(slope.stored)[:, 11:].any()


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_inside_of_other_transformations(kind: AxisType) -> None:
    """Catches a block taken for the whole array in shard_map, lost batches, and planes that are mixed."""
    x = noise((8, 12))
    devices = mesh((2, 4), kind)
    a = jax.device_put(x, NamedSharding(devices, P("x", "y")))
    want = _extended(x, from_spec(x.shape, axis_sizes(devices), P("x", "y")), 2, True)
    np.testing.assert_array_equal(mf.halo(a, 2), want)

    def stencil(block: Array) -> Array:
        block = mf.halo(block, 1, spec=P("x", "y"))
        return block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]

    with jax.set_mesh(devices):
        summed = jax.jit(inside(stencil, devices, ("x", "y"), P("x", "y")))(a)
    assert error(summed, np.sum([np.roll(x, by, axis) for by in (1, -1) for axis in (0, 1)], 0)) <= 1e-6
    b = jax.device_put(np.stack([x, 2 * x]), NamedSharding(devices, P(None, "x", "y")))
    np.testing.assert_array_equal(jax.vmap(lambda a: mf.halo(a, 2, spec=P("x", "y")))(b), np.stack([want, 2 * want]))
    re, im = mf.halo((a.real, a.imag), 2)
    np.testing.assert_array_equal(np.asarray(re) + 1j * np.asarray(im), want)


X = jnp.ones((6, 4))
CUT = {n: (lambda n=n: mf.shard(np.ones(n), mesh((4,)), P("x"))) for n in (5, 9, 13)}
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "many": (lambda: mf.halo(X, (1, 2, 3)), ValueError, "3 widths for 2 axes"),
    "negative": (lambda: mf.halo(X, -1), ValueError, r"width \(-1,\) is no width"),
    "triple": (lambda: mf.halo(X, ((1, 2, 3), 1)), ValueError, "a pair"),  # type: ignore[arg-type]
    "half": (lambda: mf.halo(X, 0.5), TypeError, "width is 0.5"),  # type: ignore[call-overload]
    "axis": (lambda: mf.halo(X, 1, axes=(0, 0)), ValueError, "given twice"),
    "ends": (lambda: mf.halo(X, 1, periodic=(True,)), ValueError, "for 2 axes"),
    "no flag": (lambda: mf.halo(X, 1, periodic=("x", "y")), ValueError, "True or False"),  # type: ignore[arg-type]
    "nothing left": (lambda: mf.add_halo(X, 2), ValueError, "axis 1 has 4 cells over 1 blocks: without their halos"),
    "no cell": (lambda: mf.halo(X[:0], 1), ValueError, "no cell beside a block"),
    "short": (lambda: mf.halo(CUT[13](), 2), ValueError, "of 4, the last of 1: a halo of 2 needs .* as 16"),
    "empty": (lambda: mf.halo(CUT[9](), 1), ValueError, "the last of 0"),
    "hidden": (
        lambda: jax.jit(lambda a: mf.halo(a, 1))(jax.device_put(X, NamedSharding(mesh((2,)), P("x")))),
        ValueError,
        "pass spec=",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    """Catches a width that does not fit, blocks without the cells that are asked for, and a missing remedy."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call()
