"""Kernels that write and read words: the bits of XLA's, whatever the numbers are."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshfft.collectives.wires import LEAST_ROOM, Bfloat16, Int16, Int24, Tiled, WireForm, form_of
from meshfft.tpu import wires as wire_kernels

KINDS = {"int16": Int16, "int24": Int24}
# dimensions before those of a share, the share, planes, positions of a run and runs of a group
CASES = {
    "rows of 8, twice": ((3,), (4, 16, 128), 1, 4, 1),
    "rows of 4, runs in pairs": ((2,), (2, 1, 4, 512), 1, 4, 2),
    "rows of 2, both planes": ((), (4, 2, 256), 2, 4, 2),
    "groups along a line": ((2,), (2, 8, 1024), 2, 4, 1),
    "groups of lines": ((), (8, 4, 256), 1, 8, 1),
}


def _planes(shape: tuple[int, ...], many: int) -> list[jax.Array]:
    """Numbers of all sizes, with some of every kind that is special."""
    random = np.random.default_rng(7)
    planes = []
    for _ in range(many):
        x = random.choice([-1.0, 1.0, 0.0], shape) * 10 ** random.uniform(-45, 38.5, shape)
        x *= random.choice([1.0, 0.0, 1e-20], (*shape[:-1], 1))
        special = random.choice([np.inf, -np.inf, np.nan, -0.0, 1e-40], shape)
        planes.append(jnp.asarray(np.where(random.uniform(size=shape) < 0.02, special, x).astype(np.float32)))
    return planes


@pytest.mark.quick(0)
@pytest.mark.parametrize("wire", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_kernels_write_and_read_the_bits_of_xla(name: str, wire: str) -> None:
    """Catches a tile of another run, share, group or plane, a scale in another's place, rounding otherwise than by XLA,
    and NaN, infinities, zeros or denormals that arrive as something else.
    """
    lead, share, many, length, runs = CASES[name]
    groups = math.prod(share) // (length * runs * share[-2] * 128)
    form = Tiled(share, WireForm(KINDS[wire](), (groups, length * runs, share[-2], 128), many, 1, length))
    planes, first = _planes((*lead, *share), many), len(lead)
    message = jax.jit(lambda *planes: form.encode(planes, first))(*planes)
    by_kernel = jax.jit(functools.partial(wire_kernels.encode, form, first, interpret=True))(*planes)
    np.testing.assert_array_equal(message, by_kernel)
    there = jax.jit(lambda words: form.decode(words, jnp.float32, first))(message)
    read = jax.jit(functools.partial(wire_kernels.decode, form, first, interpret=True))(message)
    for plane, true, found in zip(planes, there, read, strict=True):
        np.testing.assert_array_equal(np.asarray(true).view("i4"), np.asarray(found).view("i4"))
        np.testing.assert_array_equal(~np.isfinite(true), ~np.isfinite(plane))
        off = np.where(np.isfinite(plane), np.asarray(true, float) - plane, 0.0) / 1e20
        whole = np.where(np.isfinite(plane), plane, 0.0).astype(float) / 1e20
        assert np.linalg.norm(off) <= KINDS[wire]().error * np.linalg.norm(whole) * 2**0.5


@pytest.mark.parametrize("wire", KINDS)
def test_runs_of_tiles_lose_no_more_than_those_of_lines(wire: str) -> None:
    """Catches scales of runs that are not those of their numbers: each tile is of another size."""
    share = (4, 8, 2048)
    form = form_of(share, 1, KINDS[wire](room=LEAST_ROOM))
    sizes = 10.0 ** np.linspace(-30, 30, 1024).reshape(1, 8, 1, 128)
    x = (np.random.default_rng(3).standard_normal((4, 8, 16, 128)) * sizes).astype(np.float32)
    message = jax.jit(form.encode)(jnp.asarray(x.reshape(share)))
    assert message.shape == form.message and message.size <= 1.1 * x.size * (KINDS[wire].bits + 1) / 32
    (found,) = jax.jit(lambda words: form.decode(words, jnp.float32))(message)
    off = np.linalg.norm(np.asarray(found).reshape(x.shape) - x.astype(float), axis=(0, 2))
    assert (off <= KINDS[wire]().error * np.linalg.norm(x.astype(float), axis=(0, 2))).all()


def test_only_whole_tiles_go_by_kernels() -> None:
    """Catches a form in tiles where a kernel has no room, or rows and lanes are padded, or words are many more."""
    room = Int16(room=LEAST_ROOM)
    assert isinstance(form_of((64, 16, 128), 1, room), Tiled)
    for share in ((64, 12, 128), (64, 1, 128), (64, 16, 130), (8, 8, 128), (97,), (0, 8, 128)):
        assert isinstance(form_of(share, 1, room), WireForm), share
    for wire in (Int16(), Int16(room=2**20), Bfloat16(room=LEAST_ROOM)):
        assert isinstance(form_of((64, 16, 128), 1, wire), WireForm), wire
