"""`meshfft nufft` and `meshfft reconstruct`: results, output and refusals at scattered points."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from addresses import free_address
from commands import call, fresh, refused
from jax.sharding import PartitionSpec as P
from reference import error, mesh
from typer.testing import CliRunner

import meshfft
from meshfft.cli import scattered
from meshfft.cli.app import app
from meshfft.io import open_array

SHAPE, COILS, POINTS = (12, 10), 2, (40, 16)
RNG = np.random.default_rng(7)
TURNS = RNG.uniform(-0.5, 0.5, (*POINTS, 2))
IMAGE = RNG.standard_normal((COILS, *SHAPE)) + 1j * RNG.standard_normal((COILS, *SHAPE))
MAPS = 1 + 0.5 * (RNG.standard_normal((COILS, *SHAPE)) + 1j * RNG.standard_normal((COILS, *SHAPE)))
AT, TURNED = ["--points", "turns.npy"], ["--points", "turns.npy", "--points-unit", "turns"]
SIZE = ["--shape", "12,10"]
DOUBLE = ["--tol", "1e-10", "--precision", "float64", "--mesh", "2", "--spec", "x,-,-"]


def _waves(origin: str = "corner") -> np.ndarray:
    """exp(-2 pi i k.n), of shape (points, pixels)."""
    n = np.indices(SHAPE).reshape(2, -1) - (np.array([[6], [5]]) if origin == "centre" else 0)
    return np.asarray(np.exp(-2j * np.pi * (TURNS.reshape(-1, 2) @ n)))


@pytest.fixture(autouse=True)
def work(terminal: Path) -> None:
    """A folder with an image, points in every unit and data of coils."""
    np.save("x.npy", IMAGE.astype(np.complex64))
    np.save("turns.npy", TURNS)
    np.save("radians.npy", 2 * np.pi * TURNS)
    np.save("view.npy", TURNS * SHAPE)
    np.save("maps.npy", MAPS.astype(np.complex64))
    np.save(
        "k.npy",
        (_waves("centre") @ (MAPS * IMAGE[0]).reshape(COILS, -1).T).T.reshape(COILS, *POINTS).astype(np.complex64),
    )


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("words", "origin", "scale", "far"),
    [
        ([*TURNED, "--mesh", "2,2"], "corner", 1.0, 1e-6),
        (["--points", "radians.npy", "--points-unit", "radians", "--origin", "centre"], "centre", 1.0, 1e-6),
        (
            ["--points", "view.npy", "--points-unit", "field-of-view", "--norm", "ortho", *DOUBLE],
            "corner",
            120**-0.5,
            1e-9,
        ),
    ],
    ids=["turns", "radians", "field of view, ortho, float64"],
)
def test_values_and_their_adjoint(words: list[str], origin: str, scale: float, far: float) -> None:
    """Catches a wrong unit, origin, scale, sign or order of dimensions, in both directions, a tolerance that does not
    reach the plan, and a store without its origin.
    """
    call("nufft", "x.npy", "c.npy", *words)
    flat, waves = np.load("x.npy").reshape(COILS, -1), _waves(origin) * scale
    values = np.load("c.npy")
    assert values.shape == (COILS, *POINTS) and error(values.reshape(COILS, -1), flat @ waves.T) < far
    made = json.loads(call("nufft", "c.npy", "again.zarr", "--adjoint", *SIZE, *words, "--json"))
    with open_array("again.zarr") as again:
        assert error(again[:].reshape(COILS, -1), values.reshape(COILS, -1) @ waves.conj()) < far
    kept = json.loads(Path("again.zarr/data/zarr.json").read_text())["attributes"]["meshfft_scattered"]
    assert {name: made[name] for name in kept} == kept
    assert (kept["unit"], kept["origin"], kept["sigma"]) == (words[3], origin, 2.0)
    assert kept["tol"] == (1e-10 if "--tol" in words else 1e-6) and kept["width"] >= 7


@pytest.mark.more
def test_the_sum_itself_and_its_adjoint() -> None:
    """Catches a window where the sum was asked for, radii that are lost, and a record of a grid that there is none."""
    np.savez("off.npz", turns=TURNS, radius=0.99)
    radii, flat = 0.99 ** -np.indices(SHAPE).reshape(2, -1).sum(0), np.load("x.npy").reshape(COILS, -1)
    double = ["--method", "kdft", "--precision", "float64", "--mesh", "2", "--overwrite"]
    for words, waves in ((TURNED, _waves()), (["--points", "off.npz", "--points-unit", "turns"], _waves() * radii)):
        made = json.loads(call("nufft", "x.npy", "c.npy", *words, *double, "--json"))
        assert error(np.load("c.npy").reshape(COILS, -1), flat @ waves.T) < 4e-15
        assert made["method"] == "kdft" and made["unit"] == "turns" and "width" not in made
    call("nufft", "c.npy", "again.npy", "--adjoint", *SIZE, *words, *double)
    assert error(np.load("again.npy").reshape(COILS, -1), flat @ waves.T @ waves.conj()) < 4e-15


def test_real_images_of_other_files() -> None:
    """Catches real or integer pixels that are read as something else, and a dataset that is not the one named."""
    h5py = pytest.importorskip("h5py")
    pixels = RNG.integers(-9, 9, SHAPE).astype(np.int16)
    with h5py.File("x.h5", "w") as file:
        file["other"], file["pixels"] = np.ones(3), pixels
    assert "complex64 40 x 16" in call("nufft", "x.h5", "c.npy", "--dataset", "pixels", *TURNED, "--tol", "1e-3")
    found, truth = np.load("c.npy").ravel(), _waves() @ pixels.ravel()
    assert error(found, truth) < 1e-3


@pytest.mark.more
def test_reconstruction_finds_the_image() -> None:
    """Catches maps, conjugates, origins or coordinates in the wrong place, data in another order than their points, an
    image that contradicts the residual, a wrong magnitude, and a command that does not call mf.reconstruct.
    """
    nibabel = pytest.importorskip("nibabel")
    words = ["reconstruct", "k.npy", *TURNED, *SIZE, "--mesh", "2,2"]
    out = call(*words, "out.npy", "--maps", "maps.npy", "--tol", "1e-5", "--iterations", "30")
    assert "after 30 steps" in out and "Wrote out.npy: complex64 12 x 10." in out
    assert error(np.load("out.npy"), IMAGE[0]) < 1e-3
    said = list[str]()
    how: dict[str, Any] = {"mesh": mesh((2, 2)), "spec": P(None, "x", "y"), "tol": 1e-5, "iterations": 30}
    how["report"] = lambda part, done, residual: said.append(part)
    k, maps = meshfft.Scattered.turns(TURNS), np.load("maps.npy")
    found = meshfft.reconstruct(np.load("k.npy"), k, SHAPE, maps=maps, **how)
    np.testing.assert_array_equal(found.image, np.load("out.npy"))
    assert len(found.residuals) == 31
    assert list(dict.fromkeys(said)) == ["normal operator", "adjoint", "density", "start", "solve"]
    made = json.loads(
        call(*words, "out.nii", "--maps", "maps.npy", "--iterations", "10", "--spec", "-,x+y,-", "--json")
    )
    image = nibabel.load("out.nii")
    assert image.get_data_dtype() == np.float32 and error(image.get_fdata(), np.abs(IMAGE[0])) < 0.05
    residuals = made["residuals"]
    assert len(residuals) == 11 and residuals[-1] < 0.05 * residuals[0] and made["width"] == 6


@pytest.mark.more
def test_reconstruction_of_one_file_with_weights_and_without_maps() -> None:
    """Catches datasets that are mixed up, coils that are added up without maps, and weights that do nothing: a ridge
    makes the image smaller, total variation and wavelets make it smoother.
    """
    h5py = pytest.importorskip("h5py")
    waves = _waves("centre")
    with h5py.File("scan.h5", "w") as file:
        file["traj"], file["noise"] = TURNS, np.ones(3)
        file["kspace"] = (IMAGE.reshape(COILS, -1) @ waves.T).reshape(COILS, *POINTS).astype(np.complex64)
    words = ["reconstruct", "scan.h5", "--points-unit", "turns", *SIZE, "--overwrite"]

    def found(*more: str) -> np.ndarray:
        call(*words, "out.npy", *more)
        image = np.load("out.npy")
        assert image.shape == IMAGE.shape
        return np.asarray(image)

    def roughness(image: np.ndarray) -> float:
        return float(sum(np.abs(np.roll(image, 1, axis) - image).sum() for axis in (1, 2)))

    plain = found("--iterations", "25")
    assert error(plain, IMAGE) < 1e-2
    assert error(found("--iterations", "25", "--density", "none"), IMAGE) < 1e-2
    assert np.linalg.norm(found("--l2", "0.5")) < 0.8 * np.linalg.norm(plain)
    for name in ("tv", "wavelet"):
        assert roughness(found("--regularise", name, "--weight", "1e-2")) < 0.97 * roughness(plain), name
    assert json.loads(call(*words, "out.npy", "--iterations", "1", "--json"))["maps"] is None
    with h5py.File("scan.h5", "a") as file:
        file["maps"] = MAPS
    made = json.loads(call(*words, "out.npy", "--iterations", "1", "--json"))
    assert made["maps"] == "scan.h5" and np.load("out.npy").shape == SHAPE


KSPACE = ["reconstruct", "k.npy", "out.npy"]
BAD: list[tuple[list[str], str]] = [
    (["nufft", "x.npy", "c.npy", *AT], "give --points-unit turns (cycles per sample), radians"),
    (["nufft", "x.npy", "c.npy", *AT, "--points-unit", "degrees"], "--points-unit 'degrees' is not known"),
    (["nufft", "x.npy", "c.npy", "--points", "radians.npy", "--points-unit", "turns"], "give another --points-unit"),
    (["nufft", "x.npy", "c.npy", "--points", "view.npy", "--points-unit", "turns"], "repeats with every turn"),
    (["nufft", "x.npy", "c.npy", "--points", "no.npy", "--points-unit", "turns"], "no.npy does not exist"),
    (["nufft", "x.npy", "c.npy", "--points", "nan.npy", "--points-unit", "turns"], "nan.npy: point (1,) has coordi"),
    (["nufft", "x.npy", "c.npy", "--points", "flat.npy", "--points-unit", "turns"], "has shape (7,)"),
    (
        ["nufft", "x.npy", "c.npy", "--points", "x.npy", "--points-unit", "turns"],
        "x.npy is complex, --points-unit turns is for real numbers",
    ),
    (
        ["nufft", "x.npy", "c.npy", "--points", "four.npy", "--points-unit", "turns"],
        "four.npy has shape (5, 4) and the image 3 dimensions: give points (..., d)",
    ),
    (["nufft", "x.npy", "c.npy", "--points", "z.npy"], "give points on it or --method kdft"),
    ([*KSPACE, "--points", "z.npy", *SIZE], "where there is no fine grid: give points on it\n"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--method", "sum"], "give one of auto, transpose, cooley-tukey, kdft"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--method", "kdft", "--sigma", "2"], "leave out --sigma"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--method", "kdft", "--origin", "centre"], "leave out --origin centre"),
    (["nufft", "x.npy", "c.npy", "--points-unit", "turns"], "no dataset traj: give the points with --points FILE"),
    (["nufft", "x.npy", "c.npy", *TURNED, *SIZE], "--shape goes with --adjoint: leave it out"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--adjoint"], "--shape goes with --adjoint: give --shape"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--adjoint", *SIZE], "has shape (2, 12, 10) and the points (40, 16)"),
    (["nufft", "k.npy", "c.npy", *TURNED, "--adjoint", "--shape", "12"], "--shape 1 sizes: give points"),
    (["nufft", "x.npy", "c.nii", *TURNED], "end it in .npy or .h5"),
    (["nufft", "x.npy", "x.npy", *TURNED], "replace it with --overwrite"),
    (["nufft", "x.npy", "turns.npy", *TURNED], "replace it with --overwrite"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--tol", "1e-9"], "tol"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--origin", "middle"], "--origin 'middle' is not known"),
    (["nufft", "x.npy", "c.npy", *TURNED, "--mesh", "2,2,2"], "--mesh 2,2,2 has 3 axes"),
    ([*KSPACE, *TURNED], "give --shape N,N,..., as 128,128"),
    ([*KSPACE, *TURNED, "--shape", "12,10,2"], "--shape 3 sizes: give points (..., d)"),
    ([*KSPACE, *TURNED, *SIZE, "--maps", "x1.npy"], "have shape (1, 12, 10) and the coils' images (2, 12, 10)"),
    ([*KSPACE, *TURNED, *SIZE, "--mesh", "8"], "--mesh does not cut images (2, 12, 10) evenly"),
    ([*KSPACE, *TURNED, *SIZE, "--density", "voronoi"], "--density 'voronoi' is not known"),
    ([*KSPACE, *TURNED, *SIZE, "--l2", "-1"], "--l2 -1.0 is no weight"),
    ([*KSPACE, *TURNED, *SIZE, "--regularise", "tv", "--density", "none"], "--density none starts from zero"),
    ([*KSPACE, *TURNED, *SIZE, "--regularise", "l1"], "--regularise 'l1' is not known"),
    ([*KSPACE, *TURNED, *SIZE, "--regularise", "tv", "--weight", "nan"], "--weight nan is no weight"),
    ([*KSPACE, *TURNED, *SIZE, "--weight", "1e-3"], "--weight 0.001 is that of --regularise: add tv or wavelet"),
    ([*KSPACE, *TURNED, *SIZE, "--iterations", "-3"], "--iterations -3 is not a number of steps"),
    (["reconstruct", "hole.npy", "out.npy", *TURNED, *SIZE], "the values, or the maps, hold a NaN or an infinity"),
    (["reconstruct", "x.npy", "out.npy", *TURNED, *SIZE], "give one value for each point, with the coils"),
    ([*KSPACE[:2], "out.tif", *TURNED, *SIZE], "end it in .npy or .h5 or .hdf5 or .nc or .nii or .nii.gz or .zarr"),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=[text for _, text in BAD])
def test_what_is_wrong_is_refused(words: list[str], text: str) -> None:
    """Catches a unit that is guessed, shapes that do not fit, and an output that is left of a run that failed."""
    nan, hole = TURNS[0].copy(), np.load("k.npy")
    nan[1, 0] = hole[1, 3, 4] = np.nan
    np.save("nan.npy", nan)
    np.save("hole.npy", hole)
    np.save("flat.npy", TURNS.ravel()[:7])
    np.save("x1.npy", IMAGE[:1])
    np.save("four.npy", np.zeros((5, 4)))
    np.save("z.npy", 0.9 * np.exp(2j * np.pi * TURNS))
    assert text in refused(*words)


def test_points_that_may_be_of_another_unit_are_said(capfd: pytest.CaptureFixture[str]) -> None:
    """Catches points in cycles per sample read silently as cycles per field of view: the image is then constant."""
    words = ["nufft", "x.npy", "c.npy", *AT, "--points-unit", "field-of-view", "--tol", "1e-2"]
    assert "are these turns?" in CliRunner().invoke(app, words).stderr


def test_a_note_on_units_starts_no_devices(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches JAX started with one device by a note, after which `--mesh 2` was refused."""

    def started() -> int:
        raise AssertionError("JAX starts its devices")

    for name in ("process_count", "process_index", "devices"):
        monkeypatch.setattr(jax, name, started)
    asked: Any = SimpleNamespace(at=scattered.AtPoints(points_unit="radians"), shape=SHAPE)
    scattered.points_at(asked, {"": TURNS / 4}, Path("p.npy"))
    assert "are these turns?" in capsys.readouterr().err


