"""Batches of lines in place: the same numbers as all at once, in the memory that the plan promises."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.kernels import xla
from meshfft.kernels.xla import Batched
from meshfft.plans.plan import Plan
from meshfft.steps import LocalFFT

SIZES = (1, 2, 3, 4, 5, 7, 12, 13)


def in_batches_of(nbytes: int, x: np.ndarray, dims: Sequence[int], sign: int) -> np.ndarray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xla, "BATCH_BYTES", nbytes)
        return np.asarray(jax.jit(lambda block: Batched().apply(block, tuple(dims), sign))(x))


@st.composite
def arrays(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    """A shape, and some of its dimensions in any order."""
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)))
    return shape, draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))


@given(arrays(), st.sampled_from([1, 64, 200, 1000, 2**14]), st.sampled_from([-1, 1]))
@example(((5, 7, 13), [0]), 250, -1)  # columns that batches do not divide
@example(((7, 5, 3), [1]), 300, -1)  # rows that batches do not divide
@example(((4, 5, 7, 3), [0, 1, 2, 3]), 2**14, 1)  # all in one batch
@example(((0, 5), [1]), 64, -1)
def test_batches_are_the_whole(given: tuple[tuple[int, ...], list[int]], nbytes: int, sign: int) -> None:
    """Catches lines lost or done twice at the edges of batches, a dimension forgotten, and a wrong sign."""
    shape, dims = given
    x = noise(shape, seed=sum(shape))
    bound = 2.5e-7  # four dimensions of seven points each have 2.13e-7
    assert error(in_batches_of(nbytes, x, dims, sign), dft(x, dims, sign=sign)) <= bound


def test_a_large_prime_goes_through_the_chirp_in_batches() -> None:
    """Catches an awkward length that batches would hand to XLA's own, slow way, or to the wrong dimension."""
    x = noise((3, 811, 2))
    assert error(in_batches_of(2**13, x, [1], -1), dft(x, [1])) <= 3e-7


def batched(plan: Plan) -> Plan:
    """The plan with its local FFTs in batches."""
    steps = (dataclasses.replace(s, engine=Batched()) if isinstance(s, LocalFFT) else s for s in plan.walk.steps)
    return dataclasses.replace(plan, walk=dataclasses.replace(plan.walk, steps=tuple(steps)))


def test_batches_within_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a loop that shard_map refuses, and an inverse or gradient that cannot pass through batches."""
    monkeypatch.setattr(xla, "BATCH_BYTES", 500)
    where, x = mesh((2, 2)), noise((8, 6, 10))
    plan = batched(mf.plan(x.shape, mesh=where, spec=P("x", "y"), method="transpose"))
    assert "batched" in plan.name
    put = mf.shard(x, where, P("x", "y"))
    y = plan(put)
    assert error(y, dft(x, (0, 1, 2))) <= 2e-7 and error(plan.inverse(y), x) <= 3e-7
    slope = jax.jit(jax.grad(lambda v: (abs(plan(v)) ** 2).sum() / x.size))(put)
    assert error(np.conj(slope), 2 * x) <= 3e-7


def test_memory_is_that_of_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a second array, where a loop does not update the first in place."""
    monkeypatch.setattr(xla, "BATCH_BYTES", 2**16)
    plan = batched(mf.plan((96, 80, 112)))
    lowered = jax.jit(plan, donate_argnums=0).lower(jax.ShapeDtypeStruct(plan.shape, plan.dtype))
    memory = lowered.compile().memory_analysis()
    assert memory is not None
    assert memory.argument_size_in_bytes == memory.alias_size_in_bytes == 8 * 96 * 80 * 112
    assert memory.temp_size_in_bytes <= xla.COPIES * 2**16


def test_lines_are_transposed_within_a_batch() -> None:
    """Catches a layout left free, for which XLA on a GPU takes one array more (seen in programs for an H200)."""
    plan = batched(mf.plan((6, 4, 5), axes=(0,)))
    text = jax.jit(plan).lower(jax.ShapeDtypeStruct(plan.shape, plan.dtype)).as_text()
    assert text.count("LayoutConstraint") == 4


def test_plans_take_batches_where_memory_is_short() -> None:
    """Catches 64 GiB refused on a device of 131, and batches, which cost more, where all at once fits."""
    usual, large = (mf.plan((n,) * 3, topology="h200:1") for n in (1024, 2048))
    assert "xla" in usual.name and usual.fits
    assert "batched" in large.name and large.fits
    assert 2 * 2**36 < large.peak_bytes < 2 * 2**36 + 2**28
    assert usual.work.memory_bytes == 6 * 2**33 and large.work.memory_bytes == 16 * 2**36
    assert mf.plan((4096,) * 3, topology="h200:1").fits is False
    assert "batched" not in mf.plan((2048,) * 3, topology="v5e:1x1").name


def test_positions_are_counted_in_32_bits() -> None:
    """Catches a loop whose positions wrap: 2^31 columns behind a short dimension."""
    assert xla.fits((2048,) * 3, (0, 1, 2), 8)
    assert not xla.fits((2, 2**31), (0,), 8)
    assert not xla.fits((2**15, 2**16, 2), (2,), 8)
    assert xla.fits((2**15, 2**16, 2), (1, 2), 8)
