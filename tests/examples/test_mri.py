"""The MRI example: closed forms against rasters, maps against products, solvers against a dense normal matrix."""

import coils
import jax
import jax.numpy as jnp
import numpy as np
import phantom
import pytest
import scan
import trajectories

from meshfft.nufft import solvers

SIZES, OVER = {2: (48, 40), 3: (20, 18, 22)}, {2: 8, 3: 5}


def _sums(image: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The mean over pixels of image exp(-2 pi i f.r), dimension by dimension, for one f."""
    total = image
    for n, one in zip(image.shape, f, strict=True):
        total = np.tensordot(np.exp(-2j * np.pi * one * ((np.arange(n) + 0.5) / n - 0.5)), total, 1)
    return total / image.size


@pytest.mark.parametrize("dims", SIZES)
def test_closed_form_is_the_spectrum_of_the_raster(dims: int) -> None:
    """Catches a wrong axis, rotation, centre or constant; at low frequencies pixels are small."""
    bodies, shape = phantom.shepp_logan(dims), SIZES[dims]
    image = phantom.raster(bodies, shape, OVER[dims])
    for f in np.random.default_rng(dims).uniform(-2, 2, (6, dims)):
        box = np.prod(np.sinc(f / shape))  # a pixel is the mean over its box
        assert abs(_sums(image, f) - box * phantom.kspace(bodies, f)) < 5e-4
    assert abs(image.mean() - phantom.kspace(bodies, np.zeros(dims))) < 5e-4


def test_ventricles_lean_outwards_at_the_top() -> None:
    """Catches a phantom with the opposite rotation, whose raster and spectrum still agree."""
    inside = np.array([[-0.33, 0.35], [-0.11, -0.35], [0.3, 0.28], [-0.33, -0.35]]) / 2
    for dims in SIZES:
        points = np.pad(inside, ((0, 0), (0, dims - 2)))
        image = sum(body.value * body.holds(points) for body in phantom.shepp_logan(dims))
        np.testing.assert_allclose(image, [0, 0, 0, 0.2], atol=1e-12)


def test_ball_has_no_jump_between_series_and_closed_form() -> None:
    """Catches cancellation near frequency 0, and a wrong term of the series."""
    q = phantom.NEAR / (2 * np.pi) * np.array([0, 0.999999, 1.000001])
    zero, below, above = phantom._ball(q)
    assert zero == pytest.approx(4 * np.pi / 3) and abs(below - above) < 1e-9


@pytest.mark.parametrize("dims", SIZES)
def test_what_a_coil_measures_is_the_spectrum_of_map_times_image(dims: int) -> None:
    """Catches a shift by the wrong half, a wrong sign, and maps whose dimensions are exchanged."""
    bodies, shape = phantom.shepp_logan(dims), SIZES[dims]
    image, maps = phantom.raster(bodies, shape, OVER[dims]), coils.maps(3, shape)
    f = np.random.default_rng(9).uniform(-2, 2, (4, dims))
    measured = coils.kspace(lambda at: phantom.kspace(bodies, at), f, 3)
    found = np.array([[_sums(m * image, one) for one in f] for m in maps])
    assert np.abs(found - measured).max() < 2e-2 * np.abs(measured).max()


def test_scan_counts_pixels_as_the_library_does() -> None:
    """Catches a wrong origin: data of a smooth body are its sums over n from 0, to what pixels leave out."""
    found = scan.scan("radial", 64, 2)
    j = np.flatnonzero(np.abs(found.turns.reshape(-1, 2)).max(-1) < 0.03)
    k = found.turns.reshape(-1, 2)[j]
    phase = np.exp(-2j * np.pi * (k @ np.indices(found.truth.shape).reshape(2, -1)))
    sums = phase @ (found.maps * found.truth).reshape(2, -1).T
    assert np.abs(sums.T - found.data.reshape(2, -1)[:, j]).max() < 5e-3 * np.abs(found.data).max()


@pytest.mark.parametrize("name", scan.TRAJECTORIES)
def test_trajectories_lie_in_the_band_and_pass_its_middle(name: str) -> None:
    """Catches radians, samples beyond the band, and a spoke that misses frequency 0."""
    dims, points = scan.TRAJECTORIES[name]
    k = points(16)
    assert k.ndim == 3 and k.shape[-1] == dims and np.abs(k).max() <= 0.5
    flat = np.linalg.norm(k[..., :2], axis=-1)
    assert flat.min(1).max() < 1e-2 and flat.max() > 0.45


def test_koosh_ball_has_even_directions() -> None:
    """Catches directions that crowd: of even ones, the mean of n n^T is a third of the identity."""
    ends = trajectories.koosh(500, 2)[:, 0] / -0.5
    assert np.allclose(ends.T @ ends / 500, np.eye(3) / 3, atol=0.02)


@pytest.fixture(scope="module")
def dense() -> tuple[solvers.Operator, np.ndarray, np.ndarray, np.ndarray]:
    """The normal matrix of a small scan, as an operator and as a matrix, with A^H d and the true image."""
    n = 16
    k, maps = trajectories.radial(20, 24).reshape(-1, 2), coils.maps(3, (n, n))
    phase = np.exp(-2j * np.pi * (k @ np.indices((n, n)).reshape(2, -1)))
    encode = np.concatenate([phase * m.ravel() for m in maps])
    matrix = encode.conj().T @ encode
    scale = np.linalg.norm(matrix, 2)
    truth = phantom.raster(phantom.shepp_logan(), (n, n), 4)
    held = jnp.asarray(matrix / scale, jnp.complex64)
    return lambda x: (held @ x.ravel()).reshape(x.shape), matrix / scale, (matrix / scale @ truth.ravel()), truth


def test_conjugate_gradients_solve_the_normal_equations(
    dense: tuple[solvers.Operator, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Catches a wrong step or direction, a residual that is not b - N x, and a start that is not used."""
    normal, matrix, b, truth = dense
    ridge = 1e-2

    def ridged(x: jax.Array) -> jax.Array:
        return normal(x) + ridge * x

    right = jnp.asarray(b.reshape(truth.shape), jnp.complex64)
    step = jax.jit(lambda at: solvers.step(ridged, at)[0])
    wanted = np.linalg.solve(matrix + ridge * np.eye(len(b)), b).reshape(truth.shape)
    for start in (None, right):
        at = solvers.begin(ridged, right, start)
        for _ in range(60):
            at = step(at)
        assert np.linalg.norm(at.image - wanted) < 1e-4 * np.linalg.norm(wanted)
    still = step(solvers.begin(normal, jnp.zeros_like(right)))
    assert np.array_equal(still.image, np.zeros_like(wanted)), "no data, no image"
    assert abs(solvers.largest(normal, right, 60) - 1) < 1e-2, "the matrix has norm 1"
