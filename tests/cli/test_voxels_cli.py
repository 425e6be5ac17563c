"""Images of `meshfft reconstruct` in NIfTI: positions and order of voxels, and refusals."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from commands import call, refused
from reference import error

from meshfft.cli.reconstruct import read_affine
from meshfft.io import open_array
from meshfft.io.nifti import coils_first

nibabel = pytest.importorskip("nibabel")
SHAPE, COILS, POINTS = (12, 10), 2, 640
RNG = np.random.default_rng(3)
TURNS = RNG.uniform(-0.5, 0.5, (POINTS, 2))
IMAGE = RNG.standard_normal(SHAPE) + 1j * RNG.standard_normal(SHAPE)
MAPS = 1 + 0.5 * (RNG.standard_normal((COILS, *SHAPE)) + 1j * RNG.standard_normal((COILS, *SHAPE)))
AFFINE = np.array([[0, -1.25, 0, 10], [1.5, 0, 0.25, -20], [0.125, 0, 3, 5], [0, 0, 0, 1]])  # rotated and sheared
WORDS = [
    "--points",
    "turns.npy",
    "--points-unit",
    "turns",
    "--shape",
    "12,10",
    "--iterations",
    "25",
    "--density",
    "none",
]


@pytest.fixture(autouse=True)
def work(terminal: Path) -> None:
    """A folder with the data of coils and their maps."""
    waves = np.exp(-2j * np.pi * (TURNS @ (np.indices(SHAPE).reshape(2, -1) - np.array([[6], [5]]))))
    np.save("turns.npy", TURNS)
    np.save("k.npy", ((MAPS * IMAGE).reshape(COILS, -1) @ waves.T).astype(np.complex64))
    saved("maps.nii.gz", np.moveaxis(MAPS, 0, -1)[:, :, None].astype(np.complex64))


def saved(name: str, values: np.ndarray, affine: np.ndarray = AFFINE) -> str:
    nibabel.save(nibabel.Nifti1Image(values, affine), name)
    return name


@pytest.mark.more
def test_voxels_are_where_those_of_the_maps_are() -> None:
    """Catches a packed image that nibabel does not read, a coil of maps in NIfTI read as a row, positions and sizes of
    voxels that are lost or permuted, and a store without them."""
    said = call("reconstruct", "k.npy", "out.nii.gz", *WORDS, "--maps", "maps.nii.gz")
    assert "Voxels of 1.505 x 1.25 mm." in said and "Wrote out.nii.gz: magnitude, float32 12 x 10." in said
    image = nibabel.load("out.nii.gz")
    assert image.get_data_dtype() == np.float32 and error(image.get_fdata(), np.abs(IMAGE)) < 1e-3
    np.testing.assert_allclose(image.affine, AFFINE, atol=1e-6)
    np.testing.assert_allclose(image.header.get_zooms(), np.linalg.norm(AFFINE[:3, :2], axis=0), rtol=1e-6)
    assert (image.header.get_xyzt_units(), int(image.header["sform_code"])) == (("mm", "unknown"), 1)
    assert sorted(os.listdir()) == ["k.npy", "maps.nii.gz", "out.nii.gz", "turns.npy"]
    call("reconstruct", "k.npy", "out.zarr", *WORDS, "--maps", "maps.nii.gz")
    with pytest.importorskip("xarray").open_zarr("out.zarr") as store:
        assert error(store["data"].values, IMAGE) < 1e-3
        assert store["data"].attrs["meshfft_scattered"]["affine"] == AFFINE.tolist()


def test_coils_are_last_and_numbers_complex() -> None:
    """Catches coils in the place of the first dimension of space, blocks of them in the wrong place, a magnitude where
    complex numbers are asked for, and pixels that count from elsewhere than the origin."""
    how = ["--complex", "--voxel", "1.5,2", "--mesh", "2,2", "--spec", "x,y,-", "--json"]
    made = json.loads(call("reconstruct", "k.npy", "out.nii.gz", *WORDS, *how))
    image = nibabel.load("out.nii.gz")
    found = np.asanyarray(image.dataobj)
    assert found.dtype == np.complex64 and found.shape == (*SHAPE, 1, COILS)
    assert error(np.moveaxis(found[:, :, 0], -1, 0), MAPS * IMAGE) < 1e-3
    np.testing.assert_array_equal(image.affine, [[1.5, 0, 0, -9], [0, 2, 0, -10], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert image.header.get_zooms() == (1.5, 2, 1, 1) and made["affine"] == image.affine.tolist() and made["complex"]
    with open_array("out.nii.gz") as source:
        np.testing.assert_array_equal(source[:, 3:7], found[:, 3:7])


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "a.npy", "a.txt"])
def test_files_that_say_where_voxels_are(name: str) -> None:
    """Catches an affine that is transposed, rounded, or that of a header's other form."""
    if name.startswith("a.nii"):
        saved(name, np.zeros((3, 4, 5), "i2"))
    elif name == "a.npy":
        np.save(name, AFFINE)
    else:
        np.savetxt(name, AFFINE)
    found = read_affine(None, Path(name), SHAPE, "centre", Path("out.nii"))
    assert found == AFFINE.tolist()
    corner = read_affine("1,2", None, SHAPE, "corner", Path("out.zarr"))
    assert corner == [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 1, 5), (3, 4, 6, 5)])
