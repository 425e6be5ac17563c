"""FFTs by kernels of a TPU's vector unit: values as Pallas interprets them, against NumPy's in float64."""

import functools

import jax
import numpy as np
import pytest
from jax import Array
from marks import slow_but, slow_case
from reference import error, noise

from meshfft.tpu import fft
from meshfft.tpu.engines import VectorChirp
from meshfft.tpu.lines.radices import Pair, dft, radices
from meshfft.tpu.passes import ROOM, passes, run, supports

SMALL = 31 * 2**19  # bytes of fast memory that older TPUs give to kernels
FEW = 14 * 2**20  # too little for 128 rows or columns of 2048
TINY = 2**21  # less than any has, so that short lines are long
# shape, transformed dimensions, the kernels that do it
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], list[str]]] = {
    "untiled": ((24, 3, 5), (0,), ["first"]),
    "untiled, more behind": ((2, 32, 3, 8, 130), (1,), ["first"]),
    "sublanes": ((3, 64, 130), (1,), ["sublane"]),
    "one register": ((3, 8, 5), (1,), ["sublane"]),
    "registers that no eight divides": ((1, 1000, 3), (1,), ["sublane"]),
    "few registers": ((2, 40, 3), (1,), ["sublane"]),
    "lanes": ((5, 120), (1,), ["lane"]),
    "lanes of a batch": ((2, 3, 8), (2,), ["lane"]),
    "a plane": ((2, 40, 56), (1, 2), ["plane"]),
    "a plane of many tiles": ((1, 144, 280), (1, 2), ["plane"]),
    "planes beside each other": ((6, 144, 280), (1, 2), ["plane"]),
    "lanes of rows that fill no tile": ((2, 130, 24), (2,), ["lane"]),
    "three dimensions": ((9, 16, 24), (0, 1, 2), ["plane", "first"]),
    "ends": ((16, 8, 24), (0, 2), ["lane", "first"]),
    "long": ((2, 96, 3, 5), (1,), ["twisted", "second"]),
    "long along sublanes": ((2, 2240, 130), (1,), ["subtwisted", "subsecond"]),
    **{f"length {n}": ((n, 1, 2), (0,), ["first"]) for n in (8, 16, 27, 35, 49, 60, 125, 343, 2048)},
    **{f"length {n} of sublanes": ((n, 2), (0,), ["sublane"]) for n in (256, 512, 1024, 1400, 4096, 8192)},
    **{f"length {n} of lanes": ((2, n), (1,), ["lane"]) for n in (256, 512, 1000, 1024, 4096, 8192)},
    **{f"length {n} of sublanes, long": ((n, 2), (0,), ["subtwisted", "subsecond"]) for n in (4096, 5120, 8192)},
    **{f"length {n} of lanes, long": ((17, n), (1,), ["lane"]) for n in (2048, 3072, 4096, 8192)},
    **{f"a plane of {n}": ((1, n, n), (1, 2), ["plane"]) for n in (256, 512, 1024)},
}
QUICK = (
    "untiled",
    "long",
    "long along sublanes",
    "sublanes",
    "registers that no eight divides",
    "lanes",
    "a plane",
    "three dimensions",
)


def kinds_of(shape: tuple[int, ...], dims: tuple[int, ...], room: int) -> list[str]:
    return [kind for one in passes(shape, dims, room) for kind in one.kinds]


def transformed(x: np.ndarray, dims: tuple[int, ...], sign: int, room: int) -> np.ndarray:
    """The transform by kernels alone."""

    def by_kernels(*planes: Array) -> tuple[Array, ...]:
        return run(planes, x.shape, dims, sign, room, interpret=True)

    re, im = jax.jit(by_kernels)(x.real, x.imag)
    return np.asarray(re, float) + 1j * np.asarray(im, float)


SIGNS = {name: (-1) ** j for j, name in enumerate(QUICK)}  # a kernel has a sign in its tables and butterflies alone


@pytest.mark.quick(0)
@pytest.mark.parametrize(("name", "sign"), [*SIGNS.items(), *(slow_case(name, -SIGNS.get(name, 1)) for name in CASES)])
def test_values_of_every_kernel(name: str, sign: int) -> None:
    """Catches a twiddle of another position, rows or columns beyond the end that affect the rest, and an order of
    digits that is not undone; for both signs.
    """
    shape, dims, kinds = CASES[name]
    x, room = noise(shape, seed=len(shape)), TINY if "second" in kinds else FEW if "long" in name else ROOM
    assert kinds_of(shape, dims, room) == kinds
    exact = np.fft.fftn(x, axes=dims) if sign < 0 else np.fft.ifftn(x, axes=dims, norm="forward")
    assert error(transformed(x, dims, sign, room), exact) <= 2e-7


