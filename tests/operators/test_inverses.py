"""Fourier matrices of arbitrary points, against exact rational arithmetic, and their inverses, by recovered samples."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from meshfft.numerics.phases import MAX_LENGTH
from meshfft.operators import inverses as inverting
from meshfft.operators.inverses import (
    _bjorck_pereyra,
    _leja,
    _magnitudes,
    _norm,
    _phasors,
    host_vandermonde,
    invert,
)

RNG = np.random.default_rng(2024)
TURNS = np.concatenate([[0.0, 0.5, 0.125, 1 / 3, -7.3, 1e-20, 0.5 - 2**-54, 123456.789], RNG.uniform(-1, 1, 8)])


def phasor(turns: float, n: int) -> complex:
    """exp(-2 pi i n turns) of exactly the float `turns`: whole and quarter periods removed as integers."""
    phase = Fraction(float(turns)) * n % 1
    quarter = round(4 * phase)
    angle = 2 * math.pi * float(phase - Fraction(quarter, 4))
    return complex(math.cos(angle), -math.sin(angle)) * (1, -1j, -1, 1j)[quarter % 4]


def power(log_radius: float, n: int) -> float:
    """exp(-n log_radius) of the very float, in 40 digits."""
    with localcontext() as context:
        context.prec = 40
        return float((-n * Decimal(float(log_radius))).exp())


def jitter(n: int, cells: float, seed: int = 1) -> np.ndarray:
    """n points of the circle, each displaced by up to `cells` cells."""
    return (np.arange(n) + cells * np.random.default_rng(seed).uniform(-1, 1, n)) / n


def recovered(turns: np.ndarray, log_radius: np.ndarray | None, n: int, found: inverting.Inverse) -> float:
    """The error of samples sent to the points and back, each weighted as the transform weights it: by rho^-n."""
    x = np.random.default_rng(3).standard_normal((n, 4)) + 1j * np.random.default_rng(4).standard_normal((n, 4))
    weights = np.ones(n) if log_radius is None else np.exp(-np.arange(n) * np.mean(log_radius))
    x /= weights[:, None]
    back = found.matrix @ (host_vandermonde(turns, log_radius, n) @ x)
    return float(np.linalg.norm(weights[:, None] * (back - x)) / np.linalg.norm(weights[:, None] * x))


@pytest.mark.parametrize("n", [64, 4096, 65_536])
def test_phases_are_exact_at_every_length(n: int) -> None:
    """Catches a product n t rounded before its whole periods are dropped: 1e-14 off at N = 64, 2e-11 at 65,536."""
    columns = np.unique(np.concatenate([[0, 1, n - 1], RNG.integers(0, n, 40)]))
    truth = np.array([[phasor(t, int(k)) for k in columns] for t in TURNS])
    matrix = host_vandermonde(TURNS, None, n)
    assert matrix.shape == (len(TURNS), n) and matrix.dtype == np.complex128
    assert np.abs(matrix[:, columns] - truth).max() <= 4e-16


def test_phases_are_exact_up_to_the_longest_length() -> None:
    """Catches digits too wide: at n near 2^29 their product with n no longer fits in 53 bits."""
    columns = MAX_LENGTH - 1 - RNG.integers(0, MAX_LENGTH // 2, 50)
    truth = np.array([[phasor(t, int(k)) for k in columns] for t in TURNS])
    assert np.abs(_phasors(TURNS[:, None], columns.astype(np.float64)) - truth).max() <= 4e-16


@pytest.mark.parametrize("n", [64, 4096, 65_536])
def test_magnitudes_keep_every_digit_off_the_circle(n: int) -> None:
    """Catches exp of a rounded n L: where n L is 700 that is wrong by 1e-13; and the sign of the exponent."""
    logs = np.concatenate([[0.0, 700 / n, -700 / n, 1e-300], RNG.uniform(-1, 1, 12) * 690 / n])
    columns = np.unique(np.concatenate([[0, 1, n - 1], RNG.integers(0, n, 40)]))
    truth = np.array(
        [[phasor(t, int(k)) * power(r, int(k)) for k in columns] for t, r in zip(TURNS, logs, strict=True)]
    )
    matrix = host_vandermonde(TURNS, logs, n)[:, columns]
    assert (np.abs(matrix - truth) / np.abs(truth)).max() <= 1e-15
    longest = _magnitudes(logs[:, None] * n / MAX_LENGTH, np.array([MAX_LENGTH - 1.0]))
    truth = np.array([power(r * n / MAX_LENGTH, MAX_LENGTH - 1) for r in logs])
    assert (np.abs(longest[:, 0] - truth) / truth).max() <= 1e-15


def test_blocks_of_rows_join_and_powers_out_of_range_are_silent() -> None:
    """Catches rows lost between the blocks that a matrix is made in, and a warning from overflow or underflow."""
    turns = RNG.uniform(0, 1, 300)
    whole = host_vandermonde(turns, None, 3001)
    assert np.array_equal(whole[[0, 86, 87, 88, 299]], host_vandermonde(turns[[0, 86, 87, 88, 299]], None, 3001))
    extreme = host_vandermonde(np.array([0.1, 0.1]), np.array([-10.0, 10.0]), 100)
    assert not np.isfinite(extreme[0, -1]) and extreme[1, -1] == 0


@pytest.mark.parametrize("cells", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("n", [1, 2, 64, 97])
def test_jittered_points_are_inverted_to_rounding(n: int, cells: float) -> None:
    """Catches a transposed or conjugated inverse, and a condition number that is not the matrix's own."""
    turns = jitter(n, cells)
    found = invert(turns, None, n)
    true = np.linalg.cond(host_vandermonde(turns, None, n))
    assert found.method == "LU" and found.matrix.shape == (n, n)
    assert recovered(turns, None, n, found) <= 1e-14
    assert 0.9 * true <= found.condition <= true * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_random_angles_are_inverted_as_well_as_their_condition_allows(seed: int) -> None:
    """Catches an estimate of the condition that is far from the truth where it is large."""
    turns = np.random.default_rng(seed).uniform(0, 1, 40)
    found = invert(turns, None, 40)
    true = np.linalg.cond(host_vandermonde(turns, None, 40))
    assert 1e4 < true < 1e13 and 0.9 * true <= found.condition <= 1.1 * true
    assert recovered(turns, None, 40, found) <= 5e-16 * true