def test_maps_that_do_not_match_are_refused_before_there_is_a_plan() -> None:
    """Catches seconds of planning, and a page of a plan, before maps of another shape are refused."""
    np.save("x1.npy", IMAGE[:1])
    found = CliRunner().invoke(app, [*KSPACE, *TURNED, *SIZE, "--maps", "x1.npy"])
    assert found.exit_code == 2 and found.stdout == "", found.output


def test_quiet_commands_print_nothing() -> None:
    """Catches a plan, a table or a line in the log of a job that asked for none; JSON that is asked for is printed."""
    assert call(*KSPACE, *TURNED, *SIZE, "--iterations", "2", "--quiet") == ""
    assert call("nufft", "x.npy", "c.npy", *TURNED, "--quiet") == ""
    assert call("transform", "x.npy", "y.npy", "--mesh", "2", "--quiet") == ""
    assert json.loads(call("transform", "x.npy", "z.npy", "--mesh", "2", "--quiet", "--json"))["output"] == "z.npy"


def test_python_refuses_what_the_command_refuses() -> None:
    """Catches maps, weights and steps that Python does not check."""
    data, k = np.load("k.npy"), meshfft.Scattered.turns(TURNS)
    for wrong, text in (
        ({"maps": MAPS[:1]}, r"maps have shape \(1, 12, 10\) and the coils' images \(2, 12, 10\)"),
        ({"tv": 1.0, "density": 0}, "starts from zero"),
        ({"tv": 1.0, "wavelet": 1.0}, "leave one out"),
        ({"wavelet": float("nan")}, "wavelet is nan, which is no weight"),
        ({"l2": -1.0}, "is no weight"),
        ({"iterations": 1.5}, "give a whole number"),
    ):
        with pytest.raises(ValueError, match=text):
            meshfft.reconstruct(data, k, SHAPE, **wrong)


@pytest.mark.slow
def test_real_processes_reconstruct_together() -> None:
    """Catches devices that exist only because the tests made them, and data that two processes lay out otherwise."""
    environment = fresh()
    program = [sys.executable, "-m", "meshfft.cli.app", "reconstruct", "k.npy", *TURNED, *SIZE, "--maps", "maps.npy"]
    alone = subprocess.run([*program, "one.npy", "--mesh", "2,2", "--json"], env=environment, capture_output=True)
    assert alone.returncode == 0 and json.loads(alone.stdout)["mesh"] == {"x": 2, "y": 2}
    several = ["--mesh", "2,2", "--coordinator", free_address(), "--processes", "2"]
    words = [[*program, "two.npy", *several, "--process-id", str(i)] for i in range(2)]
    runs = [subprocess.Popen(one, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for one in words]
    for run in runs:
        _, said = run.communicate(timeout=300)
        assert run.returncode == 0, said
    assert error(np.load("two.npy"), np.load("one.npy")) < 1e-4