@pytest.mark.more
@pytest.mark.parametrize(("shape", "dims"), [((130, 3, 16), (2,)), ((136, 8, 24), (1, 2)), ((144, 16), (1,))])
def test_dimensions_in_the_order_in_which_a_tpu_keeps_them(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Catches dimensions that are brought back to other places, or transformed in their stead."""
    x = noise(shape, seed=1)
    (taken,) = fft.in_orders(shape, dims)
    assert taken.order != tuple(range(len(shape)))
    re, im = jax.jit(lambda re, im: fft.fft((re, im), dims, -1, interpret=True))(x.real, x.imag)
    assert error(np.asarray(re) + 1j * np.asarray(im), np.fft.fftn(x, axes=dims)) <= 2e-7


MOVED: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "a last dimension": ((5, 24, 100), (2,), 2),
    "both of the last two": ((3, 60, 90), (1, 2), 3),
    "the last two of four": ((3, 2, 20, 12), (1, 2, 3), 2),
    "one that lies well": ((60, 8, 500), (0, 2), 2),
}


@pytest.mark.more
@pytest.mark.parametrize("name", slow_but(("a last dimension",), MOVED))
def test_dimensions_that_are_brought_to_where_they_have_kernels(name: str) -> None:
    """Catches a dimension that returns to another's place, or is left out, and copies that are not counted."""
    shape, dims, copies = MOVED[name]
    assert not all(supports(shape, d) for d in dims)
    assert len(fft.in_orders(shape, dims, ROOM)) == copies
    x = noise(shape, seed=7)
    for sign in (-1, 1):
        exact = np.fft.fftn(x, axes=dims) if sign < 0 else np.fft.ifftn(x, axes=dims, norm="forward")
        re, im = jax.jit(functools.partial(_fft, dims=dims, sign=sign, room=ROOM))(x.real, x.imag)
        assert error(np.asarray(re, float) + 1j * np.asarray(im, float), exact) <= 2e-7


def test_the_order_in_which_a_tpu_keeps_dimensions() -> None:
    """Catches another rule than that of libtpu 0.0.52, whose choices these are."""
    kept: dict[tuple[int, ...], tuple[int, ...]] = {
        (1000, 1000, 1000): (0, 1, 2),
        (64, 500, 500): (1, 0, 2),
        (512, 512, 192): (0, 2, 1),
        (64, 64, 64): (0, 1, 2),
    }
    kept |= {(128, 4, 512): (0, 1, 2), (2048, 64, 64): (1, 2, 0), (8192, 64): (1, 0), (4, 1000, 100): (2, 0, 1)}
    kept |= {(3, 5, 1000, 100): (0, 1, 3, 2), (128, 500, 100): (2, 1, 0), (500, 128, 100): (2, 0, 1), (5,): (0,)}
    for shape, order in kept.items():
        assert fft.kept_order(shape) == order, shape


def _fft(re: Array, im: Array, dims: tuple[int, ...], sign: int, room: int) -> tuple[Array, ...]:
    return fft.fft((re, im), dims, sign, room, interpret=True)


def _whole(pair: Pair) -> np.ndarray:
    """A sum of two parts, either of which may be zero."""
    re, im = (np.zeros(3) if part is None else np.asarray(part) for part in pair)
    return re + 1j * im


@pytest.mark.parametrize("radix", [1, 2, 3, 4, 5, 7, 8, 16])
def test_butterflies(radix: int) -> None:
    """Catches a wrong root of unity, or sign, and a part that is zero and is taken for another."""
    x = noise((radix, 3), "complex128")
    for sign in (-1, 1):
        y = dft([(row.real, row.imag) for row in x], sign)
        exact = np.fft.fft(x, axis=0) if sign < 0 else np.fft.ifft(x, axis=0, norm="forward")
        assert error(np.array([_whole(one) for one in y]), exact) <= 1e-15
        half = dft([(row.real, None) for row in x[: radix // 2 + 1]] + [(None, None)] * ((radix - 1) // 2), sign)
        few = np.where(np.arange(radix)[:, None] <= radix // 2, x.real, 0)
        exact = np.fft.fft(few, axis=0) if sign < 0 else np.fft.ifft(few, axis=0, norm="forward")
        assert error(np.array([_whole(one) for one in half]), exact) <= 1e-15


def test_radices_and_what_fits() -> None:
    """Catches a length that kernels are taken for and have none, and a plane that fast memory does not hold."""
    for n in range(1, 3000):
        assert not radices(n) or np.prod(radices(n)) == n
    assert radices(1024) == (16, 8, 8) and radices(11) == () and radices(77) == ()
    assert kinds_of((8, 1024, 1024), (1, 2), SMALL) == ["lane", "sublane"]
    assert kinds_of((8, 256, 256), (1, 2), SMALL) == ["plane"]
    assert kinds_of((8, 1, 256), (0, 1), SMALL) == ["first"]
    assert kinds_of((8192, 8, 128), (0,), SMALL) == ["twisted", "second"]
    assert kinds_of((8, 8192, 8192), (1, 2), SMALL) == ["lane", "subtwisted", "subsecond"]
    assert not supports((8, 2800), 1, SMALL) and supports((8, 2800), 1)  # no multiple of 1024
    for shape, dim in (((8, 4, 500), 2), ((500, 500), 0), ((22, 8, 8), 0), ((8, 8191), 1), ((8, 2**20), 1)):
        assert not supports(shape, dim), (shape, dim)
    with pytest.raises(AssertionError, match="136 along dimension 1 have no kernel"):
        passes((1, 136, 256), (1, 2))  # 17 registers
    assert supports((500, 8, 8), 0) and supports((8, 1, 8), 1)


@pytest.mark.quick(2, 5)
@pytest.mark.parametrize(("shape", "dim"), [((2, 97, 8, 128), 1), ((11, 3, 130), 0), ((3, 16, 251), 2), ((1, 13), 1)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_prime_length_by_kernels_of_another(shape: tuple[int, ...], dim: int, sign: int) -> None:
    """Catches a chirp of the wrong sign or length, halves exchanged, and the scale of the way back left out."""
    x = noise(shape, seed=dim)
    found = jax.jit(lambda re, im: VectorChirp(ROOM).apply((re, im), (dim,), sign))(x.real, x.imag)
    exact = np.fft.fft(x, axis=dim) if sign < 0 else np.fft.ifft(x, axis=dim, norm="forward")
    assert error(np.asarray(found[0], float) + 1j * np.asarray(found[1], float), exact) <= 4e-7
