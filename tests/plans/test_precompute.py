"""Plans that keep the rows of their matrices: the numbers of those that make them in every call, and their memory."""

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import dft, error, mesh, noise, powers, separable

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import stored_of
from meshfft.plans.execute import furnish, walked

TURNS, RADII = np.random.default_rng(1).random(17), np.linspace(0.9, 1.1, 17)
CASES: dict[str, dict[str, Any]] = {
    "uneven": {},
    "points": {"points": [mf.Points.turns(TURNS, RADII), None]},
    "cosines": {"kind": "dct-2", "dtype": "complex64"},
    "double": {"dtype": "complex128"},
    "terms": {"precision": "bf16x3"},
}


def _plans(shape: tuple[int, ...], how: dict[str, Any]) -> list[mf.Plan]:
    here: dict[str, Any] = {"mesh": mesh((4, 2)), "spec": P("x", "y"), "method": "kdft"}
    return [mf.plan(shape, **here, **how, precompute=keep) for keep in (False, True)]


@pytest.mark.more
@pytest.mark.parametrize("case", slow_but(["points"], CASES))
def test_kept_rows_change_no_number(case: str, x64: None) -> None:
    """Catches rows of other devices or columns, a sign or transpose that the kept rows do not have, a gradient or a
    batch that needs others, rows that are sent, and numbers that differ from those of a plan without them.
    """
    plain, kept = _plans((24, 13), {"dtype": "complex64", **CASES[case]})
    x = mf.shard(noise((24, 13), kept.dtype.name), mesh((4, 2)), P("x", "y"))
    y, back = kept(x), kept.adjoint(kept(x))
    assert isinstance(x, mf.PaddedArray) and isinstance(y, mf.PaddedArray)
    assert "kept rows" in kept.name and kept.collectives == plain.collectives
    if case != "cosines":
        first = powers(TURNS, np.log(RADII), 24) if case == "points" else dft(np.eye(24), (0,))
        assert error(mf.gather(y), separable(mf.gather(x), [first, dft(np.eye(13), (0,))])) <= kept.error
    within = kept.error if case == "terms" else 0  # small tables of a plan without rows are split in float64
    assert error(mf.gather(y), mf.gather(plain(x))) <= within and y.sharding == plain(x).sharding
    within = kept.error if case in ("terms", "cosines") else 0  # sums travel, or rows are made for the transpose
    assert error(mf.gather(back), mf.gather(plain.adjoint(y))) <= within
    weight = jnp.conj(y.stored)
    slope = jax.grad(lambda x: (weight * stored_of(kept(x))).sum().real)(x)
    assert error(np.conj(mf.gather(slope)), mf.gather(back)) <= 2 * kept.error
    many = jax.vmap(kept)(jax.tree.map(lambda stored: jnp.stack([stored, 2 * stored]), x))
    assert error(np.asarray(jax.tree.leaves(many)[0])[1], 2 * np.asarray(y.stored)) <= kept.error
    if case != "points":
        assert error(mf.gather(kept.inverse(y)), mf.gather(x)) <= 2 * kept.error
    if case == "uneven":
        assert error(mf.gather(jax.jit(kept)(x)), mf.gather(y)) == 0


@pytest.mark.more
def test_rows_are_operands_of_the_program_and_of_one_device_each() -> None:
    """Catches rows in the program's text or on all devices, remade in a call, left after the plan, or not counted."""
    plain, kept = _plans((48, 20), {})
    x = jnp.asarray(mf.shard(noise((48, 20)), mesh((4, 2)), P("x", "y")))

    def live() -> list[jax.Array]:
        return [one for one in jax.live_arrays() if one.shape in ((2, 48, 48), (2, 20, 20))]

    assert not live(), "made before the first call"
    y, rows = kept(x), live()
    assert error(kept.inverse(y), np.asarray(x)) <= 2 * kept.error
    assert error(kept.adjoint(y), 960 * np.asarray(x)) <= 2 * kept.error
    assert error(jax.vmap(kept)(jnp.stack([x, x]))[1], np.asarray(plain(x))) <= kept.error  # other tiles of a batch
    assert len(live()) == len(rows) == 2 and {id(one) for one in live()} == {id(one) for one in rows}
    held = {one.shape: one.addressable_shards[0].data.nbytes for one in rows}
    assert held == {(2, 48, 48): 2 * 12 * 48 * 4, (2, 20, 20): 2 * 10 * 20 * 4}
    assert kept.peak_bytes == plain.peak_bytes + sum(held.values())
    walk, operands = furnish(kept.walk, kept.sources, "cpu", kept.dtype)
    here = kept.mesh
    run = jax.jit(lambda x, rows, walk=walk: walked((x,), walk, here, False, rows))
    program = run.lower(x, operands).compile()
    assert collectives(program) == kept.collectives and "cosine" not in (program.as_text() or "")
    del kept, rows, operands, walk
    gc.collect()
    assert not live()


def test_rows_that_do_not_fit_are_refused() -> None:
    """Catches rows that no memory holds, that a method does not have, that a price leaves out, or of half spectra."""
    pod: dict[str, Any] = {"mesh": AbstractMesh((128,), ("x",)), "topology": "v3:8x8"}
    with pytest.raises(
        ValueError, match=r"keeps rows that take 139 GB on each device; .*does not fit.*or leave precompute"
    ):
        mf.plan((2**17, 2**17), method="kdft", precompute=True, **pod)
    with pytest.raises(ValueError, match="method 'transpose' has no matrix rows to keep: drop precompute="):
        mf.plan((8, 8), method="transpose", precompute=True)
    plain, kept = (mf.plan((8192, 8192), method="kdft", precompute=keep, **pod) for keep in (False, True))
    assert kept.seconds_by_resource.vector == 0 < plain.seconds_by_resource.vector
    assert (kept.seconds or 0) < (plain.seconds or 0)
    half = mf.plan((8, 6), kind="rfft", method="kdft", precompute=True)
    x = noise((8, 6), "float32")
    assert error(half(x), np.fft.rfft2(x)) <= half.error and error(half.inverse(half(x)), x) <= 2 * half.error
