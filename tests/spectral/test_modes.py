"""Spectra padded and truncated, against matrices with the place of every wave; and the bands they consist of."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import error, mesh, noise, separable
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives, every_collective, program_of
from meshfft.layout.layout import axis_sizes, even_cuts, from_spec
from meshfft.machine.chips import GENERIC
from meshfft.plans.primitive import bind
from meshfft.spectral.modes import bands_of
from meshfft.steps import Band, Bands
from meshfft.walks.walk import Walk

KINDS = (AxisType.Auto, AxisType.Explicit)
EITHER = slow_rows(lambda kind, flag: (kind == AxisType.Auto) == flag, KINDS, (False, True))
SPEC = P("x", "y", "z")


def _put(x: Any, spec: P = SPEC, kind: AxisType = AxisType.Explicit, sizes: tuple[int, ...] = (2, 2, 2)) -> Array:
    return jax.device_put(x, NamedSharding(mesh(sizes, kind), spec))


def _signed(n: int) -> list[int]:
    """Wavenumbers in NumPy's order, with the sign of n / 2 periods unchanged."""
    return [k if 2 * k < n else k - n for k in range(n)]


def _matrix(old: int, new: int) -> np.ndarray:
    """Indices of the waves of `old` points among those of `new`."""
    few = min(old, new)
    same = np.equal.outer(_signed(new), _signed(old)) & (2 * abs(np.array(_signed(old))) < few)
    found = same.astype(float)
    for sign_there, sign_here in itertools.product((1, -1), (1, -1)) if few % 2 == 0 else ():
        found[sign_there * few // 2 % new, sign_here * few // 2 % old] = 0.5 if new > old else 1.0
    return found


def _truth(x: np.ndarray, axes: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    return separable(x.astype(complex), [_matrix(x.shape[d], n) for d, n in zip(axes, sizes, strict=True)], axes)


def _sent(program: jax.stages.Compiled) -> int:
    return sum(one.times * one.bytes for one in every_collective(program_of(program)))


@given(cases(power=1), st.booleans(), st.booleans(), st.sampled_from(KINDS), st.data())
def test_every_wave_where_it_belongs(case: Case, pads: bool, half: bool, kind: AxisType, data: st.DataObject) -> None:
    """Catches a wave lost, twice or at another k, the Nyquist ones of even sizes, a factor, a gather, a lost sharding.

    Half spectra are those of real noise, so that the planes at the Nyquist frequencies are not nearly zero.
    """
    parts = from_spec(case.shape, axis_sizes(mesh(case.mesh)), case.spec).parts
    axes = [d for d in case.axes if not half or d != len(case.shape) - 1] + [len(case.shape) - 1] * half
    spec = P(*case.spec[: len(case.shape) - 1]) if half else case.spec
    parts = (*parts[:-1], 1) if half else parts
    small = [case.shape[d] for d in axes]
    large = [n + parts[d] * data.draw(st.integers(0, 3)) for n, d in zip(small, axes, strict=True)]
    old, new = (small, large) if pads else (large, small)
    shape = list(case.shape)
    for d, n in zip(axes, old, strict=True):
        shape[d] = n
    x = noise(shape, "float32" if half else "complex64")
    X = np.fft.fftn(x, axes=axes)
    truth = _truth(X, axes, new) * np.prod(new) / np.prod(old)
    if half:
        X, truth = X[..., : old[-1] // 2 + 1], truth[..., : new[-1] // 2 + 1]
    a = _put(X.astype("complex64"), spec, kind, case.mesh)
    hidden = spec if kind == AxisType.Auto and np.prod(case.mesh) > 1 else None
    how: Any = {"axes": axes, "spec": hidden, **({"kind": "rfft", "n": old[-1]} if half else {"kind": "fft"})}
    call = mf.pad_spectrum if pads else mf.truncate_spectrum
    program = jax.jit(lambda a: call(a, new, **how)).lower(a).compile()
    y = program(a)
    assert error(y, truth) <= 1e-6 and y.dtype == a.dtype
    assert y.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, spec), y.ndim)  # type: ignore[attr-defined]
    assert set(collectives(program)) <= {"collective-permute"}


@pytest.mark.parametrize(("coarse", "fine"), [((8, 6, 10), (12, 10, 15)), ((7, 9, 5), (12, 14, 8))])
def test_a_product_without_aliasing(coarse: tuple[int, ...], fine: tuple[int, ...]) -> None:
    """Catches a grid too fine or too coarse by a wave, and values of another scale: against the sum over all pairs."""
    u, v = (noise(coarse, "float32", seed) for seed in (0, 1))
    U, V = (np.fft.fftn(x) / x.size for x in (u, v))
    big = [_truth(X, (0, 1, 2), fine) for X in (U, V)]
    there = [np.fft.ifftn(X, norm="forward") for X in big]
    truth = _truth(np.fft.fftn(there[0] * there[1], norm="forward"), (0, 1, 2), coarse)
    a, b = (mf.rfftn(x, norm="forward") for x in (u, v))
    how: Any = {"kind": "rfft", "norm": "forward"}
    n = coarse[-1]
    a, b = (mf.irfftn(mf.pad_spectrum(X, fine, n=n, **how), fine, norm="forward") for X in (a, b))
    assert error(a, there[0].real) <= 1e-6
    found = mf.truncate_spectrum(mf.rfftn(a * b, norm="forward"), coarse, n=fine[-1], **how)
    assert error(found, truth[..., : n // 2 + 1]) <= 1e-6


@pytest.mark.quick(0, 2)
@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_samples_between_samples_and_back(n: int, norm: str | None) -> None:
    """Catches a factor that belongs to another norm, and a truncation that does not undo the padding."""
    x = noise((n, 6), "float32")
    X = mf.rfftn(x, norm=norm)
    fine = mf.pad_spectrum(X, (3 * n, 12), kind="rfft", norm=norm)
    y = mf.irfftn(fine, (3 * n, 12), norm=norm)
    assert error(y[::3, ::2], x) <= 1e-6
    assert error(mf.truncate_spectrum(fine, (n, 6), kind="rfft", norm=norm), np.asarray(X)) <= 1e-6


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "half"), slow_rows(lambda kind, half: (kind == AxisType.Auto) == half, KINDS, (False, True))
)
def test_gradients_are_the_transposed_bands(x64: None, kind: AxisType, half: bool) -> None:
    """Catches a gradient that gathers, or is not the transpose: of a quadratic function differences are exact."""
    shape, fine, spec = (8, 4, 6), (12, 8, 16 if half else 12), P("x", "y")
    how: dict[str, Any] = {"spec": spec} | ({"kind": "rfft", "n": 10} if half else {"kind": "fft"})
    x, t = (_put(noise(shape, "complex128", seed), spec, kind, (4, 2)) for seed in (0, 1))

    def loss(x: Array) -> Array:
        y = mf.pad_spectrum(x, fine, **how)
        back = {**how, "n": 16} if half else how
        z = mf.truncate_spectrum(
            y * np.arange(1, y.shape[2] + 1).astype(complex)[None, None], (8, 4, 10 if half else 6), **back
        )
        return jnp.sum(jnp.abs(z) ** 2)

    gradient = jax.jit(jax.grad(loss))
    slope = float(jnp.sum((gradient(x) * t).real))
    assert slope == pytest.approx(float(jax.jit(loss)(x + t) - jax.jit(loss)(x - t)) / 2, rel=1e-11)
    assert set(collectives(gradient.lower(x).compile())) <= {"collective-permute", "all-reduce"}


def test_planes_batches_and_one_device() -> None:
    """Catches planes that return joined, a missing conjugate of planes, and a batch that is not mapped."""
    X = np.fft.rfftn(noise((8, 4, 12), "float32")).astype("complex64")
    how: Any = {"kind": "rfft"}
    truth = np.asarray(mf.truncate_spectrum(X, (4, 4, 8), **how))
    re, im = mf.truncate_spectrum((_put(X.real, P("x")), _put(X.imag, P("x"))), (4, -1, 8), **how)
    assert error(re, truth.real) <= 1e-6 and error(im, truth.imag) <= 1e-6
    each = jax.jit(jax.vmap(lambda part: mf.truncate_spectrum(part, (2, 8), **how)))(_put(X, P("x", "y")))
    assert error(each, np.stack([mf.truncate_spectrum(part, (2, 8), **how) for part in X])) <= 1e-6


def test_no_numbers_stay_none() -> None:
    """Catches a division by the size of an axis that stays."""
    assert mf.pad_spectrum(np.ones((1, 0)), (2, -1), kind="fft").shape == (2, 0)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "half"), slow_rows(lambda kind, half: (kind == AxisType.Auto) == half, KINDS, (False, True))
)
def test_sizes_that_the_mesh_does_not_divide(kind: AxisType, half: bool) -> None:
    """Catches padding read as data, and results with the shape of their storage, forward and back."""
    coarse, fine, devices = (10, 9, 7 + half), (15, 14, 12), mesh((2, 2, 2), kind)
    X = np.fft.fftn(noise(coarse, "float32" if half else "complex64"))
    truth, last = _truth(X, (0, 1, 2), fine), 12 // 2 + 1 if half else 12
    X, truth = (X[..., : coarse[-1] // 2 + 1], truth[..., :last]) if half else (X, truth)
    a = mf.shard(X.astype("complex64"), devices, SPEC)
    there: Any = {"norm": "forward", "kind": "rfft" if half else "fft"}
    y: Any = jax.jit(lambda a: mf.pad_spectrum(a, fine, **there))(a)
    assert isinstance(y, mf.PaddedArray) and y.shape == truth.shape and error(mf.gather(y), truth) <= 1e-6
    back: Any = mf.truncate_spectrum(y, coarse, **there)
    assert isinstance(back, mf.PaddedArray) and back.shape == X.shape and error(mf.gather(back), X) <= 1e-6
    pad: Any = mf.pad_spectrum
    slope = jax.jit(jax.grad(lambda a: jnp.sum(jnp.abs(pad(a, fine, **there).stored) ** 2)))
    assert mf.gather(slope(a)).shape == X.shape


@pytest.mark.quick(0)
@pytest.mark.parametrize("n", [8, 9])
def test_half_a_spectrum_is_not_taken_for_a_whole_one(n: int) -> None:
    """Catches a forgotten kind that gives a wrong field (off by 95 %): of plain and of padded arrays, both ways."""
    x, m = noise((n, 8, 8), "float32"), 12
    X = mf.rfftn(mf.shard(x, mesh((2, 2)), P("x", "y")))
    assert isinstance(X, mf.PaddedArray) == (n == 9)
    for call, s in ((mf.pad_spectrum, (m, m, m // 2 + 1)), (mf.truncate_spectrum, (4, 4, 3))):
        with pytest.raises(TypeError, match="kind='rfft' if it is half of one, as rfftn makes"):
            call(X, s)
    fine = mf.irfftn(mf.pad_spectrum(X, (m,) * 3, kind="rfft"), s=(m,) * 3)
    whole = np.fft.ifftn(_truth(np.fft.fftn(x), (0, 1, 2), (m,) * 3) * m**3 / x.size).real
    assert error(fine, whole) <= 1e-6


RINGS = [((8,), ("x",)), ((2, 3), ("y", "x")), ((3, 2), ("x", "y"))]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("sizes", "axes"), RINGS)
@pytest.mark.parametrize(("old", "new"), [(7, 17), (16, 24), (24, 8), (13, 13)])
def test_bands_of_every_size_and_back(sizes: tuple[int, ...], axes: tuple[str, ...], old: int, new: int) -> None:
    """Catches blocks of unequal rows, cuts that do not nest, mesh axes in another order, and rows sent in vain."""
    devices = mesh(sizes)
    layout = from_spec((2, old), axis_sizes(devices), P(None, axes))
    cuts = from_spec((2, new), axis_sizes(devices), P(None, axes)).cuts[1]
    turn = (Band(0, 0, 1), Band(1, min(1, new - 1), min(old, new) - 1, 2.0, reverse=True))
    x = noise((2, old), "float32")
    stored = np.zeros(layout.storage, "float32")
    stored[:, :old] = x
    for bands in (bands_of(old, new, False) if old != new else turn, turn):
        walk = Walk(layout, (Bands(1, new, cuts, bands),))
        matrix = np.zeros((new, old))
        for band in bands:
            for i in range(band.rows):
                matrix[band.target + (band.rows - 1 - i if band.reverse else i), band.source + i] += band.weight
        truth = x @ matrix.T
        there = jax.jit(lambda a, walk=walk: bind([a], walk, devices)[0])
        back = jax.jit(lambda a, walk=walk: bind([a], walk.transpose(), devices)[0])
        y = there(_put(stored, P(None, axes), AxisType.Auto, sizes))
        np.testing.assert_allclose(np.asarray(y)[:, :new], truth, rtol=1e-6)
        assert not np.asarray(y)[:, new:].any()
        np.testing.assert_allclose(np.asarray(back(y))[:, :old], truth @ matrix, rtol=1e-5)
        program = there.lower(_put(stored, P(None, axes), AxisType.Auto, sizes)).compile()
        assert collectives(program) == walk.collectives and _sent(program) == walk.work(4, GENERIC).sent_bytes


@pytest.mark.parametrize("p", [2, 4, 8, 32])
def test_little_travels(p: int) -> None:
    """Catches rounds without end, and blocks sent many times, on long rings too: by 3/2 and back."""
    coarse, fine = from_spec((16 * p, 3), {"x": p}, P("x")), from_spec((24 * p, 3), {"x": p}, P("x"))
    for before, after in ((coarse, fine), (fine, coarse)):
        n, m = before.shape[0], after.shape[0]
        work = Bands(0, m, after.cuts[0], bands_of(n, m, False)).work(before, 8, GENERIC)
        assert work.hops <= 5 and work.sent_bytes <= 1.6 * 24 * 3 * 8


def test_bands_among_the_steps_of_a_walk() -> None:
    """Catches bands that another dimension moves, or that tables cannot name."""
    step = Bands(1, 9, even_cuts(9, []), bands_of(6, 9, False))
    walk = Walk(from_spec((4, 6), {}, P()), (step,)).insert(1, 5, even_cuts(5, []))
    assert walk.end.shape == (4, 5, 9) and walk.error(8) == 0 and walk.conjugate() == walk
    assert walk.steps[0].name(walk.start) == "bands of Z: 6 -> 9"
    assert walk.adjoint().adjoint() == walk


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "smaller": (
        lambda: mf.pad_spectrum(np.ones(8), (4,), kind="fft"),
        ValueError,
        "s is 4 along axis 0.*use truncate_spectrum",
    ),
    "larger": (
        lambda: mf.truncate_spectrum(np.ones(8), (9,), kind="fft"),
        ValueError,
        "s is 9 along axis 0.*use pad_spectrum",
    ),
    "one number": (
        lambda: mf.truncate_spectrum(np.ones((8, 8)), 4, kind="fft"),  # type: ignore[call-overload]
        ValueError,
        "s is 4 for 2 dimensions: give the points along each",
    ),
    "no sizes": (lambda: mf.pad_spectrum(np.ones(8), None, kind="fft"), TypeError, "s is None"),  # type: ignore[call-overload]
    "kind": (
        lambda: mf.pad_spectrum(np.ones(8), (9,), kind="dct"),
        ValueError,
        "kind 'dct' is unknown: give kind='fft' if X is a whole",
    ),
    "no kind": (
        lambda: mf.pad_spectrum(np.ones(8), (9,)),
        TypeError,
        "kind is missing: give kind='fft' .* or kind='rfft'",
    ),
    "n": (lambda: mf.pad_spectrum(np.ones(8), (20,), kind="rfft", n=13), ValueError, "half a spectrum of 14 or 15"),
    "n of a whole one": (
        lambda: mf.pad_spectrum(np.ones(8), (9,), n=8, kind="fft"),
        ValueError,
        "only with kind='rfft'",
    ),
    "norm": (lambda: mf.pad_spectrum(np.ones(8), (9,), norm="none", kind="fft"), ValueError, "norm 'none' is unknown"),
    "axes": (lambda: mf.pad_spectrum(np.ones(8), (9,), axes=(1,), kind="fft"), ValueError, "axis 1 is out of range"),
    "nothing": (lambda: mf.pad_spectrum(np.ones((1, 0)), (2, 2), kind="fft"), ValueError, "s is 2 along axis 1.* s=-1"),
    "half of nothing": (lambda: mf.pad_spectrum(np.ones(0), (2,), kind="rfft"), ValueError, "axis 0 has no numbers"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
