"""The programs of examples/, at a small size: each against what does not use meshfft, and as short as a page."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import meshfft as mf

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _as_users_have_it() -> Iterator[None]:
    """JAX's own promotion of types and ranks, which the other tests forbid."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _program(name: str) -> ModuleType:
    """A program, imported as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_turbulence_decays_as_on_one_device(tmp_path: Path) -> None:
    """Catches a transform, a layout or wavenumbers that differ from jnp.fft's in a solver under jit and scan."""
    picture = tmp_path / "turbulence.png"
    error = _program("turbulence").main(["--size", "16", "--time", "1", "--picture", str(picture)])
    assert error < 1e-5 and picture.stat().st_size > 10_000


def test_sizes_that_the_devices_do_not_divide_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a traceback about padded arrays for `--size 36` on eight devices."""
    with pytest.raises(SystemExit):
        _program("turbulence").main(["--size", "36", "--time", "0.1"])
    assert "--size 36 is no multiple of the 8 devices of --mesh 2,4" in capsys.readouterr().err


def test_the_equation_is_navier_stokes() -> None:
    """Catches a sign, projection or viscosity that is wrong in both solvers: -(u . grad) u and pressure in NumPy."""
    n, viscosity, axes = 16, 0.05, (1, 2, 3)
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 3, indexing="ij"))
    square = (k**2).sum(0)

    def solenoidal(v: np.ndarray) -> np.ndarray:
        return v - k * (k * v).sum(0) / np.maximum(square, 1)

    random = np.fft.fftn(np.random.default_rng(0).standard_normal((3, n, n, n)), axes=axes)
    spectrum = solenoidal(random * (abs(k).max(0) < 3))  # its products have no waves above 4, so none are dropped
    u = np.fft.ifftn(spectrum, axes=axes).real
    slopes = np.fft.ifftn(1j * k[:, None] * spectrum, axes=(2, 3, 4)).real  # slopes[i, j] = d u_j / d x_i
    advected = np.fft.fftn(-(u[:, None] * slopes).sum(0), axes=axes)
    wanted = solenoidal(advected) - viscosity * square * spectrum
    half, single = np.s_[..., : n // 2 + 1], [np.float32(one[..., : n // 2 + 1]) for one in k]
    found, energy, decay = _program("turbulence").rate(
        np.complex64(spectrum[half]),
        single,
        viscosity,
        lambda v: jnp.fft.rfftn(v, axes=axes),
        lambda v: jnp.fft.irfftn(v, axes=axes),
    )
    assert np.abs(found - wanted[half]).max() < 1e-5 * np.abs(wanted).max()
    assert abs(energy - (u**2).sum(0).mean() / 2) < 1e-5 * energy
    assert abs(decay - viscosity * (slopes**2).sum((0, 1)).mean()) < 1e-5 * decay  # a periodic flow: curl is gradient


@pytest.mark.more
def test_quantum_takes_the_path_of_the_exact_propagator(tmp_path: Path) -> None:
    """Catches wavenumbers that are laid out otherwise than the spectrum, a sign, and half steps that are whole."""
    picture = tmp_path / "quantum.png"
    error = _program("quantum").main(["--size", "64", "--steps", "200", "--picture", str(picture)])
    assert error < 1.5e-3 and picture.stat().st_size > 10_000  # the splitting's error


def test_quantum_takes_the_storage_of_its_state() -> None:
    """Catches a state that is copied although it was donated."""
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    psi: Any = mf.shard(np.ones((8, 8), np.complex64), mesh, P("x", "y"))
    v = mf.shard(np.ones((8, 8), np.float32), mesh, P("x", "y"))
    end = _program("quantum").propagate(psi, v, 0.0, mf.plan((8, 8), mesh=mesh, order="any"), 0.1, 10)
    assert psi.is_deleted() and np.allclose(end, np.exp(-1j), atol=1e-5)


@pytest.mark.more
def test_cosmology_is_that_of_numpy(tmp_path: Path) -> None:
    """Catches a wrong factor of the volume, a Poisson equation, derivative or gradient unlike NumPy's, lost modes."""
    picture = tmp_path / "cosmology.png"
    error, off = _program("cosmology").main(["--size", "16", "--picture", str(picture)])
    assert error < 1e-4 and off < 2 and picture.stat().st_size > 10_000  # of 7 bins; data cancel much of the gradient


@pytest.mark.more
def test_particles_move_as_on_one_grid(tmp_path: Path) -> None:
    """Catches masses and forces that are lost at the edge of a block, a neighbour mistaken, and a wrong potential."""
    picture = tmp_path / "particles.png"
    error = _program("particle_mesh").main(["--size", "16", "--picture", str(picture)])
    assert error < 5e-6 and picture.stat().st_size > 5_000


@pytest.mark.more
def test_optics_ends_in_the_airy_pattern(tmp_path: Path) -> None:
    """Catches a zoom to other frequencies, a phase of the wrong sign or size, a lost factor, a shift of the focus."""
    picture = tmp_path / "optics.png"
    error = _program("optics").main(["--size", "256", "--picture", str(picture)])
    assert error < 2e-3 and picture.stat().st_size > 10_000  # the aperture's edge, on 256 samples


@pytest.mark.more
def test_neural_operator_learns(tmp_path: Path) -> None:
    """Catches wrong gradients: a network that leaves psi unchanged has the error 1."""
    picture = tmp_path / "neural_operator.png"
    small = ["--width", "8", "--steps", "60", "--picture", str(picture)]
    assert _program("neural_operator").main(small) < 0.5 and picture.stat().st_size > 10_000


