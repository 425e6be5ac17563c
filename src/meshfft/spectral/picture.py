"""A figure of a spectrum: log10 |X| on the planes through zero frequency, in the middle of the figure.

All share one scale; a 1-D spectrum is a curve.
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
PIXELS = 1024  # most pixels per side of a panel
DECADES = 10  # most decades below the largest magnitude
INCHES = 3.6  # side of a panel


class Plane(NamedTuple):
    dims: tuple[int, ...]
    at: tuple[int | slice, ...]
    transformed: tuple[int, ...]

    @property
    def title(self) -> str:
        """The dimensions fixed at index 0, such as k2 = k3 = 0, or n2 if not transformed."""
        fixed = [d for d in range(len(self.at)) if d not in self.dims]
        names = [f"${'k' if d in self.transformed else 'n'}_{{{d}}}$" for d in fixed]
        return " = ".join([*names, "0"]) if names else ""


def central_planes(shape: Sequence[int], axes: Sequence[int] | None = None) -> list[Plane]:
    """The planes through zero frequency.

    For the first three of `axes` with more than one value; other dimensions are fixed at index 0.
    """
    chosen = tuple(sorted({axis % len(shape) for axis in (range(len(shape)) if axes is None else axes)}))
    shown = [axis for axis in chosen if shape[axis] > 1][:3] or chosen[:1]
    pairs = itertools.combinations(shown, min(2, len(shown)))
    return [Plane(p, tuple(slice(None) if d in p else 0 for d in range(len(shape))), chosen) for p in pairs]


def check_picture(path: str | Path, overwrite: bool = False) -> None:
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
    """log10 of the largest magnitude in each of at most PIXELS cells per side."""
    cells: np.ndarray = np.fft.fftshift(magnitude)
    for axis, size in enumerate(cells.shape):
        cells = np.maximum.reduceat(cells, np.arange(0, size, -(-size // PIXELS)), axis=axis)
    with np.errstate(divide="ignore"):  # log of zero is drawn at the bottom of the scale
        return np.asarray(np.log10(cells))


def _limits(panels: Sequence[np.ndarray]) -> tuple[float, float]:
    values = np.concatenate([panel[np.isfinite(panel)] for panel in panels])
    if values.size == 0:
        return -1.0, 0.0
    high = float(values.max())
    low = max(float(np.percentile(values, 0.5)), high - DECADES)
    return (low, high) if high - low > 0.1 else (high - 1, high)


def _ends(n: int) -> tuple[float, float]:
    return -(n // 2) - 0.5, (n - 1) // 2 + 0.5
