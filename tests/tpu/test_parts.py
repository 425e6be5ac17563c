"""Kernels that read pieces as an exchange left them, and write the parts that the next one sends."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from marks import slow_but
from reference import error, noise

from meshfft.collectives.all_to_all import Came, Pieces, Ports, Rows
from meshfft.tpu.engines import VectorFFT
from meshfft.tpu.fft import fft_between

ROOM = 100 * 2**20
# shape, transformed dimensions, rows and the dimension that is sent in parts, how many; source and dimension of pieces,
# parts and pieces
CASES: dict[str, tuple[Any, ...]] = {
    "plane to its rows": ((4, 64, 8), (1, 2), Rows(0, 2, 2), 1, 4, None),
    "plane to its rows, less than a tile each": ((2, 128, 40), (1, 2), Rows(0, 1, 1), 1, 8, None),
    "plane to its columns": ((2, 64, 256), (1, 2), Rows(0, 1, 1), 2, 2, None),
    "plane to a batch": ((4, 3, 32, 40), (2, 3), Rows(1, 1, 2), 0, 2, None),
    "untiled to itself": ((24, 16, 130), (0,), Rows(1, 8, 8), 0, 4, None),
    "untiled to lanes": ((16, 8, 256), (0,), Rows(1, 0, 8), 2, 2, None),
    "untiled to sublanes": ((12, 32, 20), (0,), Rows(2, 0, 20), 1, 4, None),
    "untiled to a batch": ((4, 16, 8, 20), (1,), Rows(2, 0, 8), 0, 2, None),
    "sublanes to themselves": ((3, 128, 130), (1,), Rows(0, 1, 2), 1, 4, None),
    "lanes to themselves": ((4, 64, 256), (2,), Rows(0, 2, 2), 2, 2, None),
    "pieces of untiled": ((32, 8, 12), (0,), None, None, 1, (0, 0, 4, 4)),
    "more pieces than the radix": ((64, 8, 30), (0,), None, None, 1, (0, 0, 2, 8)),
    "pieces of untiled to itself": ((16, 16, 12), (0,), Rows(1, 8, 8), 0, 4, (0, 0, 8, 2)),
    "pieces of sublanes": ((3, 128, 30), (1,), None, None, 1, (1, 1, 2, 4)),
    "one piece of sublanes to itself": ((4, 128, 30), (1,), Rows(0, 2, 2), 1, 4, (1, 0, 4, 2)),
    "pieces of a plane": ((2, 64, 40), (1, 2), None, None, 1, (1, 1, 2, 4)),
    "three dimensions": ((8, 16, 24), (0, 1, 2), None, None, 1, (0, 0, 2, 2)),
    "plane, then untiled to itself": ((2, 16, 8, 24), (1, 2, 3), Rows(0, 1, 1), 1, 4, None),
}
FEW = {  # too little room for whole lines: two kernels
    "long, of pieces": ((128, 5, 12), (0,), None, None, 1, (0, 0, 32, 2)),
    "long, of pieces to itself": ((128, 16, 256), (0,), Rows(2, 128, 128), 0, 32, (0, 0, 16, 4)),
    "long, of planes to itself, a few rows": ((2, 128, 16, 136), (1,), Rows(0, 1, 1), 1, 4, None),
    "long to sublanes": ((128, 16, 128), (0,), Rows(2, 0, 128), 1, 2, None),
    "long to a batch": ((2, 128, 8, 40), (1,), Rows(2, 0, 8), 0, 2, None),
    "long along sublanes, of pieces": ((2, 2560, 130), (1,), None, None, 1, (1, 1, 40, 2)),
    "long along sublanes, in parts of less than a tile": ((3, 2560, 130), (1,), Rows(0, 1, 1), 1, 640, None),
    "long along sublanes, in parts of tiles": ((2, 2560, 130), (1,), Rows(0, 1, 1), 1, 320, None),
    "long along sublanes, in large parts": ((2, 2560, 130), (1,), Rows(0, 0, 2), 1, 4, None),
    "long along sublanes to lanes": ((2, 2560, 256), (1,), Rows(0, 0, 2), 2, 2, None),
}
CASES |= FEW
QUICK = ("untiled to itself", "pieces of untiled to itself")


def _in_pieces(x: np.ndarray, source: int, dim: int, parts: int, many: int) -> Pieces:
    """A block as exchanges leave it."""
    if source == dim:
        opened = x.reshape(*x.shape[:dim], parts, many, -1, *x.shape[dim + 1 :])
        pieces = [opened.take(c, dim + 1) for c in range(many)]
    else:
        pieces = [c.reshape(*c.shape[:source], parts, -1, *c.shape[source + 1 :]) for c in np.split(x, many, dim)]
    arrays = [np.moveaxis(piece, source, 0) for piece in pieces]
    return Pieces(tuple(jnp.asarray(np.stack([one.real, one.imag], 1)) for one in arrays), source, dim)


@pytest.mark.quick(12)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_values_of_parts_and_pieces(name: str) -> None:
    """Catches a row taken from another piece, or written to another part, and a kernel beside which copies are made."""
    shape, dims, rows, target, parts, came = CASES[name]
    x, sign = noise(shape, seed=3), -1 if target is None else 1
    room = (2**21 if len(dims) == 1 and shape[dims[0]] < 2**10 else 14 * 2**20) if name in FEW else ROOM
    expected = np.fft.fftn(x, axes=dims) if sign < 0 else np.fft.ifftn(x, axes=dims, norm="forward")
    given = _in_pieces(x, *came) if came else (jnp.asarray(x.real), jnp.asarray(x.imag))
    leaves = given.arrays if isinstance(given, Pieces) else given
    sent = None if target is None else (target, parts)

    def run(*leaves: Array) -> Any:
        block: Any = Pieces(leaves, *came[:2]) if came else leaves
        return fft_between(block, dims, sign, room, Ports(rows, sent=sent), interpret=True)

    if isinstance(given, Pieces):
        assert error(np.asarray(given.joined()[0]), x.real) == 0
        assert target is not None or VectorFFT(room).direct(shape, dims, Ports(came=Came(*came)))
    else:
        assert VectorFFT(room).direct(shape, dims, Ports(rows, sent=sent))
    result = jax.jit(run)(*leaves)
    if target is None:
        found = np.asarray(result[0]) + 1j * np.asarray(result[1])
    else:
        expected = expected.take(range(rows.start, rows.start + rows.size), rows.dim)
        whole = np.moveaxis(np.asarray(result[0][:, 0]) + 1j * np.asarray(result[0][:, 1]), 0, target)
        found = whole.reshape(expected.shape)
    assert error(found, expected) <= 2e-7