def test_half_a_circle_is_reported_as_hopeless() -> None:
    """Catches a condition that is small because the inverse behind it is wrong."""
    assert 5e6 < invert(np.arange(16) / 32, None, 16).condition < 1e7
    assert invert(np.arange(64) / 128, None, 64).condition > 1e15


@pytest.mark.parametrize("radius", [0.9, 1.1])
@pytest.mark.parametrize("n", [64, 256])
def test_a_circle_of_any_radius_is_as_good_as_the_unit_circle(n: int, radius: float) -> None:
    """Catches the columns' scaling left out (condition 5e11 for 256 points at 0.9), or never undone, or inverted."""
    logs = np.full(n, math.log(radius))
    equal = invert(np.arange(n) / n, logs, n)
    assert equal.condition <= 1 + 1e-9 and recovered(np.arange(n) / n, logs, n, equal) <= 1e-14
    truth = host_vandermonde(np.arange(n) / n, logs, n).conj().T * radius ** (2 * np.arange(n))[:, None] / n
    assert np.allclose(equal.matrix, truth, rtol=1e-11, atol=0)
    jittered = invert(jitter(n, 0.25), logs, n)
    assert jittered.condition <= 4 and recovered(jitter(n, 0.25), logs, n, jittered) <= 1e-14


def test_radii_that_differ() -> None:
    """Catches a scaling by one point's radius instead of the mean, and radii that reach only one of V and W."""
    n = 64
    logs = math.log(0.9) + np.random.default_rng(5).uniform(-0.5, 0.5, n) / n
    found = invert(np.arange(n) / n, logs, n)
    assert found.condition <= 4 and recovered(np.arange(n) / n, logs, n, found) <= 1e-14
    found = invert(jitter(n, 0.5), logs, n)
    assert recovered(jitter(n, 0.5), logs, n, found) <= 1e-13