def test_maps_of_nifti_in_another_order(shape: tuple[int, ...]) -> None:
    """Catches a box of maps read from the wrong place, and a dimension of one voxel taken for one of the image."""
    values, dims = RNG.standard_normal(shape).astype("f4"), 3 if 6 in shape else 2
    with open_array(saved("a.nii", values)) as array:
        maps, truth = coils_first(array, dims), np.moveaxis(values.reshape(*shape[:dims], 5), -1, 0)
        assert maps.shape == truth.shape
        np.testing.assert_array_equal(maps[...], truth)
        np.testing.assert_array_equal(maps[1:4, 2:3, 1:], truth[1:4, 2:3, 1:])


BAD: list[tuple[list[str], str]] = [
    (["out.npy", "--voxel", "1,1"], "out.npy has no room for --voxel: write .nii, .nii.gz or .zarr"),
    (["out.npy", "--affine", "good.txt"], "out.npy has no room for --affine"),
    (["out.tif", "--affine", "good.txt"], "end it in .npy"),
    (["out.nii", "--voxel", "1"], "--voxel '1' is no size of 2 dimensions: give each in mm, as 1.5,1.5"),
    (["out.nii", "--voxel", "1,-2"], "--voxel '1,-2' is no size"),
    (["out.nii", "--voxel", "nan,1"], "--voxel 'nan,1' is no size"),
    (["out.nii", "--voxel", "1e-60,1"], "a voxel of 1e-60 x 1.0 mm puts all voxels into a plane"),
    (["out.nii", "--voxel", "1,1", "--affine", "good.txt"], "--affine has the size of voxels: leave out --voxel"),
    (["out.nii", "--affine", "none.nii"], "--affine none.nii is no file: give a NIfTI file"),
    (["out.nii", "--affine", "flat.txt"], "--affine flat.txt puts all voxels into a plane"),
    (["out.nii", "--affine", "turns.npy"], "--affine turns.npy is no affine: give 4 x 4 numbers"),
    (["out.nii", "--affine", "words.txt"], "words.txt cannot be read"),
    (["out.nii", "--affine", "words.nii.gz"], "words.nii.gz cannot be read"),
    (["out.nii", "--affine", "nan.nii"], "--affine nan.nii is no affine"),
    (["out.nii.gz", "--maps", "first.nii"], "give maps of shape (2, 12, 10), in NIfTI with the coils last"),
    (["no/out.nii.gz"], "no is not a folder: make it first"),
    (["out.NII.GZ"], "end it in .npy or .h5"),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_what_is_wrong_is_refused(words: list[str], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Catches an affine that is guessed, or that the output has no room for, an image that is computed before this is
    found out, and an output that is left behind."""
    np.savetxt("good.txt", AFFINE)
    np.savetxt("flat.txt", AFFINE * [0, 1, 1, 1])
    for name in ("words.txt", "words.nii.gz"):
        Path(name).write_text("no numbers")
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2), "f4"), np.eye(4))
    image.header["srow_x"][0] = np.nan
    Path("nan.nii").write_bytes(image.header.binaryblock)
    saved("first.nii", MAPS.astype(np.complex64))
    assert text in refused("reconstruct", "k.npy", *words, *WORDS)
    assert "planning" not in capfd.readouterr().err
