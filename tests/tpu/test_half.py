"""Kernels between real lines and half spectra: values as Pallas interprets them, against NumPy's in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from marks import slow_but
from reference import error, noise

from meshfft.tpu.fft import real_fft
from meshfft.tpu.lines.short import real_kernel
from meshfft.tpu.passes import ROOM

SMALL = 15 * 2**20  # bytes of fast memory of older TPUs, which cannot reverse a register
CASES: dict[str, tuple[tuple[int, ...], int]] = {
    "one register": ((5, 8), 1),
    "one register a radix": ((2, 3, 24), 1),
    "odd number of registers": ((2, 120), 1),
    "two radices": ((3, 256), 1),
    "more rows than a tile": ((130, 64), 1),
    "a plane": ((2, 40, 56), 2),
    "a plane of many tiles": ((1, 144, 280), 2),
    **{f"length {n}": ((2, n), 1) for n in (512, 1000, 1024, 1400, 2048)},
    **{f"a plane of {n}": ((1, n, n), 2) for n in (256, 512)},
}
ONCE = {"a plane": 1, "one register a radix": 1}  # too short to be mirrored: for one sign
QUICK = ("one register", "odd number of registers", "two radices", "a plane")


def _exact(x: np.ndarray, many: int, sign: int) -> np.ndarray:
    axes = tuple(range(-many, 0))
    return np.fft.fftn(x, axes=axes) if sign < 0 else np.fft.ifftn(x, axes=axes, norm="forward")


@pytest.mark.quick(0)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_values_there_and_onto_real_lines(name: str) -> None:
    """Catches a mirror image in another's row, X[0] or X[N / 2] counted twice or not at all, a sign, and rows or
    columns beyond the end that affect the rest; with registers reversed and without.
    """
    shape, many = CASES[name]
    bins = shape[-1] // 2 + 1
    x, w = noise(shape, "float32", seed=1), noise((*shape[:-1], bins), "complex64", seed=2)
    padded = np.concatenate([w, np.zeros((*shape[:-1], shape[-1] - bins))], axis=-1)
    mirrored = shape[-1] // 16 + 1 >= 8  # or the kernels are the same on both
    for sign, room in ((-1, ROOM), (1, SMALL))[ONCE.get(name, 0) :][: 1 + (mirrored and max(shape) < 1024)]:

        def there(x: Array, sign: int = sign, room: int = room) -> tuple[Array, ...]:
            return real_fft((x,), many, shape[-1], sign, room, False, interpret=True)

        def onto(re: Array, im: Array, sign: int = sign, room: int = room) -> Array:
            return real_fft((re, im), many, shape[-1], sign, room, True, interpret=True)[0]

        re, im = (np.asarray(part, float) for part in jax.jit(there)(x))
        assert error(re + 1j * im, _exact(x.astype(float), many, sign)[..., :bins]) <= 2e-7
        assert error(np.asarray(jax.jit(onto)(w.real, w.imag)), _exact(padded, many, sign).real) <= 2e-7
        if many == 1:
            assert np.all(im[..., 0] == 0) and np.all(im[..., -1] == 0), "real lines have real ends"


@pytest.mark.more
def test_lines_do_not_reach_each_other() -> None:
    """Catches lines that are transformed two at a time as one complex line: a NaN, or a large one, would spoil both."""
    x = noise((256, 64), "float32", seed=3)
    x[3] = np.nan
    x[5] *= 1e20
    re, im = (np.asarray(part) for part in real_fft((jnp.asarray(x),), 1, 64, -1, ROOM, False, interpret=True))
    exact = np.fft.rfft(x.astype(float))
    assert np.isnan(re[3]).all()
    for row in (0, 4, 5, 131, 133, 255):
        assert error(re[row] + 1j * im[row], exact[row]) <= 2e-7, row


@pytest.mark.quick(1)
@pytest.mark.parametrize("interpret", [True, False])
def test_each_is_the_others_transpose(interpret: bool) -> None:
    """Catches a gradient by another transform, or of the other sign."""
    x, w = noise((3, 48), "float32", seed=4), noise((3, 25), "complex64", seed=5)
    (re, im), back = jax.vjp(lambda x: real_fft((x,), 1, 48, -1, ROOM, False, interpret), x)
    (ct,) = back((w.real, w.imag))
    there = np.vdot(re, w.real) + np.vdot(im, w.imag)
    assert abs(there - np.vdot(x, ct)) <= 1e-5 * np.linalg.norm(x) * np.linalg.norm(ct)
    if interpret:
        return  # the other direction has the same two kernels
    (y,), back = jax.vjp(lambda re, im: real_fft((re, im), 1, 48, 1, ROOM, True, interpret), w.real, w.imag)
    ct_re, ct_im = back((x,))
    assert abs(np.vdot(y, x) - np.vdot(w.real, ct_re) - np.vdot(w.imag, ct_im)) <= 1e-5 * np.linalg.norm(x) ** 2


def test_which_lines_have_kernels() -> None:
    """Catches a kernel offered for lines that no radix divides, or that fast memory does not hold."""
    assert real_kernel((4, 100), 1, -1, ROOM) is None and real_kernel((4, 88), 1, -1, ROOM) is None
    assert real_kernel((4, 12, 64), 2, -1, ROOM) is None and real_kernel((4, 12, 64), 1, -1, ROOM) is not None
    assert real_kernel((4, 2048, 2048), 2, -1, SMALL) is None
