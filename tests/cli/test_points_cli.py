"""`--points` and `--solve`: results, output and refusals at points."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import call, refused
from reference import error, noise, powers, separable

from meshfft.cli.request import SamplingFlags, read_sampling
from meshfft.io import open_array

SHAPE, SAMPLES = (6, 9), (8, 10)
RNG = np.random.default_rng(3)
TURNS = tuple((np.arange(m) + 0.25 * RNG.uniform(-1, 1, m)) / m for m in SAMPLES)
TURNED, RADIANS = ["--points-unit", "turns"], ["--points-unit", "radians"]


@pytest.fixture(autouse=True)
def work(terminal: Path) -> np.ndarray:
    """A folder with an array and points of its axes."""
    x = noise(SHAPE)
    np.save("x.npy", x)
    np.savez("turns.npz", axis1=TURNS[1], axis0=TURNS[0])  # in another order than the axes
    np.savez("radians.npz", *(2 * np.pi * t for t in TURNS))
    np.savez("z.npz", p=0.99 * np.exp(2j * np.pi * TURNS[0]), q=np.exp(2j * np.pi * TURNS[1]))
    return x


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("file", "unit", "radius"),
    [("turns.npz", [*TURNED, "--axes", "1,0"], 1.0), ("radians.npz", RADIANS, 1.0), ("z.npz", [], 0.99)],
)
def test_there_and_back(work: np.ndarray, file: str, unit: list[str], radius: float) -> None:
    """Catches points of another axis, in another unit, off the circle; and a solution of another size."""
    call("transform", "x.npy", "y.npy", "--mesh", "2,2", "--points", file, *unit)
    logs = (np.full(8, np.log(radius)), None)
    matrices = [powers(*one) for one in zip(TURNS, logs, SHAPE, strict=True)]
    assert error(np.load("y.npy"), separable(work, matrices)) <= 1e-6
    sizes = "9,6" if "--axes" in unit else "6,9"
    there = ["transform", "y.npy", "again.npy", "--mesh", "2,2", "--points", file, *unit]
    solve = [*there, "--solve", "--unknowns", sizes]
    if file != "turns.npz":
        printed = call(*solve)
        assert "Solved by QR, QR: condition" in printed and "of one transform, not of the solution" in printed
    else:
        made = json.loads(call(*solve, "--json"))
        assert made["seconds"] is None is made["error_expected"]  # of the transform, which is not what it runs
        assert made["solution"]["residual"] < 1e-6 and 1 < made["solution"]["condition"] < 20
        assert made["solution"]["methods"] == ["QR", "QR"] and len(made["solution"]["conditions"]) == 2
        assert made["points"] == file and made["shape"] == [6, 9] and made["out_shape"] == [8, 10]
    again = np.load("again.npy")
    assert again.shape == SHAPE and error(again, work) <= 5e-6


def test_one_axis_of_a_store_and_in_double_precision(work: np.ndarray) -> None:
    """Catches frequencies and a spacing in a store of samples that have none; and points that are rounded."""
    np.save("x.npy", work.astype(np.complex128))
    np.save("t.npy", TURNS[1])
    np.savez("one.npz", axis1=TURNS[1])
    words = ["transform", "x.npy", "y.zarr", "--mesh", "4", *TURNED]
    call(*words, "--points", "one.npz")
    with open_array("y.zarr") as y:
        assert y.record is None and y.labels is not None and not y.labels.coordinates and y.units == ("", "")
        truth = separable(work, [None, powers(TURNS[1], None, 9)])
        assert error(y[:], truth) <= 2e-15
    call(*words, "--points", "t.npy", "--axes", "-1", "--overwrite")
    with open_array("y.zarr") as y:
        assert error(y[:], truth) <= 2e-15
    assert "6 x 9 to 6 x 10" in call("plan", "6,9", "--mesh", "4", "--points", "one.npz", *TURNED)


def test_what_samples_do_not_determine_needs_a_weight(work: np.ndarray) -> None:
    """Catches a remedy that a terminal does not have, and flags that do not reach the solver."""
    np.save("t.npy", np.arange(9) / 144)
    words = ["--mesh", "2", "--points", "t.npy", "--axes", "1", *TURNED]
    call("transform", "x.npy", "y.npy", *words)
    text = refused("transform", "y.npy", "again.npy", *words, "--solve")
    assert "condition number" in text and "--tikhonov or --truncation" in text and "--unknowns" in text
    assert "SVD" in call("transform", "y.npy", "a.npy", *words, "--solve", "--truncation", "1e-3")
    assert "Tikhonov" in call("transform", "y.npy", "b.npy", *words, "--solve", "--tikhonov", "1e-3")


IMAGE, MANY = (6, 8), (10, 12)
K = RNG.uniform(-0.5, 0.5, (*MANY, 2))
RADII = np.exp(RNG.uniform(-0.03, 0.03, (*MANY, 2)))
SCATTERED = ["--points", "k.npy", *TURNED]


def waves(z: np.ndarray, shape: tuple[int, ...] = IMAGE) -> np.ndarray:
    """z_j1^-n1 z_j2^-n2, of shape (points, pixels)."""
    first, second = (z.reshape(-1, 2)[:, j, None] ** -np.arange(n) for j, n in enumerate(shape))
    return (first[:, :, None] * second[:, None]).reshape(len(first), -1)


@pytest.fixture
def cloud() -> np.ndarray:
    """Two images, and scattered points on and off the unit circle, in every unit."""
    np.save("k.npy", K)
    np.save("view.npy", K * IMAGE)
    np.savez("radians.npz", k=np.asfortranarray(2 * np.pi * K), radius=RADII)
    np.savez("one.npz", k=K, radius=0.99)
    np.save("z.npy", RADII * np.exp(2j * np.pi * K))
    images = noise((2, *IMAGE), "complex128")
    np.save("images.npy", images)
    return images


@pytest.mark.more
@pytest.mark.usefixtures("x64")
def test_scattered_points(cloud: np.ndarray) -> None:
    """Catches a unit, a radius or Fortran order that is lost, coordinates of other axes, a batch that is sampled."""
    turn, to = np.exp(2j * np.pi * K), ["--mesh", "2", "--spec", "-,x,-", "--overwrite"]
    for words, z in (
        (SCATTERED, turn),
        (["--points", "view.npy", "--points-unit", "field-of-view"], turn),
        (["--points", "radians.npz", *RADIANS], RADII * turn),
        (["--points", "one.npz", *TURNED], 0.99 * turn),
        (["--points", "z.npy"], RADII * turn),
    ):
        assert "complex128 2 x 10 x 12" in call("transform", "images.npy", "c.npy", *to, *words)
        assert error(np.load("c.npy").reshape(2, -1), cloud.reshape(2, -1) @ waves(z).T) < 4e-15, words
    swapped = [*SCATTERED, "--axes", "2,1", "--mesh", "2,2", "--spec", "-,x,y", "--ring", "two-way", "--overwrite"]
    assert "(dense ring, two-way)" in call("transform", "images.npy", "c.npy", *swapped)
    assert error(np.load("c.npy").reshape(2, -1), cloud.swapaxes(1, 2).reshape(2, -1) @ waves(turn, (8, 6)).T) < 4e-15
    plan = json.loads(call("plan", "2,6,8", "--mesh", "2", "--spec", "-,x,-", *SCATTERED, "--json"))
    assert plan["out_shape"] == [2, 10, 12] and plan["method"] == "kdft"


@pytest.mark.more
@pytest.mark.usefixtures("x64")
def test_the_array_behind_samples_at_scattered_points(cloud: np.ndarray) -> None:
    """Catches sizes of other axes, a batch counted as unknowns, a system without radii, and a tolerance of floats."""
    turn, to = np.exp(2j * np.pi * K), ["--mesh", "2", "--spec", "-,x,-", "--overwrite"]
    solve = ["transform", "c.npy", "again.npy", *to, "--solve", "--unknowns", "6,8"]
    for words, z in ((SCATTERED, turn), (["--points", "z.npy", "--ring", "one-way"], RADII * turn)):
        np.save("c.npy", (cloud.reshape(2, -1) @ waves(z).T).reshape(2, *MANY))
        found = json.loads(call(*solve, *words, "--json"))["solution"]
        assert found["condition"] == pytest.approx(np.linalg.cond(waves(z)), rel=0.05)
        assert found["residual"] < 1e-11 and 0 < found["iterations"][0] < 60
        assert error(np.load("again.npy"), cloud) < 1e-10
    np.save("c.npy", np.load("c.npy")[0, :2])
    np.save("k.npy", K[:2])
    few = ["transform", "c.npy", "few.npy", "--mesh", "1", *SCATTERED, "--solve", "--unknowns", "6,8"]
    assert "24 samples of 48 unknowns: take more, or give --tikhonov" in refused(*few)
    np.save("k.npy", K[:2, :, :1] / 50)
    said = refused(*few[:-1], "12")
    assert "the condition number is" in said and "--tikhonov" in said


ALL = ["--points", "turns.npz", *TURNED]
BAD: list[tuple[list[str], str]] = [
    (["--points", "turns.npz"], "axis0 is real and no unit is given: give --points-unit turns"),
    (["--points", "turns.npz", "--points-unit", "degrees"], "--points-unit 'degrees' is not known"),
    (["--points", "z.npz", *TURNED], "p is complex, --points-unit turns is for real numbers"),
    (["--points", "missing.npz", *TURNED], "missing.npz: No such file"),
    (["--points", "x.npy", *TURNED], "x.npy is complex, --points-unit turns is for real numbers"),
    (["--points", "turns.npz", "--points-unit", "field-of-view"], "axis0 has points of one axis: give them in turns"),
    (["--points", "nan.npz", *TURNED], "nan.npz, axis1: point 2 is not finite"),
    (["--points", "zero.npz"], "zero.npz, axis0: point 1 is z = 0"),
    (["--points", "text.npz", *TURNED], "holds values of dtype"),
    (["--points", "pickle.npz", *TURNED], "holds Python objects"),
    (["--points", "cut.npz", *TURNED], "cut.npz cannot be read"),
    (["--points", "short.npz", *TURNED], "expected 8000 bytes got 16"),
    (["--points", "twice.npz", *TURNED], "twice.npz holds several arrays of one name"),
    (["--points", "empty.npz", *TURNED], "empty.npz holds no array"),
    (["--points", "mixed.npz", *TURNED], "name all of them axis0, axis1, ..., or none"),
    (["--points", "far.npz", *TURNED], "axis 7 is out of range"),
    (["--points", "turns.txt", *TURNED], "of no known kind: give a file that ends in .npy"),
    (["--points", "radians.npz", *RADIANS, "--axes", "0"], "has points for 2 axes, but 1 would be transformed"),
    ([*ALL, "--axes", "0"], "has points of axes 0,1: leave out --axes"),
    ([*ALL, "--solve"], "the array has 6 samples along axis 0, turns.npz 8 points"),
    (["--points", "square.npz", *TURNED, "--solve", "--unknowns", "6"], "--unknowns has 1 sizes for 2 axes"),
    (["--points", "square.npz", *TURNED, "--solve", "--order", "any"], "--solve and --order exclude each other"),
    (["--points", "square.npz", *TURNED, "--solve", "--tikhonov", "nan"], "--tikhonov is nan"),
    ([*ALL, "--unknowns", "6,9"], "--unknowns goes with --solve"),
    ([*ALL, "--tikhonov", "0.1"], "--tikhonov goes with --solve"),
    ([*ALL, "--memory", "1GB"], "--points and --memory exclude each other"),
    ([*ALL, "--inverse"], "--points and --inverse exclude each other"),
    ([*ALL, "--kind", "rfft"], "--points and --kind exclude each other"),
    ([*ALL, "--plot", "y.png"], "--points and --plot exclude each other"),
    ([*ALL, "--method", "transpose"], "need dense products"),
    (["--solve"], "--solve goes with --points"),
    (TURNED, "--points-unit goes with --points"),
]


@pytest.fixture
def damaged() -> None:
    """Invalid files of points."""
    nan = TURNS[1].copy()
    nan[2] = np.nan
    np.savez("nan.npz", axis0=TURNS[0], axis1=nan)
    np.savez("zero.npz", axis0=np.array([1j, 0]), axis1=np.ones(3, complex))
    np.savez("text.npz", axis0=np.array(["a"]), axis1=TURNS[1])
    np.savez("pickle.npz", axis0=np.array([{}], object), axis1=TURNS[1])
    np.savez("empty.npz")
    np.savez("mixed.npz", axis0=TURNS[0], other=TURNS[1])
    np.savez("far.npz", axis0=TURNS[0], axis7=TURNS[1])
    np.savez("square.npz", *(np.arange(n) / n + 0.01 for n in SHAPE))
    np.save("one.npy", TURNS[0])
    Path("turns.txt").write_text("0.5")
    Path("cut.npz").write_bytes(Path("turns.npz").read_bytes()[:100])
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1000,)})
    with zipfile.ZipFile("twice.npz", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            archive.write("one.npy", "axis0.npy")
    with zipfile.ZipFile("short.npz", "w") as archive:
        archive.writestr("axis0.npy", header.getvalue() + bytes(16))


@pytest.mark.usefixtures("damaged")
@pytest.mark.parametrize(("words", "text"), BAD, ids=[text for _, text in BAD])
def test_bad_points_are_refused(words: list[str], text: str) -> None:
    """Catches a unit that is guessed, a file that is trusted, and a flag that is passed over."""
    assert text in refused("transform", "x.npy", "y.npy", "--mesh", "2,2", *words)


def test_points_are_no_output_by_another_name() -> None:
    """Catches points that their own values replace."""
    np.save("turns.npy", RNG.uniform(-0.5, 0.5, (20, 2)))
    Path("link.npy").symlink_to("turns.npy")
    words = ["--mesh", "1", "--points", "turns.npy", *TURNED, "--overwrite"]
    assert "link.npy is turns.npy, which is read, by another name" in refused("transform", "x.npy", "link.npy", *words)


def test_processes_compare_their_points() -> None:
    """Catches processes with other points: what decides the result has to have the numbers, not the file's name."""
    found: list[Any] = [read_sampling(SamplingFlags(Path("turns.npz"), "turns"))]
    np.savez("turns.npz", axis1=TURNS[1], axis0=TURNS[0] + 1e-3)
    found.append(read_sampling(SamplingFlags(Path("turns.npz"), "turns")))
    found.append(read_sampling(SamplingFlags(Path("turns.npz"), "radians")))
    assert len({one.deciding()["points"] for one in found}) == 3