@pytest.mark.parametrize(("n", "condition"), [(64, 129), (256, 2.0e9)])
def test_a_spiral_is_inverted(n: int, condition: float) -> None:
    """Catches LU solved by columns: W V is then off by 7e-5 at N = 256, solved by rows by 3e-11."""
    turns, logs = np.arange(n) / n, np.log(np.linspace(1, 1.1, n))
    found = invert(turns, logs, n)
    assert found.condition == pytest.approx(condition, rel=0.05)
    scaled = host_vandermonde(turns, logs - logs.mean(), n)
    unscaled = found.matrix * np.exp(-np.arange(n) * logs.mean())[:, None]
    assert np.linalg.norm(unscaled @ scaled - np.eye(n)) <= 1e-9


@pytest.mark.parametrize("n", [3, 64])
@pytest.mark.parametrize("radius", [0.9, 1.0])
def test_more_points_than_samples_means_least_squares(n: int, radius: float) -> None:
    """Catches an inverse that recovers exact data but does not minimise the residual of other data."""
    turns, logs = np.random.default_rng(6).uniform(0, 1, 2 * n), np.full(2 * n, math.log(radius))
    found, matrix = invert(turns, logs, n), host_vandermonde(turns, logs, n)
    assert found.method == "QR" and found.matrix.shape == (n, 2 * n)
    data = np.random.default_rng(7).standard_normal(2 * n)
    gradient = matrix.conj().T @ (matrix @ (found.matrix @ data) - data)
    assert np.linalg.norm(gradient) <= 1e-12 * np.linalg.norm(matrix, 2) * np.linalg.norm(data)
    true = np.linalg.cond(host_vandermonde(turns, logs - logs.mean(), n))
    assert recovered(turns, logs, n, found) <= 1e-15 * max(true, 10) and 0.9 * true <= found.condition <= 1.01 * true


def test_what_has_no_inverse_is_said_to_have_none() -> None:
    """Catches a made-up inverse: too few points, points that coincide modulo 1, powers out of range."""
    turns = np.rint(jitter(64, 0.1) * 2**20) / 2**20  # so that two more periods are exact
    twice = turns.copy()
    twice[-1] = turns[5] + 2
    half = np.concatenate([turns[:62], [0.5, -0.5]])
    many = np.tile(turns[:32], 4)
    cases = [(turns[:40], None), (twice, None), (twice, np.full(64, 0.1)), (half, None), (many, None)]
    cases += [(turns, np.full(64, logs)) for logs in (20.0, -20.0, np.nan)]
    cases += [(turns, spread * np.linspace(-1, 1, 64)) for spread in (11.0, 30.0)]
    for angles, logs in cases:
        found = invert(angles, logs, 64)
        assert found.method == "none" and found.condition == np.inf and found.matrix.shape == (64, len(angles))
        assert np.isnan(found.matrix).all()
    apart = invert(twice, np.where(np.arange(64) < 63, 0.0, 0.1), 64)  # the same angle, another radius
    assert apart.method == "LU" and apart.condition < 1e6
    again = invert(np.concatenate([turns, turns]), None, 64)  # twice the points, all of them needed
    assert again.method == "QR" and again.condition < 2


