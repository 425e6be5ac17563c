"""fftfreq, rfftfreq and next_fast_len: NumPy's values, types, shards made where they belong, least lengths."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from reference import mesh
from strategies import MESHES

import meshfft as mf

NAMES = ("fftfreq", "rfftfreq")
SIZES = (1, 2, 3, 4, 5, 8, 9, 97, 98, 1024, 4095)


def _count(name: str, n: int) -> int:
    return n if name == "fftfreq" else n // 2 + 1


@pytest.mark.parametrize("name", NAMES)
@given(
    n=st.sampled_from(SIZES) | st.integers(1, 5000), d=st.floats(1e-6, 1e6) | st.sampled_from([1, -0.5, np.float32(3)])
)
def test_numpys_values_rounded_once(name: str, n: int, d: Any) -> None:
    """Catches a sign or the middle in the wrong half, arithmetic in float32, and a spacing ignored."""
    y, truth = getattr(mf, name)(n, d), getattr(np.fft, name)(n, float(d))
    assert y.dtype == np.float32 and y.shape == (_count(name, n),)
    np.testing.assert_array_equal(y, truth.astype(np.float32))
    with jax.enable_x64(True):
        wide = getattr(mf, name)(n, d)
        assert wide.dtype == np.float64
        np.testing.assert_array_equal(wide, truth)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float32"])
@given(top=st.integers(1, 2**12))
def test_narrow_types_are_nearest(dtype: str, top: int) -> None:
    """Catches a second rounding: 1 / d is just above or below a tie of the type, by less than float32 resolves."""
    kind = jnp.dtype(dtype)
    bits = jnp.finfo(kind).nmant
    tie = Fraction(2 * (2**bits + top % 2**bits) + 1, 2 ** (bits + 1))
    for side in (-1, 1):
        d = 1 / (2 * float(tie + side * Fraction(1, 2**40)))
        value = Fraction(1 / (2 * d))
        assert value != tie
        y = mf.fftfreq(2, d, dtype=kind)
        low, high = (tie + Fraction(s, 2 ** (bits + 1)) for s in (-1, 1))
        assert y.dtype == kind and abs(Fraction(float(y[1]))) == (low if value < tie else high)


@pytest.mark.parametrize("name", NAMES)
@given(sizes=st.sampled_from(MESHES), many=st.integers(1, 40), kind=st.sampled_from(AxisType), data=st.data())
def test_shards_are_those_of_the_whole(
    name: str, sizes: tuple[int, ...], many: int, kind: AxisType, data: st.DataObject
) -> None:
    """Catches shards made at the wrong positions, mesh axes in the wrong order, and a sharding that is not the one."""
    kind = AxisType.Auto if kind == AxisType.Manual else kind
    axes = data.draw(
        st.permutations("xyzw"[: len(sizes)]).flatmap(lambda p: st.integers(0, len(p)).map(lambda k: p[:k]))
    )
    devices = mesh(sizes, kind)
    count = many * math.prod(devices.shape[a] for a in axes)
    n = count if name == "fftfreq" else max(2 * count - 2 + data.draw(st.integers(0, 1)), 1)
    sharding = NamedSharding(devices, P(tuple(axes) or None))
    y = getattr(mf, name)(n, 0.25, device=sharding)
    assert y.sharding == sharding and y.shape == (count,)
    np.testing.assert_array_equal(y, getattr(np.fft, name)(n, 0.25).astype(np.float32))


def test_no_device_sees_more_than_its_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a whole array made, on a device or on the host, and cut up afterwards."""
    made: list[int] = []
    arange = np.arange

    def counted(*args: Any, **kwargs: Any) -> np.ndarray:
        made.append(len(positions := arange(*args, **kwargs)))
        return positions

    sharding = NamedSharding(mesh((8,)), P("x"))
    monkeypatch.setattr(np, "arange", counted)
    with jax.transfer_guard_device_to_device("disallow_explicit"):
        y = mf.fftfreq(8 * 321, device=sharding)
    assert made and max(made) == 321 and {s.data.shape for s in y.addressable_shards} == {(321,)}


def test_under_jit_they_are_constants() -> None:
    """Catches frequencies that cannot be made while tracing, with a sharding or without."""
    sharding = NamedSharding(mesh((8,), AxisType.Explicit), P("x"))
    x = jax.device_put(np.ones(16, np.float32), sharding)
    np.testing.assert_array_equal(jax.jit(lambda x: x * mf.fftfreq(16, device=sharding))(x), np.fft.fftfreq(16))
    np.testing.assert_array_equal(jax.jit(lambda: 2 * mf.rfftfreq(16))(), 2 * np.fft.rfftfreq(16))


def test_frequencies_stand_where_a_shifted_spectrum_has_them() -> None:
    """Catches grids that do not rise once they are shifted as the spectrum is."""
    sharding = NamedSharding(mesh((5,)), P("x"))
    shifted = np.asarray(mf.fftshift(mf.fftfreq(15, device=sharding)))
    np.testing.assert_array_equal(shifted, (np.arange(-7, 8) * (1 / 15)).astype(np.float32))


