"""Padded arrays in `vmap` and loops, which remove and add dimensions of the stored array, but keep how it was made."""

from collections.abc import Sequence

import jax
from jax import Array

from .layout import AnyMesh, Layout, mapped_axes
from .placement import same_mesh


class Origin:
    """The layout and mesh that an array was made with; `stored` shows what `vmap` has added since.

    Loops compare their inputs with results of `jit` and `vmap`: a mesh equals its description, and an array one that
    was made with the dimensions added.
    """

    def __init__(self, layout: Layout, home: AnyMesh | None, stored: object) -> None:
        shape: tuple[int, ...] = getattr(stored, "shape", ())
        self.layout, self.home, self.added = layout, home, shape[: max(0, len(shape) - layout.ndim)]
        self.shape = (*self.added, *layout.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Origin) or not same_mesh(self.home, other.home):
            return False
        cuts, others = (((),) * len(one.added) + one.layout.cuts for one in (self, other))
        return self.layout == other.layout or (self.shape == other.shape and cuts == others)

    def __hash__(self) -> int:
        return hash(self.layout.shape[-1:])

    def __repr__(self) -> str:
        return f"{self.layout}, on {self.home}"


def lead_of(members: Sequence[tuple[Layout, Array]]) -> Layout:
    """The dimensions that `vmap` will add to a result, from those of its operands and their stored arrays.

    A member of an uncut batch that meets other arrays loses the batch outside of `vmap`, for example in `scan`; so do
    members of two batches. The result then shows what `vmap` adds.
    """
    leads = {lead for lead, _ in members}
    batches = [lead for lead in leads if lead.ndim]
    kept = len(batches) == 1 and any(lead.ndim and _is_batched(stored) for lead, stored in members)
    if len(leads) > 1 and not kept and not any(lead.mesh_axes for lead in leads):
        return Layout((), ())
    return max(leads, key=lambda lead: lead.ndim)


def _is_batched(x: object) -> bool:
    """Whether `vmap` traces an array, perhaps inside a derivative."""
    while isinstance(x, jax.core.Tracer) and not hasattr(x, "batch_dim"):
        x = getattr(x, "primal", None)
    return isinstance(x, jax.core.Tracer)


def check_stored(stored: tuple[int, ...], layout: Layout) -> None:
    """Raises ValueError for what `vmap` made along another dimension than the first, or a Jacobian, if that shows."""
    inside = layout.within(mapped_axes(jax.sharding.get_abstract_mesh()))
    axes = [axis for axes in layout.axes for axis in axes]
    twice = next((axis for axis in axes if axes.count(axis) > 1), None)
    if stored in (layout.storage, inside) and twice is None:
        return
    wrong = f"is stored as {inside}, this one as {stored}" if twice is None else f"would be cut twice by axis {twice!r}"
    raise ValueError(
        f"a padded array of shape {layout.shape} {wrong}: let vmap take and leave leading dimensions only, change "
        "stored arrays by y.map(...), and take Jacobians of functions of y.stored"
    )
