"""Windows of gridding: their errors, their transforms, and refusals."""

import math

import numpy as np
import pytest
import scipy.fft

from meshfft.nufft.grid.window import BEST, Window, best_bandwidth, errors, fitted, gain, window

# Errors of the prolate function itself, by width from 3 on (as finufft's documentation and the fit's source have it).
TABLE = {
    2.0: (3.7e-3, 3.9e-4, 4.0e-5, 4.2e-6, 4.4e-7, 4.5e-8, 4.7e-9),
    1.5: (9.2e-3, 1.4e-3, 2.1e-4, 3.2e-5, 4.8e-6, 7.6e-7, 1.1e-7),
    1.25: (2.1e-2, 4.7e-3, 1.1e-3, 2.5e-4, 5.8e-5, 1.3e-5, 3.0e-6),
}


@pytest.mark.parametrize("sigma", TABLE)
def test_a_window_is_as_good_as_the_prolate_function(sigma: float) -> None:
    """Catches a wrong bandwidth, degree or variable of the polynomial: errors lose a digit at once."""
    for width, wanted in enumerate(TABLE[sigma], 3):
        one = fitted(width, sigma)
        assert 0.9 * wanted < one.error < 1.2 * wanted
        assert (one.error, one.worst) == errors(one.values, width, sigma)


def test_the_table_of_bandwidths_is_what_the_search_finds() -> None:
    """Catches a number that was mistyped."""
    for sigma, (ratios, degrees) in BEST.items():
        assert len(ratios) == len(degrees) == 15
        assert abs(best_bandwidth(6, sigma) - ratios[4]) < 2e-3


def test_the_transform_is_the_integral() -> None:
    """Catches a factor, cycles taken for radians, too few nodes or terms: sums over z = sin t converge at once."""
    t = (np.arange(4000) + 0.5) / 4000 * np.pi - np.pi / 2
    for width, sigma in ((2, 1.25), (5, 2.0), (13, 2.0), (16, 1.5)):
        one, xi = fitted(width, sigma), np.append(np.random.default_rng().uniform(-0.5, 0.5, 40), [0, 0.5, -0.5])
        terms = one.values(np.sin(t)) * np.cos(t) * np.cos(np.pi * width * xi[:, None] * np.sin(t))
        truth = terms.mean(1) * np.pi * width / 2
        assert np.abs(one.transform(xi) - truth).max() < 1e-13 * truth.max()
        assert abs(one.transform(xi[:1])[0] - truth[0]) < 1e-13 * truth.max()
        assert abs(one.transform(np.array(0.0)) - truth[40]) < 1e-13 * truth.max()


def test_width_follows_the_tolerance() -> None:
    """Catches a tolerance that is met in one dimension only, and a window wider than it need be."""
    widths = {tol: window(tol, 2.0, 2, np.dtype("complex128")).width for tol in (1e-2, 1e-3, 1e-4, 1e-6, 1e-9, 1e-12)}
    assert widths == {1e-2: 4, 1e-3: 5, 1e-4: 6, 1e-6: 8, 1e-9: 11, 1e-12: 14}
    assert window(1e-6, 1.7, 3, np.dtype("complex64")).worst * 3 <= 1e-6
    assert isinstance(window(1e-3, 1.25, 3, np.dtype("complex64")), Window)


@pytest.mark.parametrize(("sigma", "width"), [(2.0, 11), (2.0, 13), (1.5, 11), (1.25, 14)])
def test_no_mode_between_those_sampled_errs_by_more(sigma: float, width: int) -> None:
    """Catches modes too far apart to see the largest error, close to the end of the band: 1.3 to 2.1 times."""
    one, modes = fitted(width, sigma), np.linspace(0.49, 0.5, 101) / sigma
    for t in np.linspace(0, 1, 21):
        cells = np.arange(width) - (width / 2 - 1 + t)
        sums = np.exp(-2j * np.pi * np.outer(modes, cells)) @ one.values(cells * 2 / width)
        assert np.abs(sums / one.transform(modes) - 1).max() <= one.worst


def test_the_width_leaves_room_for_rounding() -> None:
    """Catches a tolerance that is refused, because one window just misses it with rounding, where the next one has it.

    7 cells have 2.46e-6, and complex64 rounds by 1e-7.
    """
    assert window(2.5e-6, 2.0, 1, np.dtype("complex64")).width == 8
    assert window(2.5e-6, 2.0, 1, np.dtype("complex128")).width == 7


def test_what_cannot_be_had_is_refused() -> None:
    """Catches a tolerance below rounding that is silently promised."""
    single, double = np.dtype("complex64"), np.dtype("complex128")
    for tol, sigma, dtype, said in (
        (1e-9, 2.0, single, "precision='float64'"),
        (1e-14, 2.0, double, r"tol >= 1e-12, or the sum itself: method='kdft', or for a plan mf\.plan"),
        (0.0, 2.0, single, "tol is 0"),
        (1e-3, 1.0, single, "sigma is 1"),
        (1e-12, 1.1, double, "larger sigma"),
        (1e-6, 1.25, single, r"magnify the rounding of complex64 to .e-04; use sigma=2, tol >= .e-04 or precision"),
    ):
        with pytest.raises(ValueError, match=said):
            window(tol, sigma, 2, dtype)


@pytest.mark.parametrize(("sigma", "width", "dims"), [(2.0, 7, 3), (1.5, 9, 3), (1.25, 11, 2)])
def test_rounding_is_magnified_as_foretold(sigma: float, width: int, dims: int) -> None:
    """Catches a refusal without reason, and a promise broken thirtyfold: the error of a float32 FFT, measured."""
    n, rng = 24, np.random.default_rng()
    one, g = fitted(width, sigma), math.ceil(sigma * n)
    y = x = rng.standard_normal((n,) * dims) + 1j * rng.standard_normal((n,) * dims)
    for _ in range(dims):  # along each dimension
        y = np.moveaxis(y / one.transform((np.arange(n) - n // 2) / g), -1, 0)
    noise = np.fft.ifftn(scipy.fft.fftn(y.astype("complex64"), (g,) * dims) - scipy.fft.fftn(y, (g,) * dims))
    for _ in range(dims):  # the window's effect, on average over places
        noise = np.moveaxis(noise * one.transform(((np.arange(g) - n // 2 + g // 2) % g - g // 2) / g), -1, 0)
    found = np.linalg.norm(noise) / np.linalg.norm(x)
    assert 0.25 < found / (float(np.finfo("float32").eps) * gain(one) ** dims) < 2