def _smooth(n: int, top: int) -> bool:
    """True where no prime factor is above `top`, by trial."""
    for p in (2, 3, 5, 7, 11):
        while p <= top and n % p == 0:
            n //= p
    return n == 1


@given(target=st.integers(1, 3000), parts=st.integers(1, 20), real=st.booleans())
def test_the_least_fast_length_that_shards_divide(target: int, parts: int, real: bool) -> None:
    """Catches a length that is not the least, not fast, or not divided, by trying all of them."""
    n = target
    while n % parts or not _smooth(n // parts, 5 if real else 11):
        n += 1
    assert mf.next_fast_len(target, real, parts=parts) == n


SHARDED = NamedSharding(mesh((4,)), P("x"))
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "n = 0": (lambda: mf.fftfreq(0), ValueError, "n is 0: .* at least one point"),
    "n < 0": (lambda: mf.rfftfreq(-3), ValueError, "n is -3"),
    "n real": (lambda: mf.fftfreq(4.0), TypeError, "n is 4.0: give .* integer"),  # type: ignore[arg-type]
    "n bool": (lambda: mf.fftfreq(True), TypeError, "n is True"),
    "n array": (lambda: mf.rfftfreq(np.array([4, 5])), ValueError, "n is array.*integer"),  # type: ignore[arg-type]
    "n traced": (lambda: jax.jit(mf.fftfreq)(4), TypeError, "n is .*: give .* integer"),
    "d = 0": (lambda: mf.fftfreq(4, 0), ValueError, "d is 0.0: give .* neither zero"),
    "d nan": (lambda: mf.rfftfreq(4, float("nan")), ValueError, "d is nan: give .* finite"),
    "d tiny": (lambda: mf.fftfreq(1, 5e-324), ValueError, "d is 5e-324: give .* overflows"),
    "d complex": (lambda: mf.fftfreq(4, 1j), TypeError, "d is 1j: give .* real number"),  # type: ignore[arg-type]
    "d text": (lambda: mf.fftfreq(4, "1"), TypeError, "d is '1'"),  # type: ignore[arg-type]
    "d is a list": (lambda: mf.fftfreq(4, [1, 2]), ValueError, r"d is \[1, 2\]: .* one real number"),  # type: ignore[arg-type]
    "d traced": (lambda: jax.jit(lambda d: mf.fftfreq(4, d))(1.0), TypeError, "known before tracing"),
    "dtype": (lambda: mf.fftfreq(4, dtype="complex64"), TypeError, "dtype is complex64: .* give float32"),
    "dtype int": (lambda: mf.rfftfreq(4, dtype=int), TypeError, "dtype is int64"),
    "float64 off": (lambda: mf.fftfreq(4, dtype="float64"), ValueError, "jax_enable_x64"),
    "uneven": (
        lambda: mf.fftfreq(10, device=SHARDED),
        ValueError,
        r"4 shards of .*'x'.* do not divide 10 .*mf.shard\(np.fft.fftfreq\(10, d\), mesh, spec\)",
    ),
    "uneven r": (lambda: mf.rfftfreq(8, device=SHARDED), ValueError, r"do not divide 5 .*rfftfreq\(8, d\)"),
    "two dimensions": (
        lambda: mf.fftfreq(8, device=NamedSharding(mesh((2, 2)), P("x", "y"))),
        ValueError,
        "2 entries, the array has 1",
    ),
    "spec": (lambda: mf.fftfreq(8, device=P("x")), TypeError, "give a device or a jax.sharding.NamedSharding"),
    "n is a list": (lambda: mf.fftfreq([4, 5]), ValueError, r"n is \[4, 5\]: give an integer"),  # type: ignore[arg-type]
    "no devices": (
        lambda: mf.fftfreq(8, device=NamedSharding(AbstractMesh((2,), ("x",)), P("x"))),
        TypeError,
        "over a mesh of devices",
    ),
    "target = 0": (lambda: mf.next_fast_len(0), ValueError, "target is 0: .* at least one point"),
    "target real": (lambda: mf.next_fast_len(7.5), TypeError, "target is 7.5: give .* integer"),  # type: ignore[arg-type]
    "target large": (lambda: mf.next_fast_len(2**80), ValueError, "too large for a transform: give a length below"),
    "target too large": (lambda: mf.next_fast_len(2**62), ValueError, "too large for a transform: give a length below"),
    "parts": (lambda: mf.next_fast_len(7, parts=0), ValueError, "parts is 0: give the number of shards"),
    "parts text": (lambda: mf.next_fast_len(7, parts="x"), TypeError, "parts is 'x'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_a_device_may_be_named(name: str) -> None:
    """Catches frequencies that stay on the first device."""
    third = jax.devices()[3]
    for device in (third, SingleDeviceSharding(third)):
        y = getattr(mf, name)(9, device=device)
        assert y.devices() == {third}
        np.testing.assert_allclose(y, getattr(np.fft, name)(9), rtol=1e-7)


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
