"""The MRI example on a mesh: its normal operator against a dense one, its collectives, and its errors."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reconstruct
import scan
import sense

from meshfft.nufft import solvers
from meshfft.nufft.penalties import PENALTIES

MESHES = {"image cut": ((2, 4), False), "coils cut": ((2, 2, 2), True)}
# Errors at 5, 10, 20 and 40 iterations, as designed; 128 x 128 pixels, 4 coils, (2, 4) devices.
TABLE = {"radial-137.5": (0.182, 0.285, 0.152, 0.123, 0.104), "spiral": (0.151, 0.274, 0.119, 0.101, 0.090)}


@functools.cache
def _small() -> scan.Scan:
    return scan.scan("radial", 20, 4)  # two coils would have real maps, where a conjugate is nothing


@functools.cache
def _at(mesh: str) -> sense.Problem:
    cuts, coils_cut = MESHES[mesh]
    return sense.problem(_small(), cuts, coils_cut)


@pytest.mark.more
@pytest.mark.parametrize("mesh", MESHES)
def test_normal_operator_is_that_of_the_sums_and_gathers_nothing(mesh: str) -> None:
    """Catches weights, maps or conjugates in the wrong place, a wrong origin, coils that are not all added up; and
    all-gathers, or sums of more than scalars where no coils are cut.
    """
    found, at = _small(), _at(mesh)
    phase = np.exp(-2j * np.pi * (found.turns.reshape(-1, 2) @ np.indices(found.truth.shape).reshape(2, -1)))
    encode = np.concatenate([phase * one.ravel() for one in found.maps])
    rng = np.random.default_rng(4)
    image = rng.standard_normal(found.truth.shape) + 1j * rng.standard_normal(found.truth.shape)
    wanted = (encode.conj().T @ (encode @ image.ravel())).reshape(image.shape)
    right = (encode.conj().T @ found.data.ravel()).reshape(image.shape)
    applied = np.asarray(jax.jit(at.normal)(jax.device_put(image.astype(np.complex64), at.right.sharding)))
    scale = np.vdot(wanted, applied) / np.vdot(wanted, wanted)
    assert abs(scale.imag) < 1e-3 * abs(scale)
    assert np.linalg.norm(applied / scale - wanted) < 3e-4 * np.linalg.norm(wanted)
    assert np.linalg.norm(np.asarray(at.right) / scale - right) < 3e-4 * np.linalg.norm(right)

    for made in PENALTIES.values():
        penalty = made(2)
        one = jax.jit(lambda now, penalty=penalty: solvers.round_(at.normal, at.right, now, penalty, 1e-3, 1e-2, 1))
        text = str(one.lower(solvers.split(at.start, penalty)).compile().as_text())
        sums = {size for line in re.findall(r"= (.*) all-reduce\(", text) for size in re.findall(r"\[.*?\]", line)}
        assert "all-gather" not in text and sums == ({"[]"} if mesh == "image cut" else {"[]", "[10,10]"})


@pytest.mark.more
def test_every_way_ends_nearer_to_the_truth_than_it_began(tmp_path: Path) -> None:
    """Catches a way that diverges, counts that are wrong, and pictures that are not drawn."""
    pytest.importorskip("matplotlib")
    import pictures

    said: list[str] = []
    found = _small()
    courses = reconstruct.reconstruct(found, _at("image cut"), 10, said.append)
    by_name = {course.name: course for course in courses}
    start = by_name["density-compensated adjoint"].errors[0]
    for name, course in by_name.items():
        assert course.errors[-1] <= start, name
    for name in ("total variation", "wavelets"):
        assert by_name[name].errors[-1] < by_name["CG from zero"].errors[-1], name
    assert by_name["CG from zero"].counts == list(range(1, 11)) and len(said) > 10
    pictures.draw(found, courses, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"trajectory.png", "coils.png", "images.png", "error.png"}


def test_what_is_written_is_the_scan(tmp_path: Path) -> None:
    """Catches a file of another shape or order than the next program expects."""
    scan.write(_small(), tmp_path)
    held = {path.stem: np.load(path) for path in tmp_path.iterdir()}
    assert held["kspace"].shape == (4, *held["traj"].shape[:-1]) and held["maps"].shape == (4, *held["truth"].shape)
    assert np.allclose(held["kspace"], _small().data, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("trajectory", TABLE)
def test_errors_are_those_of_the_design(trajectory: str) -> None:
    """Catches a reconstruction that is worse than the prototype's by 5 % after any number of iterations."""
    found = scan.scan(trajectory, 128, 4)
    at = sense.problem(found, (2, 4))
    images = reconstruct.descents(at)(40, jnp.zeros_like(at.right))
    course = reconstruct.follow(found, reconstruct.Way("CG from zero", images), lambda _: None)
    errors = [found.error(np.asarray(at.start)), *(course.errors[count - 1] for count in (5, 10, 20, 40))]
    np.testing.assert_allclose(errors, TABLE[trajectory], rtol=0.05)
