"""What a plan at scattered points knows: the walks between an image and its values, and where all of them lie."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..layout.layout import AnyMesh, Layout
from ..plans.plan import Plan
from ..walks.walk import Walk
from .ending import Ending
from .points import Scattered


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Planned:
    """The record of a plan; ScatteredPlan is what runs it.

    Attributes:
        points: where the spectrum is sampled.
        tol: the relative error that the window was chosen for.
        origin: "corner" or "centre", from where samples of the image are counted.
        slack: cells of the fine grid by which points may move.
        dims: the transformed dimensions of the image.
        ending: how values follow from the fine grid: its sizes, and the window.
        load: points that each device owns.
        order: for each point its slot among those of all devices.
        remake: the plan of the same points with something else changed.
        caller: the plan to values as the caller has them.
        owner: the plan to values in the plan's order.
        window_alone: from values to the fine grid and back, without batch dimensions.
    """

    points: Scattered
    tol: float
    origin: str
    slack: int
    dims: tuple[int, ...]
    ending: Ending
    load: np.ndarray
    order: np.ndarray
    remake: Callable[..., Any]
    caller: Plan
    owner: Plan
    window_alone: Plan

    @property
    def mesh(self) -> AnyMesh | None:
        return self.caller.mesh

    @property
    def walk(self) -> Walk:
        """The steps from the image to values as the caller has them."""
        return self.caller.walk

    @property
    def in_layout(self) -> Layout:
        """The layout of the image."""
        return self.walk.start

    @property
    def out_layout(self) -> Layout:
        """The layout of the values as the caller has them."""
        return self.walk.end

    @property
    def placed_layout(self) -> Layout:
        """The layout of the values in the plan's order."""
        return self.owner.walk.end

    @property
    def grid(self) -> tuple[int, ...]:
        """Cells of the fine grid along each transformed dimension."""
        return self.ending.grid

    @property
    def imbalance(self) -> float:
        """Points of the device that owns the most, over the mean."""
        return float(self.load.max() / self.load.mean())

    @property
    def error(self) -> float:
        """Relative L2 error to expect of the values."""
        return self.caller.error

    @property
    def seconds(self) -> float | None:
        """Modelled seconds; None where no rates are known for the devices."""
        return self.caller.seconds

    @property
    def peak_bytes(self) -> int:
        """Modelled bytes alive on one device at the worst moment."""
        return self.caller.peak_bytes

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives one run does."""
        return self.caller.collectives

    def to_dict(self) -> dict[str, Any]:
        """The plan to values as the caller has them as plain values, and its points and window."""
        window = self.ending.window
        what = {"points": list(self.points.shape), "tol": self.tol, "origin": self.origin, "slack": self.slack}
        grid = {"window": window.width, "sigma": window.sigma, "grid": list(self.grid), "imbalance": self.imbalance}
        return {**self.caller.to_dict(), **what, **grid}
