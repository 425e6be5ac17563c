"""Lengths that TPUs transform in two stages, because XLA would make one long product of them."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from reference import error, noise

from meshfft.kernels.base import Lines
from meshfft.kernels.factors import DENSE, takes_chirp, way_of
from meshfft.kernels.xla import XLA, _each_way
from meshfft.machine.chips import CHIPS


@pytest.mark.parametrize("length", [1300, 2310, 3148, 5000, 7150, 30030])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("sign", [-1, 1])
def test_two_stages_are_the_transform(length: int, dim: int, sign: int) -> None:
    """Catches swapped factors, a twiddle factor of the other sign, and lines taken from another dimension."""
    shape = [2, 3, 4]
    shape[dim] = length
    x = jnp.asarray(noise(shape))
    assert way_of(length).radix and not way_of(length).chirp
    found: Any = _each_way(x, (dim,), sign, "products")
    exact = np.asarray(x, complex)
    truth = np.fft.fft(exact, axis=dim) if sign < 0 else length * np.fft.ifft(exact, axis=dim)
    assert error(found, truth) < 1e-6


def test_dimensions_of_all_ways_at_once() -> None:
    """Catches a dimension left out, or transformed twice, where each takes another way."""
    x = jnp.asarray(noise((1300, 2003, 3)))
    assert way_of(1300).radix and way_of(2003).chirp and way_of(3) == ((3,), 0, 0, False)
    found: Any = _each_way(x, (0, 1, 2), -1, "products")
    assert error(found, np.fft.fftn(np.asarray(x, complex))) < 1e-6


@pytest.mark.parametrize(
    "length", [1, 128, 1000, 1024, 1994, 2**20, 3 * 2**12, 9999, 238810, 250250, 10**7, 4036, 129152]
)
def test_no_product_is_long(length: int) -> None:
    """Catches products of N rows, whose matrices fill a TPU's memory, where N has factors."""
    way = way_of(length)
    assert max(way.rows) <= max(DENSE, 1994) and (way.chirp or math.prod(way.rows) == length)
    assert way.chirp == takes_chirp(length, CHIPS["v5e"]) == (length == 4036)


def test_two_stages_are_priced() -> None:
    """Catches a price, or a peak, of XLA's own factors where they are not taken."""
    short, long = (XLA.work(Lines((64, n), (1,), (n,)), 8, CHIPS["v5e"]) for n in (1024, 5000))
    assert long.matrix_flops == 6 * 256 * 64 * 5000 and short.matrix_flops == 6 * 256 * 64 * 1024
    assert long.peak_bytes / 5000 > short.peak_bytes / 1024 and long.memory_bytes / 5000 > short.memory_bytes / 1024
