"""Phases: exact reduction, whatever the length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfft.numerics.phases import LOOKED_UP, MAX_LENGTH, mulmod, roots, table, vandermonde
from meshfft.numerics.split_complex import join

LENGTHS = (1, 2, 3, 4, 5, 8, 97, 1024, 8192, 46_341, 65_536, 65_537, 1_000_003, 2**24, 2**28 + 3, MAX_LENGTH)


@given(st.sampled_from(LENGTHS), st.data())
def test_products_of_indices_never_wrap(length: int, data: st.DataObject) -> None:
    """Catches int32 or uint32 wrap-around in n k mod N, which starts at N = 46,341."""
    index = st.integers(0, length - 1)
    a, b = (np.array(data.draw(st.lists(index, min_size=8, max_size=8))) for _ in range(2))
    exact = [int(p) * int(q) % length for p, q in zip(a, b, strict=True)]
    assert mulmod(jnp.asarray(a, jnp.uint32), jnp.asarray(b, jnp.uint32), length).tolist() == exact


@pytest.mark.quick(6)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_roots_of_unity_are_right_to_a_rounding(length: int, sign: int) -> None:
    """Catches a lost digit: a float32 angle without exact reduction is wrong by 5e-3 at N = 8192."""
    rng = np.random.default_rng(length)
    m = np.unique(np.concatenate([rng.integers(0, length, 500), np.arange(4) * length // 4, [length - 1]]))
    truth = np.exp(sign * 2j * np.pi * (m / length))
    assert np.abs(np.asarray(join(roots(jnp.asarray(m), length, sign, jnp.float32))) - truth).max() <= 1.5e-7


@pytest.mark.parametrize("length", [1, 6, 97, 120, 1000])
@pytest.mark.parametrize("sign", [-1, 1])
def test_tables_of_the_host_are_right_to_a_rounding(length: int, sign: int) -> None:
    """Catches angles in float64, whose rounding makes roots wrong by up to eight roundings."""
    turns = (np.outer(np.arange(length), np.arange(3)) % length).astype(np.longdouble) / length
    angle = sign * turns * np.arctan2(np.longdouble(0), np.longdouble(-1)) * 2
    off = table(length, 3, length, sign, np.dtype(np.complex128)) - (np.cos(angle) + 1j * np.sin(angle))
    assert np.abs(off).max() <= 1.5 * 2.0**-53


@pytest.mark.quick(2, 4)
@pytest.mark.parametrize("length", [1, 6, 97, 8192, 65_537])
def test_vandermonde_blocks_in_both_precisions(x64: None, length: int) -> None:
    """Catches a transposed block, a wrong sign, or float32 arithmetic hidden in the float64 path."""
    k, n = np.arange(3, 40) * 7 % length, np.arange(50) * 11 % length
    turns = (np.outer(k, n) % length).astype(np.longdouble) / length  # 80 bits: float64 pi is not exact enough here
    angle = turns * np.arctan2(np.longdouble(0), np.longdouble(-1)) * 2
    truth = np.cos(angle) - 1j * np.sin(angle)
    for real, bound in ((jnp.float32, 1.5e-7), (jnp.float64, 4e-16)):
        block = join(vandermonde(jnp.asarray(k), jnp.asarray(n), length, -1, real))
        assert block.real.dtype == real and np.abs(np.asarray(block) - truth).max() <= bound


def test_cpus_look_up_the_roots_of_a_short_period() -> None:
    """Catches cos and sin of every entry, which take CPUs longer than the product with a matrix of 64 columns."""

    def text(length: int) -> str:
        return jax.jit(lambda k: vandermonde(k, k, length, -1, jnp.float32)).lower(jnp.arange(64)).as_text()

    assert "cosine" not in text(LOOKED_UP) and "cosine" in text(LOOKED_UP + 1)
