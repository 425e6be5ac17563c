"""A figure of a spectrum: log10 |X| on the planes through zero frequency, which is drawn in the middle.

A 3-D spectrum gives three planes, one for each pair of its dimensions, a 2-D one a single plane, a 1-D one a curve; all
share one scale. The magnitudes are in memory already.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..atomic import refuse_existing, replacing
from ..extras import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".png", ".pdf", ".svg")
PIXELS = 1024  # a side; a panel shows no more
DECADES = 10  # depth of the scale below the largest magnitude, at most
INCHES = 3.6  # a panel's side


class Plane(NamedTuple):
    """A plane, or a line, through a spectrum: the dimensions it shows, its index, the dimensions transformed."""

    dims: tuple[int, ...]
    at: tuple[int | slice, ...]
    transformed: tuple[int, ...]

    @property
    def title(self) -> str:
        """The dimensions that are fixed at index 0: k2 = k3 = 0, and n2 if it was not transformed."""
        fixed = [d for d in range(len(self.at)) if d not in self.dims]
        names = [f"${'k' if d in self.transformed else 'n'}_{{{d}}}$" for d in fixed]
        return " = ".join([*names, "0"]) if names else ""


def central_planes(shape: Sequence[int], axes: Sequence[int] | None = None) -> list[Plane]:
    """The planes through zero frequency that a picture of a spectrum shows.

    Args:
        shape: the shape of the spectrum, its frequencies in FFT order.
        axes: the transformed dimensions, all by default; the first three of more than one value are shown.

    Returns:
        Three planes, or one if two dimensions are shown, or one line. Other dimensions are fixed at index 0.
    """
    chosen = tuple(sorted({axis % len(shape) for axis in (range(len(shape)) if axes is None else axes)}))
    shown = [axis for axis in chosen if shape[axis] > 1][:3] or chosen[:1]
    pairs = itertools.combinations(shown, min(2, len(shown)))
    return [Plane(p, tuple(slice(None) if d in p else 0 for d in range(len(shape))), chosen) for p in pairs]


def check_picture(path: str | Path, overwrite: bool = False) -> None:
    """Refuses a picture that could not be drawn, before any work is done for it.

    Raises:
        ImportError: matplotlib is missing.
        ValueError: the suffix is not .png, .pdf or .svg.
        OSError: the picture exists and may not be overwritten, or its folder does not exist.
    """
    path = Path(path)
    if path.suffix not in KINDS:
        raise ValueError(f"{path} is no kind of picture that can be drawn: end it in {', '.join(KINDS)}")
    need("matplotlib", "drawing a picture")
    refuse_existing(path, overwrite)
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"{path.resolve().parent} is not a folder: make it first, or draw elsewhere")


def save_spectrum(
    path: str | Path, magnitudes: Sequence[np.ndarray], planes: Sequence[Plane], *, overwrite: bool = False
) -> None:
    """Draws |X| on some planes, as `central_planes` gives them, as a row of panels on one scale.

    Raises:
        ImportError, ValueError, OSError: as `check_picture`.
    """
    path = Path(path)
    check_picture(path, overwrite)
    size = INCHES * len(planes) + 0.9, INCHES + 0.4
    figure = need("matplotlib.figure", "drawing a picture").Figure(figsize=size, layout="constrained", dpi=150)
    if magnitudes[0].ndim == 1:
        _draw_curve(figure, magnitudes[0], planes[0])
    else:
        _draw_planes(figure, magnitudes, planes)
    with replacing(path, overwrite) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], bbox_inches="tight")


def _draw_planes(figure: "Figure", magnitudes: Sequence[np.ndarray], planes: Sequence[Plane]) -> None:
    panels = [_panel(magnitude) for magnitude in magnitudes]
    low, high = _limits(panels)
    spots = figure.subplots(1, len(panels), squeeze=False)[0]
    for spot, panel, magnitude, plane in zip(spots, panels, magnitudes, planes, strict=True):
        extent = (*_ends(magnitude.shape[1]), *_ends(magnitude.shape[0]))
        image = spot.imshow(panel, extent=extent, vmin=low, vmax=high, cmap="magma", origin="lower", aspect="auto")
        spot.set_box_aspect(1)
        spot.set(xlabel=f"$k_{{{plane.dims[1]}}}$", ylabel=f"$k_{{{plane.dims[0]}}}$", title=plane.title)
    figure.colorbar(image, ax=list(spots), label=r"$\log_{10}\,|X|$", shrink=0.85)


def _draw_curve(figure: "Figure", magnitude: np.ndarray, plane: Plane) -> None:
    figure.set_size_inches(2 * INCHES, INCHES)
    (left, right), panel, spot = _ends(magnitude.size), _panel(magnitude), figure.subplots()
    spot.plot(np.linspace(left + 0.5, right - 0.5, len(panel)), panel, color="#51127c", linewidth=1)
    spot.set(xlabel=f"$k_{{{plane.dims[0]}}}$", ylabel=r"$\log_{10}\,|X|$", title=plane.title, ylim=_limits([panel]))
    spot.grid(alpha=0.3)


def _panel(magnitude: np.ndarray) -> np.ndarray:
    """log10 of the largest magnitude in each of at most PIXELS cells a side, zero frequency in the middle."""
    cells: np.ndarray = np.fft.fftshift(magnitude)
    for axis, size in enumerate(cells.shape):
        cells = np.maximum.reduceat(cells, np.arange(0, size, -(-size // PIXELS)), axis=axis)
    with np.errstate(divide="ignore"):  # the log of a zero is drawn at the bottom of the scale
        return np.asarray(np.log10(cells))


def _limits(panels: Sequence[np.ndarray]) -> tuple[float, float]:
    """The scale: from nearly the smallest magnitude, but no more than DECADES deep, to the largest."""
    values = np.concatenate([panel[np.isfinite(panel)] for panel in panels])
    if values.size == 0:
        return -1.0, 0.0
    high = float(values.max())
    low = max(float(np.percentile(values, 0.5)), high - DECADES)
    return (low, high) if high - low > 0.1 else (high - 1, high)


def _ends(n: int) -> tuple[float, float]:
    """The outer edges of the first and last of n frequencies once shifted: half a cell beyond their middles."""
    return -(n // 2) - 0.5, (n - 1) // 2 + 0.5