@pytest.mark.more
def test_neural_operator_has_the_gradient_of_direct_sums() -> None:
    """Catches modes that are lost or doubled where a spectrum is cut, and gradients not summed over the batch."""
    program, rng = _program("neural_operator"), np.random.default_rng(1)
    m = 4
    vars(program).update(MODES=m, LAYERS=2)
    psi, wanted = rng.standard_normal((2, 4, 1, 16, 16)).astype("f4")
    mesh = jax.make_mesh((2, 4), ("batch", "space"))
    model = program.Operator(4, mesh, rng)
    cut = [mf.shard(a, mesh, P("batch", None, "space")) for a in (psi, wanted)]
    found = jax.jit(jax.grad(program.loss))(model, *cut)

    k, kept = np.r_[0:m, 1 - m : 0], np.r_[0:m, m + 1 : 2 * m]
    waves = np.exp(-2j * np.pi / 16 * np.outer(k, np.arange(16))).astype(np.complex64)
    twice = np.array([1] + [2] * (m - 1), np.float32)  # with their conjugates

    def direct(model: Any) -> jax.Array:
        v = jnp.einsum("oi,bixy->boxy", model.lift, psi)
        for R, W in zip(model.R, model.W, strict=True):
            modes = jnp.einsum("bixy,kx,ly->bikl", v, waves, waves[:m]) / 256
            mixed = jnp.einsum("oikl,bikl->bokl", (R[0] + 1j * R[1])[:, :, kept][..., :m], modes) * twice
            smooth = jnp.einsum("bokl,kx,ly->boxy", mixed, waves.conj(), waves[:m].conj()).real
            v = jax.nn.gelu(smooth + jnp.einsum("oi,bixy->boxy", W, v))
        after = psi + jnp.einsum("oi,bixy->boxy", model.drop, v)
        return ((after - wanted) ** 2).mean() / ((psi - wanted) ** 2).mean()

    on_host = jax.tree.map(np.asarray, model)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(jax.grad(direct)(on_host)), strict=True):
        assert np.linalg.norm(ours - theirs) < 1e-5 * np.linalg.norm(theirs)


@pytest.mark.more
def test_a_long_convolution_is_learned(tmp_path: Path) -> None:
    """Catches wrong gradients in a sharded filter, a filter that sees the future, and sequences that are gathered."""
    program, picture = _program("long_convolution"), tmp_path / "long_convolution.png"
    error, apart = program.main(["--length", "256", "--steps", "120", "--picture", str(picture)])
    assert error < 0.3 and apart < 2e-6 and picture.stat().st_size > 10_000
    mesh, rng = jax.make_mesh((8,), ("seq",)), np.random.default_rng(0)
    records, answers = program.drawn(rng, 2, 64, 48)
    batches = mf.shard(records, mesh, P(None, None, None, "seq")), mf.shard(answers, mesh, P(None, None, "seq"))
    weights = {name: mf.shard(np.ones((8, 2), "f4"), mesh, P()) for name in "qk"}
    weights["h"] = mf.shard(np.ones((8, 64), "f4"), mesh, P(None, "seq"))
    text = program.train.lower(weights, batches, "int16").compile().as_text()
    assert "all-to-all" in text and "all-gather" not in text


@pytest.mark.more
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_larger_than_memory_is_resumed(processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that is not killed on its way, or cannot be resumed, and tiles that are lost between both."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    picture, flags = tmp_path / "picture.png", ["--size", "64", "--memory", "1e6", "--folder", str(tmp_path)]
    error, killed, resumed = _program("larger_than_memory").main(
        [*flags, "--processes", str(processes), "--picture", str(picture)]
    )
    assert error < 5e-7 and resumed == [0] * processes and -signal.SIGKILL in killed and 0 not in killed
    assert picture.stat().st_size > 10_000


SMALL = {
    "cosmology": ["--size", "16"],
    "long_convolution": ["--length", "64", "--steps", "5"],
    "neural_operator": ["--steps", "5"],
    "optics": ["--size", "128"],
    "particle_mesh": ["--size", "16"],
    "quantum": ["--steps", "20"],
    "turbulence": ["--size", "16", "--time", "0.5"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_programs_run_as_readers_run_them(name: str) -> None:
    """Catches failures that other tests hide: unwanted devices, JAX's defaults, a warning."""
    command = [sys.executable, "-W", "error", f"examples/{name}.py", *SMALL[name]]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(command, cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout and not ran.stderr, ran.stderr


def test_every_program_is_a_page_with_a_picture() -> None:
    """Catches a program that grew, that the gallery does not list, and a picture that is missing or large."""
    table = (EXAMPLES / "README.md").read_text()
    pictures = re.findall(r"\.\./docs/figures/\S+\.png", table)
    programs = [*EXAMPLES.glob("*.py"), EXAMPLES / "mri" / "reconstruct.py"]
    assert len(programs) == len(pictures) == 9
    assert all((EXAMPLES / picture).stat().st_size < 150_000 for picture in pictures)
    for path in programs:
        text = path.read_text()
        command = f"python {path.relative_to(EXAMPLES.parent)}"
        assert len(text.splitlines()) <= 120 and text.count(command) and table.count(command) == 1, path
