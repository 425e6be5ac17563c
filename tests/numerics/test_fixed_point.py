"""Fixed-point numbers in limbs, against Python's integers and fractions."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfft.numerics import phases as limbs

PI = Fraction(3_14159265358979323846264338327950288419716939937510582097494, 10**59)
LOG2_E = Fraction(1_44269504088896340735992468100189213742664595415298593413545, 10**59)
LAST = 40  # units of the last bit that a product may be off: one for each of its pieces
VALUES = np.concatenate(
    [
        [0.0, 0.5, -0.5, 0.25, 1.0, -1.0, 1e-20, -1e-20, 12345.678, -12345.678, 1 / 3, -1 / 3, 2.0**-40, 1 - 2.0**-24],
        np.random.default_rng().uniform(-3, 3, 40),
        10.0 ** np.random.default_rng().uniform(-20, 4, 40),
    ]
)
COUNTS = [0, 1, 2, 3, 65_535, 65_536, 65_537, 2**29 - 1, *map(int, np.random.default_rng().integers(0, 2**29, 40))]
WORDS = st.sampled_from([0, 1, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFF0000, 0xFFFFFFFF])
MANY = st.integers(2, 3)


def integers(number: limbs.Limbs) -> list[int]:
    """The integers whose digits these limbs are."""
    words = [np.asarray(limb).ravel() for limb in number]
    assert all(word.dtype == np.uint32 for word in words)
    return [
        sum(int(digit) << 32 * j for j, digit in enumerate(reversed(digits))) for digits in zip(*words, strict=True)
    ]


def number(wholes: list[int], many: int) -> limbs.Limbs:
    """Limbs that hold these integers."""
    return tuple(
        jnp.asarray([whole >> 32 * j & 0xFFFFFFFF for whole in wholes], jnp.uint32) for j in reversed(range(many))
    )


def apart(a: int, b: int, many: int) -> int:
    """Distance of two numbers modulo the wrap."""
    return min((a - b) % 2 ** (32 * many), (b - a) % 2 ** (32 * many))


def made(function: Callable[[Any, int], limbs.Limbs], values: np.ndarray, many: int, traced: bool) -> list[int]:
    """The limbs of values by NumPy on the host, or compiled."""
    result = jax.jit(function, static_argnums=1)(values, many) if traced else function(values, many)
    assert len(result) == many and all(isinstance(limb, np.ndarray) != traced for limb in result)
    return integers(result)


def hold(many: int, kind: str, traced: bool) -> None:
    """Checks fixed-point numbers made of floats to the promised unit, against the same floats."""
    values = VALUES.astype(kind)
    exact = [Fraction(float(v)) for v in values]
    unit = 2 ** (32 * many)
    turns = made(limbs.of_turns, values, many, traced)
    assert turns == [(abs(v) * unit).__floor__() * (1 if v >= 0 else -1) % unit for v in exact]
    for result, v in zip(made(limbs.of_radians, values, many, traced), exact, strict=True):
        assert apart(result, round(v / (2 * PI) * unit), many) <= LAST, float(v)
    for result, v in zip(made(limbs.of_logarithm, values, many, traced), exact, strict=True):
        assert apart(result, round(v * LOG2_E * unit / 2**16), many) <= LAST, float(v)


@pytest.mark.parametrize("many", [2, 3])
@pytest.mark.parametrize(("kind", "traced"), [("float32", False), ("float32", True), ("float64", False)])
def test_floats_keep_every_digit(many: int, kind: str, traced: bool) -> None:
    """Catches a piece of 1 / 2 pi or of log2 e lost or misplaced, a rounded product, a wrong sign, a fraction cut."""
    hold(many, kind, traced)


@pytest.mark.quick(0)
@pytest.mark.parametrize("many", [2, 3])
def test_traced_float64_keeps_every_digit(x64: None, many: int) -> None:
    """Catches float32 hidden in the traced path, or products of halves of 27 bits, which do not fit in 53."""
    hold(many, "float64", True)


def test_hosts_keep_float64_where_jax_has_none() -> None:
    """Catches a host array that went through jax.numpy, which rounds it to float32 while 64-bit types are off."""
    third = Fraction(float(np.float64(1 / 3)))
    assert integers(limbs.of_turns(np.array([1 / 3]), 2)) == [(third * 2**64).__floor__()]


@given(MANY, st.data())
def test_sums_and_negatives_wrap(many: int, data: st.DataObject) -> None:
    """Catches a carry lost between limbs, or made twice."""
    word = st.lists(WORDS | st.integers(0, 2**32 - 1), min_size=many, max_size=many)
    a, b = ([_whole(v) for v in data.draw(st.lists(word, min_size=8, max_size=8))] for _ in range(2))
    unit = 2 ** (32 * many)
    total = limbs.add(number(a, many), number(b, many))
    assert integers(total) == [(x + y) % unit for x, y in zip(a, b, strict=True)]
    assert integers(limbs.negative(number(a, many))) == [-x % unit for x in a]


@given(MANY, st.data())
def test_multiples_wrap(many: int, data: st.DataObject) -> None:
    """Catches an upper half of a product that is off by a carry: the phase would be off by 2^-32 of a cycle."""
    word = st.lists(WORDS | st.integers(0, 2**32 - 1), min_size=many, max_size=many)
    a = [_whole(v) for v in data.draw(st.lists(word, min_size=8, max_size=8))]
    n = data.draw(st.lists(st.sampled_from(COUNTS) | WORDS, min_size=8, max_size=8))
    product = limbs.times(jnp.asarray(n, jnp.uint32), number(a, many))
    assert integers(product) == [k * x % 2 ** (32 * many) for k, x in zip(n, a, strict=True)]


def _whole(digits: list[int]) -> int:
    return sum(digit << 32 * j for j, digit in enumerate(digits))


@pytest.mark.parametrize(("kind", "many"), [("float32", 2), ("float64", 3)])
def test_multiples_of_angles_are_exact_modulo_a_turn(x64: None, kind: str, many: int) -> None:
    """Catches too few limbs: n w off by more than 2^-30 of a cycle at n near 2^29 in float32, 2^-60 in float64."""
    values = VALUES.astype(kind)
    turns = limbs.of_radians(values, many)
    for n in COUNTS:
        for result, v in zip(integers(limbs.times(jnp.uint32(n), turns)), values, strict=True):
            exact = round(n * Fraction(float(v)) / (2 * PI) * 2 ** (32 * many))
            assert apart(result, exact, many) <= LAST * max(n, 1)
    assert limbs.limbs_for(kind) == many


def _two_to(exponents: list[Fraction], kind: str, many: int) -> np.ndarray:
    fixed = [round(e * 2 ** (32 * many - 16)) % 2 ** (32 * many) for e in exponents]
    result = jax.jit(limbs.power_of_two, static_argnums=1)(number(fixed, many), kind)
    assert result.dtype == kind
    return np.asarray(result, np.float64)


@pytest.mark.parametrize(("kind", "many", "bound"), [("float32", 2, 2e-7), ("float32", 3, 2e-7), ("float64", 3, 4e-16)])
def test_powers_of_two(x64: None, kind: str, many: int, bound: float) -> None:
    """Catches a wrong sign, a whole part that enters exp2 and costs its digits, or a missing limb of the fraction."""
    most = 125 if kind == "float32" else 1020
    drawn = np.random.default_rng().uniform(-most, most, 200)
    exponents = [Fraction(float(e)) for e in (0, 1, -1, 0.5, -0.5, most, -most, 2.0**-30, -(2.0**-30), *drawn)]
    truth = [np.ldexp(2.0 ** float(e - e.__floor__()), e.__floor__()) for e in exponents]
    relative = _two_to(exponents, kind, many) / np.array(truth) - 1
    assert np.abs(relative).max() <= bound
    assert _two_to([Fraction(0)], kind, many) == 1


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_powers_out_of_range(x64: None, kind: str) -> None:
    """Catches an exponent that wraps: far below the type is zero, far above it infinite."""
    small, large = _two_to([Fraction(-20_000), Fraction(20_000)], kind, limbs.limbs_for(kind))
    assert small == 0 and large == np.inf


@pytest.mark.quick(1)
@pytest.mark.parametrize(("kind", "bound"), [("float32", 3e-7), ("float64", 1e-15)])
def test_powers_of_radii(x64: None, kind: str, bound: float) -> None:
    """Catches a power r^-n whose digits get fewer with n: exp(-n log r) in floats loses n log r units, here up to 60.

    Up to n = 2^21: beyond, the last bit of two limbs of a logarithm, 2^-48, is seen in float32.
    """
    many, rng = limbs.limbs_for(kind), np.random.default_rng()
    n = rng.integers(1, 2**21, 50)
    logs = (rng.uniform(-60, 60, 50) / n).astype(kind)
    fixed = limbs.negative(limbs.times(jnp.asarray(n, jnp.uint32), limbs.of_logarithm(logs, many)))
    result = np.asarray(limbs.power_of_two(fixed, kind), np.float64)
    exponents = [-int(k) * Fraction(float(v)) * LOG2_E for k, v in zip(n, logs, strict=True)]
    truth = [np.ldexp(2.0 ** float(e - e.__floor__()), e.__floor__()) for e in exponents]
    assert np.abs(result / truth - 1).max() <= bound
