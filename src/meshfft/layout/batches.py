"""Padded arrays in `vmap` and loops, which remove and add dimensions of the stored array, but keep how it was made."""

import jax
from jax.sharding import Mesh

from .layout import AnyMesh, Layout, mapped_axes


class Origin:
    """What a pytree keeps of an array beside what is stored: its layout and the description of its mesh.

    Loops compare their inputs with results of `jit` and `vmap`. So a batch that no mesh axis cuts is told from the
    stored array: where `vmap` or `scan` has removed it the rest is kept, and what `vmap` adds is compared too.
    """

    def __init__(self, layout: Layout, home: AnyMesh | None, stored: object) -> None:
        shape: tuple[int, ...] = getattr(stored, "shape", layout.storage)
        lead = lead_of(layout, shape)
        self.layout = layout if lead.ndim else layout.along(range(max(0, layout.ndim - len(shape)), layout.ndim))
        self.home = home.abstract_mesh if isinstance(home, Mesh) else home
        more = len(shape) - self.layout.ndim
        added = shape[:more] if more > 0 and shape[more:] == self.layout.storage else ()
        self.seen = (*added, *self.layout.shape), ((),) * len(added) + self.layout.cuts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and self.seen == other.seen and self.home == other.home

    def __hash__(self) -> int:
        return hash(self.seen)

    def __repr__(self) -> str:
        return f"{self.layout}, on {self.home}"


def lead_of(layout: Layout, stored: tuple[int, ...]) -> Layout:
    """The dimensions that `vmap` or `scan` has removed from a stored array, if a mesh axis cuts them."""
    lead = layout.along(range(max(0, layout.ndim - len(stored))))
    return lead if lead.mesh_axes else lead.along(())


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
