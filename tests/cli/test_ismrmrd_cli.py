"""Files of scanners, written by ISMRMRD's own package: the readouts of one image, where they were taken, no others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from meshfft.cli.app import app
from meshfft.io.ismrmrd import is_scan, read_scan

ismrmrd = pytest.importorskip("ismrmrd")
N, COILS, SPOKES, PRE, POST = 8, 2, 20, 3, 2
PIXELS = np.stack(np.meshgrid(*2 * [np.arange(N) - N // 2], indexing="ij"), -1).reshape(-1, 2)
RNG = np.random.default_rng(7)
IMAGE = RNG.normal(size=N * N) + 1j * RNG.normal(size=N * N)
MAPS = np.stack([np.exp(-((PIXELS - at) ** 2).sum(-1) / 40 + 0.3j * at) for at in (-2, 2)])


def header(trajectory: str, matrix: tuple[int, int, int] = (N, N, 1), count: int = 1) -> Any:
    xsd = ismrmrd.xsd
    space = xsd.encodingSpaceType(
        matrixSize=xsd.matrixSizeType(*(), **dict(zip("xyz", matrix, strict=True))),
        fieldOfView_mm=xsd.fieldOfViewMm(x=200.0, y=200.0, z=5.0),
    )
    limits = xsd.encodingLimitsType(kspace_encoding_step_1=xsd.limitType(minimum=0, maximum=N - 1, center=3))
    encoding = xsd.encodingType(
        encodedSpace=space, reconSpace=space, encodingLimits=limits, trajectory=xsd.trajectoryType(trajectory)
    )
    field = xsd.experimentalConditionsType(H1resonanceFrequency_Hz=128_000_000)
    return xsd.ismrmrdHeader(experimentalConditions=field, encoding=[encoding] * count).toXML("utf-8")


def sums(points: np.ndarray) -> np.ndarray:
    """Samples of all coils at points in cycles per pixel: direct sums in float64."""
    return np.stack([np.exp(-2j * np.pi * points @ PIXELS.T) @ (one * IMAGE) for one in MAPS])


def spokes() -> list[np.ndarray]:
    radii = 1.45 * (np.arange(2 * N) - N) / (2 * N)  # to the corners
    angles = np.pi * np.arange(SPOKES) / SPOKES
    return [(radii[:, None] * [np.cos(t), np.sin(t)]).astype("f4") for t in angles]


def readout(points: np.ndarray, stored: bool = True, values: np.ndarray | None = None) -> Any:
    """A readout, between samples to be discarded, of numbers that would be seen."""
    seen = sums(points.astype(float)) if values is None else values
    padded = np.pad(seen, [(0, 0), (PRE, POST)], constant_values=1e3).astype("c8")
    where = np.pad(points, [(PRE, POST), (0, 0)], constant_values=77).astype("f4")
    one = ismrmrd.Acquisition.from_array(padded, where) if stored else ismrmrd.Acquisition.from_array(padded)
    one.discard_pre, one.discard_post = PRE, POST
    return one


def noise() -> Any:
    one = ismrmrd.Acquisition.from_array(np.full((COILS, 50), 99, "c8"))
    one.setFlag(ismrmrd.ACQ_IS_NOISE_MEASUREMENT)
    return one


def scan(path: Path, readouts: list[Any], head: bytes | None = None) -> Path:
    file = ismrmrd.Dataset(str(path), "dataset", True)
    file.write_xml_header(header("radial") if head is None else head)
    for one in readouts:
        file.append_acquisition(one)
    file.close()
    return path


def radial() -> list[Any]:
    return [noise(), *map(readout, spokes())]


def cartesian(center: int = 3, columns: int = N - 1) -> list[Any]:
    """Lines of an echo that is not in the middle of the readout."""
    found = []
    for step in range(N):
        points = np.stack([(np.arange(columns) - center) / N, np.full(columns, (step - 3) / N)], -1)
        one = readout(points, stored=False)
        one.center_sample, one.idx.kspace_encode_step_1 = center + PRE, step
        found.append(one)
    return found


def command(*words: Any) -> Any:
    return CliRunner().invoke(app, ["reconstruct", *map(str, words)])


def test_the_readouts_of_an_image(tmp_path: Path) -> None:
    """Catches noise and samples to be discarded taken for data, values of another coil or readout, and points that do
    not belong to them."""
    found = read_scan(scan(tmp_path / "a.h5", radial()))
    points = np.concatenate(spokes())
    np.testing.assert_array_equal(found.points, points)
    np.testing.assert_array_equal(found.values[...], sums(points.astype(float)).astype("c8"))
    assert found.words == "20 of 21 readouts, left out: 1 noise"
    assert (found.encoding.sizes, found.encoding.field_of_view, found.cartesian) == ((N, N), (200, 200, 5), False)
    assert is_scan(tmp_path / "a.h5", "dataset") and not is_scan(tmp_path / "a.h5", "other")


def test_points_of_a_cartesian_scan(tmp_path: Path) -> None:
    """Catches an echo or a step that is off the centre of k-space by one, and samples counted without the discarded."""
    found = read_scan(scan(tmp_path / "a.h5", cartesian(), header("cartesian")))
    steps = [np.stack([(np.arange(7) - 3) / N, np.full(7, (step - 3) / N)], -1) for step in range(N)]
    np.testing.assert_allclose(found.points, np.concatenate(steps), atol=1e-15)
    np.testing.assert_allclose(found.values[...], sums(found.points), rtol=1e-5, atol=1e-5)


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", ["radial", pytest.param("cartesian", marks=pytest.mark.slow)])
def test_a_file_is_reconstructed_as_it_is(tmp_path: Path, kind: str) -> None:
    """Catches a mirrored, rotated or shifted image, or that of a single coil."""
    readouts = radial() if kind == "radial" else cartesian(4, N)
    path = scan(tmp_path / "a.h5", readouts, header(kind))
    np.save(tmp_path / "maps.npy", MAPS.reshape(COILS, N, N).astype("c8"))
    unit = ["--points-unit", "turns"] if kind == "radial" else []
    words = ["--maps", tmp_path / "maps.npy", "--iterations", "60", "--density", "none", "--tol", "1e-6", *unit]
    ran = command(path, tmp_path / "y.npy", *words)
    assert ran.exit_code == 0, ran.output
    assert ("left out: 1 noise" in ran.output) == (kind == "radial")
    found = np.load(tmp_path / "y.npy")
    assert found.shape == (N, N)
    assert np.linalg.norm(found.ravel() - IMAGE) <= 2e-3 * np.linalg.norm(IMAGE)


@pytest.mark.quick(1, 2)
@pytest.mark.parametrize(("words", "sizes"), [([], (25, 25, 5)), (["--voxel", "2,3"], (2, 3, 1)), (["--points"], None)])
def test_voxels_have_the_size_that_the_scanner_says(tmp_path: Path, words: list[str], sizes: Any) -> None:
    """Catches voxels without a size, in another order than the header's or larger for a smaller image, a size that is
    not the one asked for, and one of points that are not the scanner's."""
    nibabel = pytest.importorskip("nibabel")
    np.save(tmp_path / "p.npy", np.concatenate(spokes()))
    words = [*words, str(tmp_path / "p.npy")] if words == ["--points"] else words
    how = ["--points-unit", "turns", "--shape", f"{N},6", "--iterations", "1", "--density", "none", "--tol", "1e-2"]
    ran = command(scan(tmp_path / "a.h5", radial()), tmp_path / "y.nii.gz", *words, *how)
    assert ran.exit_code == 0, ran.output
    image = nibabel.load(tmp_path / "y.nii.gz")
    expected = np.diag([*(sizes or (1, 1, 1)), 1.0])
    expected[:2, 3] = -expected[[0, 1], [0, 1]] * [N // 2, 3] if sizes else 0
    np.testing.assert_array_equal(image.affine, expected)
    assert image.header.get_xyzt_units()[0] == ("mm" if sizes else "unknown")


def marked(**indices: int) -> Any:
    one = readout(spokes()[0])
    for name, value in indices.items():
        setattr(one if name == "encoding_space_ref" else one.idx, name, value)
    return one


def flagged(one: Any, flag: int) -> Any:
    one.setFlag(flag)
    return one


def test_one_of_several_images_is_selected(tmp_path: Path) -> None:
    """Catches readouts of two slices in one image, the wrong one of them, and phases that cannot be taken together."""
    one, two = (readout(at, values=np.full((COILS, 2 * N), n, "c8")) for n, at in enumerate(spokes()[:2]))
    two.idx.slice = two.idx.phase = 1
    path = scan(tmp_path / "a.h5", [one, two, one])
    with pytest.raises(ValueError, match=r"a.h5 has readouts of slice 0, 1, of images .* as select=slice=0"):
        read_scan(path)
    assert (read_scan(path, select="slice=1").values[...] == 1).all()
    found = read_scan(path, select="slice=0,phase=0")
    assert (found.values[...] == 0).all() and found.words == "2 of 3 readouts, left out: 1 of another slice"
    with pytest.raises(ValueError, match="none of slice 2"):
        read_scan(path, select="slice=2")
    for text in ("slice=all", "slice", "colour=1", "slice=-1", "encoding=all"):
        with pytest.raises(ValueError, match="selects no readouts"):
            read_scan(path, select=text)
    two.idx.slice = 0
    path = scan(tmp_path / "b.h5", [one, two])
    assert read_scan(path, select="phase=all").values.shape == (COILS, 4 * N)
    refused = command(path, tmp_path / "y.npy", "--points-unit", "turns")
    assert refused.exit_code == 2 and "--select phase=0" in refused.stderr


def weighted() -> Any:
    """A trajectory with a weight where others keep a third coordinate."""
    points = np.column_stack([spokes()[1], np.full(2 * N, 0.5, "f4")])
    return readout(points, values=np.ones((COILS, 2 * N)))


REFUSED: list[tuple[Callable[[], list[Any]], tuple[Any, ...], str]] = [
    (lambda: [noise()], ("radial",), "has no readout of an image (1 noise)"),
    (lambda: [marked(contrast=1), marked(contrast=2)], ("radial",), "readouts of contrast 1, 2"),
    (lambda: [marked(), marked(encoding_space_ref=1)], ("radial", (N, N, 1), 2), "readouts of encoding 0, 1"),
    (lambda: [marked(encoding_space_ref=1)], ("radial",), "readouts of encoding 1 and 1 in its header"),
    (lambda: [readout(spokes()[0], stored=False)], ("radial",), "has a radial scan without trajectories"),
    (lambda: [weighted()], ("radial",), "trajectories of 3 coordinates and an encoded matrix of (8, 8, 1)"),
    (lambda: [marked()], ("radial", (N, N, 4)), "trajectories of 2 coordinates and an encoded matrix of (8, 8, 4)"),
    (lambda: [marked(), weighted()], ("radial",), "trajectories of d = 2 and 3 coordinates"),
    (lambda: [readout(spokes()[0], values=np.ones((n, 2 * N))) for n in (1, 2)], ("radial",), "of 1 and 2 coils"),
    (lambda: [flagged(cartesian()[0], ismrmrd.ACQ_IS_REVERSE)], ("cartesian",), "reversed readouts"),
    (lambda: [flagged(marked(), ismrmrd.ACQ_COMPRESSION1)], ("radial",), "compressed readouts"),
    (lambda: [marked(kspace_encode_step_2=n) for n in (0, 1)], ("radial",), "steps [0, 1] along z"),
]


@pytest.mark.parametrize(("readouts", "head", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_what_is_unclear_is_refused(
    tmp_path: Path, readouts: Callable[[], list[Any]], head: tuple[Any, ...], words: str
) -> None:
    """Catches mixed readouts, weights read as positions, and made-up points; each gives a wrong image."""
    path = scan(tmp_path / "a.h5", readouts(), header(*head))
    with pytest.raises(ValueError) as caught:
        read_scan(path)
    assert words in str(caught.value) and "damaged" not in str(caught.value) and ": " in str(caught.value)


def test_units_and_sizes_that_do_not_fit(tmp_path: Path) -> None:
    """Catches a unit guessed for a trajectory, one given for computed points, and a field of view of two sizes."""
    target = tmp_path / "y.npy"
    plain, lines = scan(tmp_path / "a.h5", radial()), scan(tmp_path / "b.h5", cartesian(), header("cartesian"))
    for words, text in (
        ([plain], "no unit is given"),
        ([plain, "--points-unit", "field-of-view", "--shape", "16,16"], "encodes a field of view of (8, 8) pixels"),
        ([lines, "--points-unit", "radians"], "its points are computed, in turns: leave out --points-unit radians"),
        ([plain, "--points-unit", "turns", "--select", "slice=4"], "none of slice 4"),
        ([plain, "--points-unit", "turns", "--dataset", "other", "--shape", "8,8"], "no dataset 'other'"),
    ):
        ran = command(words[0], target, *words[1:])
        assert ran.exit_code == 2 and text in ran.stderr, ran.output
    assert not target.exists()


def test_files_that_were_tampered_with(tmp_path: Path) -> None:
    """Catches a header that fills the memory, also for readouts that were never written; and readouts shorter than
    their headers."""
    h5py = pytest.importorskip("h5py")
    path = scan(tmp_path / "a.h5", radial())
    with h5py.File(path, "r+") as file:
        rows = file["dataset/data"][...]
        rows["head"]["number_of_samples"][3] -= 1
        file["dataset/data"][...] = rows
    with pytest.raises(ValueError, match="damaged"):
        read_scan(path)
    with h5py.File(path, "r+") as file:
        file["dataset/data"].resize((10**11,))
    with pytest.raises(ValueError, match="some were never written"):
        read_scan(path)
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><ismrmrdHeader>&a;</ismrmrdHeader>'
    with pytest.raises(ValueError, match="header of 67 bytes that is none"):
        read_scan(scan(tmp_path / "b.h5", radial(), bomb))
    for head in (b"<ismrmrdHeader><encoding/></ismrmrdHeader>", b"nothing", header("radial", (N, 0, 1))):
        with pytest.raises(ValueError, match=r"damaged|complete its header"):
            read_scan(scan(tmp_path / "c.h5", radial(), head))
        (tmp_path / "c.h5").unlink()
