"""Pictures of a reconstruction: trajectory, coils, images with their errors, and errors by iteration. Needs matplotlib.

A volume is shown by its middle plane. All errors have one scale, up to a fifth of the brightest pixel.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from scan import Scan

if TYPE_CHECKING:
    from courses import Course
    from matplotlib.axes import Axes

LINES, SAMPLES = 24, 8192  # most readouts drawn of a trajectory, and most samples
SCALE = 0.2  # of the errors
TICKS = (0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7)


def draw(found: Scan, courses: "Sequence[Course]", folder: Path) -> None:
    """Writes trajectory.png, coils.png, images.png and error.png."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"trajectory": trajectory(found), "coils": coils(found), "images": images(found, courses)}
    for name, figure in {**made, "error": errors(courses)}.items():
        figure.savefig(folder / f"{name}.png")


def plane(image: np.ndarray) -> np.ndarray:
    """An image, or the middle plane of a volume across its last dimension; the first dimension points right."""
    return (image if image.ndim == 2 else image[..., image.shape[-1] // 2]).T


def trajectory(found: Scan) -> Figure:
    """The readouts, early ones dark, and the points in the middle of k-space."""
    readouts, samples, dims = found.turns.shape
    figure = Figure((8, 4), layout="constrained", dpi=150)
    kind = {"projection": "3d"} if dims == 3 else {}
    left, right = figure.add_subplot(1, 2, 1, **kind), figure.add_subplot(1, 2, 2, **kind)
    shown = np.sort(np.random.default_rng(0).permutation(readouts)[: min(LINES, max(2, SAMPLES // samples))])
    for place, one in enumerate(found.turns[shown]):
        left.plot(*one.T, lw=0.6, color=_dark(place / len(shown)))
    left.set_title(f"{len(shown)} of {readouts} readouts")
    near = found.turns.reshape(-1, dims)
    edge = 6 / found.truth.shape[0]
    near = near[(np.abs(near) < edge).all(-1)]
    right.plot(*near[:: max(1, len(near) // 4000)].T, ls="", marker=".", ms=2, mew=0, color="black")
    right.set_title(f"the middle, {2 * edge:.2g} wide")
    for axes in (left, right):
        axes.set(**dict(zip(("xlabel", "ylabel", "zlabel"), ("$k_0$ (turns)", "$k_1$", "$k_2$")[:dims], strict=False)))
        axes.set_aspect("equal")
        if isinstance(axes, Axes3D):
            axes.set_box_aspect((1, 1, 1), zoom=0.85)
    return figure


def coils(found: Scan) -> Figure:
    """Magnitude and phase of every coil's map."""
    count = len(found.maps)
    figure = Figure((2.2 * count, 4.4), layout="constrained", dpi=150)
    grid = figure.subplots(2, count, squeeze=False)
    top = np.abs(found.maps).max()
    for axes, one in zip(grid.T, found.maps, strict=True):
        size = _show(axes[0], np.abs(plane(one)), "gray", 0, top)
        phase = _show(axes[1], np.angle(plane(one)), "twilight", -np.pi, np.pi)
    for coil, axes in enumerate(grid[0]):
        axes.set_title(f"coil {coil}")
    figure.colorbar(size, ax=grid[0], label="size")
    figure.colorbar(phase, ax=grid[1], label="phase (radians)")
    return figure


def images(found: Scan, courses: "Sequence[Course]") -> Figure:
    """The truth and the last image of every method, with errors below; of `CG from zero` also earlier images."""
    panels = [("truth", found.truth)]
    for course in courses:
        counts = [n for n in course.images if n in (5, 10, 20, 40)] if course.name == "CG from zero" else []
        for count in counts or list(course.images)[-1:]:
            error = course.errors[course.counts.index(count)]
            panels.append((f"{course.name}\n{count}: {error:.3f}", course.images[count]))
    figure = Figure((1.8 * len(panels) + 0.6, 4.2), layout="constrained", dpi=150)
    grid = figure.subplots(2, len(panels), squeeze=False)
    for axes, (title, image) in zip(grid.T, panels, strict=True):
        shown = _show(axes[0], np.abs(plane(image)), "gray", 0, found.truth.max())
        wrong = _show(axes[1], np.abs(plane(image - found.truth)), "inferno", 0, SCALE * found.truth.max())
        axes[0].set_title(title, fontsize=7)
    figure.colorbar(shown, ax=grid[0], label="image", fraction=0.02, pad=0.01)
    figure.colorbar(wrong, ax=grid[1], label="|error|", fraction=0.02, pad=0.01)
    return figure


def errors(courses: "Sequence[Course]") -> Figure:
    """Errors by applications of the normal operator."""
    figure = Figure((6, 4), layout="constrained", dpi=150)
    axes = figure.add_subplot()
    for course in courses:
        if course.counts == [0]:
            axes.axhline(course.errors[0], color="gray", ls="--", label=course.name)
        else:
            axes.plot(course.counts, course.errors, marker=".", ms=4, label=course.name)
    axes.set(xlabel="applications of the normal operator", ylabel="|x - truth| / |truth|", yscale="log")
    axes.set_yticks(TICKS, [f"{one:g}" for one in TICKS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _show(axes: "Axes", image: np.ndarray, colours: str, low: float, high: float):  # type: ignore[no-untyped-def]
    axes.set_axis_off()
    return axes.imshow(image, cmap=colours, vmin=low, vmax=high, origin="lower", interpolation="nearest")


def _dark(part: float) -> tuple[float, float, float]:
    return (0.1 + 0.5 * part, 0.2 + 0.4 * part, 0.5 + 0.4 * part)
