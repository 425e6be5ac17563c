"""Windows of gridding: their errors, their transforms, and what is refused."""

import numpy as np
import pytest

from meshfft.numerics.window import BEST, Window, best_bandwidth, errors, fitted, window

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
    """Catches a factor, or cycles that are taken for radians."""
    one, x = fitted(5, 2.0), np.linspace(-2.5, 2.5, 200001)
    for xi in (0.0, 0.1, 0.25):
        sums = np.sum(one.values(x / 2.5) * np.cos(2 * np.pi * xi * x)) * (x[1] - x[0])
        assert abs(one.transform(np.array(xi)) - sums) < 1e-9


def test_width_follows_the_tolerance() -> None:
    """Catches a tolerance that is met in one dimension only, and a window wider than it need be."""
    widths = {tol: window(tol, 2.0, 2, np.dtype("complex128")).width for tol in (1e-2, 1e-3, 1e-4, 1e-6, 1e-9, 1e-12)}
    assert widths == {1e-2: 3, 1e-3: 4, 1e-4: 5, 1e-6: 7, 1e-9: 10, 1e-12: 13}
    assert window(1e-6, 1.7, 3, np.dtype("complex64")).error * 3**0.5 <= 1e-6
    assert isinstance(window(1e-3, 1.25, 3, np.dtype("complex64")), Window)


def test_what_cannot_be_had_is_refused() -> None:
    """Catches a tolerance below rounding that is promised in silence."""
    single, double = np.dtype("complex64"), np.dtype("complex128")
    for tol, sigma, dtype, said in (
        (1e-9, 2.0, single, "precision='float64'"),
        (1e-14, 2.0, double, "tol >= 1e-12"),
        (0.0, 2.0, single, "tol is 0"),
        (1e-3, 1.0, single, "sigma is 1"),
        (1e-12, 1.1, double, "larger sigma"),
    ):
        with pytest.raises(ValueError, match=said):
            window(tol, sigma, 2, dtype)
