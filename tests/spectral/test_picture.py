"""The picture of a spectrum: which planes it shows, where its values are drawn, and when it is refused."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from meshfft.spectral import picture
from meshfft.spectral.picture import central_planes, save_spectrum

Figure = pytest.importorskip("matplotlib.figure").Figure

ALL = slice(None)


@pytest.mark.parametrize(
    ("shape", "axes", "at"),
    [
        ((4, 5, 6), None, [(ALL, ALL, 0), (ALL, 0, ALL), (0, ALL, ALL)]),
        ((4, 5, 6, 7), None, [(ALL, ALL, 0, 0), (ALL, 0, ALL, 0), (0, ALL, ALL, 0)]),
        ((4, 5, 6, 7), (-1, 1), [(0, ALL, 0, ALL)]),
        ((4, 5), None, [(ALL, ALL)]),
        ((4,), None, [(ALL,)]),
        ((1, 5, 6), None, [(0, ALL, ALL)]),
        ((1,), None, [(ALL,)]),
    ],
)
def test_planes_through_zero_frequency(shape: tuple[int, ...], axes: tuple[int, ...] | None, at: list) -> None:
    """Catches planes that miss zero frequency, repeat, or are parallel to dimensions that were not transformed."""
    assert [plane.at for plane in central_planes(shape, axes)] == at


def test_titles_name_the_fixed_dimensions() -> None:
    """Catches a panel with a wrong position in its title."""
    assert [plane.title for plane in central_planes((4, 4, 4))] == ["$k_{2}$ = 0", "$k_{1}$ = 0", "$k_{0}$ = 0"]
    assert central_planes((4, 4))[0].title == ""
    assert [plane.title for plane in central_planes((4, 4, 4), (0, 1))] == ["$n_{2}$ = 0"]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 3001])
def test_zero_frequency_is_drawn_at_zero(n: int) -> None:
    """Catches a spectrum shifted by half its length, or by one where that is odd, against its labels."""
    magnitude = np.full(n, 1e-3)
    magnitude[0] = 1
    panel, (left, right) = picture._panel(magnitude), picture._ends(n)
    middle = left + (int(panel.argmax()) + 0.5) * (right - left) / len(panel)
    assert right - left == n
    assert abs(middle) <= (0 if n <= picture.PIXELS else n / picture.PIXELS)


def test_large_planes_keep_their_peaks() -> None:
    """Catches single bright frequencies lost where a plane has more values than a panel."""
    magnitude = np.ones((5000, 3))
    magnitude[1234, 1] = 100
    panel = picture._panel(magnitude)
    assert panel.shape == (1000, 3)
    assert panel.max() == 2


@pytest.mark.parametrize("values", [np.zeros(4), np.ones(4), np.array([0, 1e-30, 1, 1e5])])
@pytest.mark.filterwarnings("error")
def test_the_scale_is_finite(values: np.ndarray) -> None:
    """Catches zeros, whose log is infinite, and constants, whose range is empty, in the colour scale."""
    low, high = picture._limits([picture._panel(values)])
    assert np.isfinite([low, high]).all()
    assert 0 < high - low <= picture.DECADES


@pytest.mark.quick(7)
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
@pytest.mark.parametrize("shape", [(8, 6, 5, 2), (8, 6), (9,)])
@pytest.mark.filterwarnings("error")
def test_draws_every_number_of_dimensions(tmp_path: Path, shape: tuple[int, ...], suffix: str) -> None:
    """Catches a picture that fails, warns, or leaves its temporary behind, for some dimension or format."""
    spectrum = np.abs(np.fft.fftn(np.random.default_rng(0).normal(size=shape)))
    planes = central_planes(shape)
    path = tmp_path / f"a{suffix}"
    save_spectrum(path, [spectrum[plane.at] for plane in planes], planes)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF", b"<?xm")
    assert os.listdir(tmp_path) == [path.name]


def test_pictures_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a bad suffix, an existing file, a missing folder or package found out only after the transform."""
    (tmp_path / "old.png").write_text("old")
    with pytest.raises(ValueError, match=r"end it in \.png, \.pdf, \.svg"):
        picture.check_picture(tmp_path / "a.gif")
    with pytest.raises(FileExistsError, match="exists"):
        picture.check_picture(tmp_path / "old.png")
    with pytest.raises(FileNotFoundError, match="make it first"):
        picture.check_picture(tmp_path / "no" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'needs matplotlib .* pip install "\.\[plots\]"'):
        picture.check_picture(tmp_path / "a.png")


def test_a_picture_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches half a picture under the name of a whole one."""

    def fail(_: object, path: Path, **options: object) -> None:
        path.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save_spectrum(tmp_path / "a.png", [np.ones((4, 4))], central_planes((4, 4)))
    assert os.listdir(tmp_path) == []
