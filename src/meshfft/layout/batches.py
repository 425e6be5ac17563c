"""Padded arrays in `vmap` and loops, which remove and add dimensions of the stored array, but keep how it was made."""

import jax

from .layout import AnyMesh, Layout, mapped_axes
from .placement import description_of


class Origin:
    """A pytree's record of how an array was made: its layout, and the description of its mesh.

    Loops compare their inputs with results of `jit` and `vmap`. So the stored array shows whether it has a batch, if no
    mesh axis cuts that: the record leaves a batch out where `vmap` or `scan` has removed it, and two records are equal
    if `vmap` has added the same dimensions.
    """

    __slots__ = ("added", "home", "layout")

    def __init__(self, layout: Layout, home: AnyMesh | None, stored: object) -> None:
        shape: tuple[int, ...] | None = getattr(stored, "shape", None)
        more = 0 if shape is None else len(shape) - len(layout.shape)
        if shape is not None and more < 0 and not lead_of(layout, shape).ndim:
            layout = layout.along(range(-more, layout.ndim))
        self.added = shape[:more] if shape is not None and more > 0 and shape[more:] == layout.storage else ()
        self.layout, self.home = layout, None if home is None else description_of(home)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Origin) or self.home != other.home:
            return False
        if self.added == other.added:
            return self.layout is other.layout or self.layout == other.layout
        return self._seen() == other._seen()

    def __hash__(self) -> int:
        return hash((self.added + self.layout.shape)[-1:])

    def _seen(self) -> tuple[object, object]:
        return self.added + self.layout.shape, ((),) * len(self.added) + self.layout.cuts

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