@pytest.mark.parametrize("points", [40, 64, 100])
@pytest.mark.parametrize(("name", "method"), [("tikhonov", "Tikhonov"), ("truncation", "truncated SVD")])
def test_regularisation_makes_a_zoom_window_usable(name: str, method: str, points: int) -> None:
    """Catches a weight that is not relative, a wrong filter, and a condition that is not the regularised one."""
    turns, logs = np.arange(points) / (4 * points), np.full(points, 0.02)
    data = host_vandermonde(turns, logs, 64) @ np.random.default_rng(8).standard_normal(64)
    scaled = host_vandermonde(turns, None, 64)
    largest = np.linalg.norm(scaled, 2)
    for weight in (1e-2, 1e-6):
        found = invert(turns, logs, 64, **{name: weight})
        inner = found.matrix / np.exp(0.02 * np.arange(64))[:, None]
        norm = np.linalg.norm(inner, 2)
        assert found.method == method and found.condition == pytest.approx(largest * norm, rel=1e-9)
        assert norm <= (0.5 if name == "tikhonov" else 1) / (weight * largest) * (1 + 1e-9)
        assert np.linalg.norm(scaled @ (inner @ data) - data) <= 3 * weight * np.linalg.norm(data)
    if name == "tikhonov":
        normal = scaled.conj().T @ scaled + (1e-2 * largest) ** 2 * np.eye(64)
        truth = np.linalg.solve(normal, scaled.conj().T)
        assert np.allclose(invert(turns, None, 64, tikhonov=1e-2).matrix, truth, atol=1e-11)
    else:
        assert np.allclose(invert(turns, None, 64, truncation=1e-2).matrix, np.linalg.pinv(scaled, 1e-2), atol=1e-11)


def test_regularisations_that_mean_nothing_are_refused() -> None:
    """Catches a weight of zero or NaN taken for none, and one of two regularisations silently ignored."""
    with pytest.raises(ValueError, match=r"tikhonov is 0\.1 and truncation is 0\.2: give one"):
        invert(np.zeros(1), None, 1, tikhonov=0.1, truncation=0.2)
    for weight in (0, -1e-3, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"tikhonov is {weight}"):
            invert(np.zeros(1), None, 1, tikhonov=weight)
        with pytest.raises(ValueError, match=f"truncation is {weight}"):
            invert(np.zeros(1), None, 1, truncation=weight)


def test_interpolation_needs_lejas_order() -> None:
    """Catches points taken along the circle: the same formulas then lose every digit (1e94 at N = 256)."""
    n, turns = 256, jitter(256, 0.5)
    matrix = host_vandermonde(turns, None, n)
    points = matrix[:, 1]
    x = np.random.default_rng(9).standard_normal(n) + 0j
    errors = []
    for order in (_leja(points), np.argsort(turns)):
        with np.errstate(all="ignore"):
            back = _bjorck_pereyra(points, order) @ (matrix @ x)
        errors.append(np.linalg.norm(back - x) / np.linalg.norm(x))
    assert errors[0] <= 1e-12 and not errors[1] <= 1e10


def test_lejas_order_takes_the_farthest_point_next() -> None:
    """Catches sums of distances instead of products, the nearest instead of the farthest, and a point taken twice."""
    circle = np.exp(2j * np.pi * np.arange(8) / 8)
    circle[0] *= 1 + 1e-9
    assert _leja(circle)[:4].tolist() in ([0, 4, 2, 6], [0, 4, 6, 2])
    assert _leja(np.array([0.1, 3, -1, 2 + 0.1j])).tolist() == [1, 2, 0, 3]
    order = _leja(host_vandermonde(jitter(97, 0.5), None, 2)[:, 1])
    assert sorted(order.tolist()) == list(range(97))


def test_the_better_of_two_inverses_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the wrong one kept: interpolation beats LU by columns on half a circle, loses to LU by rows."""
    turns = np.arange(16) / 32
    assert invert(turns, None, 16).method == "LU"
    assert recovered(turns, None, 16, invert(turns, None, 16)) <= 1e-8
    monkeypatch.setattr(inverting, "_left_inverse", np.linalg.inv)
    found = invert(turns, None, 16)
    assert found.method == "Leja-ordered Björck-Pereyra"
    assert recovered(turns, None, 16, found) <= 1e-8


@pytest.mark.more
def test_norms_are_within_a_few_per_cent_where_singular_values_crowd() -> None:
    """Catches too few iterations: norms that decide refusals promise 10 %."""
    unitary = np.linalg.qr(np.random.default_rng(10).standard_normal((256, 256)))[0]
    for sigma in (np.linspace(0, 1, 256), np.linspace(0.9, 1, 256), np.geomspace(1e-16, 1, 256)):
        assert 0.97 <= _norm(unitary * sigma) <= 1 + 1e-12
        assert 0.97e200 <= _norm(unitary * (1e200 * sigma)) <= 1.01e200
