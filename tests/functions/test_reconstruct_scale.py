"""Reconstructions of data and maps in any unit, against least squares in float64."""

import numpy as np
import pytest

import meshfft as mf

DRAW = np.random.default_rng(0)
TURNS = DRAW.uniform(-0.5, 0.5, (30, 2))
MAPS, DATA = ((DRAW.standard_normal(shape) + 1j).astype("complex64") for shape in ((2, 4, 4), (2, 30)))


def _least_squares() -> np.ndarray:
    pixels = np.stack(np.meshgrid(*[np.arange(4) - 2] * 2, indexing="ij"), -1).reshape(-1, 2)
    phases = np.exp(-2j * np.pi * TURNS @ pixels.T)
    encode = np.concatenate([phases * one.ravel() for one in MAPS])
    return np.linalg.lstsq(encode, DATA.ravel().astype(complex), rcond=None)[0].reshape(4, 4)


@pytest.mark.parametrize("l2", [0.0, 1e-9])
def test_units_of_data_and_maps_change_nothing(l2: float) -> None:
    """Catches an image of zeros, or NaN, from data whose squares are no numbers in single precision."""
    for data, maps in ((1e-24, 1), (1e-15, 1), (1e20, 1), (1, 1e-22), (1, 1e20), (1e-12, 1e-12)):
        values, seen = DATA * np.float32(data), MAPS * np.float32(maps)
        found = mf.reconstruct(values, mf.Scattered.turns(TURNS), (4, 4), maps=seen, iterations=60, tol=1e-6, l2=l2)
        image, expected = np.asarray(found.image, complex) * maps / data, _least_squares()
        assert np.linalg.norm(image - expected) < 5e-6 * np.linalg.norm(expected), (data, maps)
