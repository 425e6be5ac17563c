"""Layouts: the mesh axes that cut each array dimension, and the positions of every device.

A dimension of n positions is cut by mesh axes a_1, a_2, ... (outermost first). Cut j gives each of its p_j parts a span
of s_j positions; the device with indices i_1, i_2, ... has the s_last positions from i_1 s_1 + i_2 s_2 + ... on. Spans
need not divide: p_j s_j >= s_(j-1), s_0 = n, and positions beyond the span above are padding.

Invariant: each block has its logical positions first and padding last, and padding is never read.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

AXES = "xyzw"  # mesh axes
LIMIT = 2**31  # bound on positions along a dimension, counted in 32 bits
T = TypeVar("T")
AnyMesh = Mesh | AbstractMesh
Spec = PartitionSpec | Sequence[str | tuple[str, ...] | None]


def hashed_once(record: type[T]) -> type[T]:
    """A frozen dataclass that caches its hash: every call looks up plans."""
    of_fields = record.__hash__

    def kept(self: T) -> int:
        try:
            found: int = self.__dict__["_hash"]
        except KeyError:
            object.__setattr__(self, "_hash", found := of_fields(self))
        return found

    def state(self: T) -> dict[str, object]:  # hashes of strings differ between processes
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    record.__hash__, record.__getstate__ = kept, state  # type: ignore[method-assign,assignment]
    return record


class Cut(NamedTuple):
    """A cut by a mesh axis; each part has `span` positions."""

    axis: str
    parts: int
    span: int


Cuts = tuple[Cut, ...]


@hashed_once
@dataclasses.dataclass(frozen=True, repr=False)
class Layout:
    """The logical shape of an array, and the cuts of each dimension, outermost first."""

    shape: tuple[int, ...]
    cuts: tuple[Cuts, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @functools.cached_property
    def block(self) -> tuple[int, ...]:
        """Each device's block, padding included."""
        return tuple(cuts[-1].span if cuts else n for n, cuts in zip(self.shape, self.cuts, strict=True))

    @functools.cached_property
    def parts(self) -> tuple[int, ...]:
        return tuple(math.prod(cut.parts for cut in cuts) for cuts in self.cuts)

    @functools.cached_property
    def storage(self) -> tuple[int, ...]:
        return tuple(b * p for b, p in zip(self.block, self.parts, strict=True))

    @property
    def axes(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(cut.axis for cut in cuts) for cuts in self.cuts)

    @property
    def mesh_axes(self) -> frozenset[str]:
        return frozenset(itertools.chain(*self.axes))

    @property
    def spec(self) -> PartitionSpec:
        return spec_of(self.axes)

    def manual_first(self, mapped: frozenset[str]) -> PartitionSpec:
        """The spec with mapped axes as outermost cuts, as shard_map needs."""
        return spec_of(tuple(sorted(axes, key=lambda axis: axis not in mapped)) for axes in self.axes)

    @functools.cached_property
    def even(self) -> bool:
        return self.storage == self.shape

    @property
    def tail(self) -> bool:
        """True if padding is at the end of each stored dimension only."""
        return all(nested(cuts) for cuts in self.cuts)

    def within(self, mapped: frozenset[str]) -> tuple[int, ...]:
        """Shape of the stored array inside a shard_map over some mesh axes."""
        parts = (math.prod(cut.parts for cut in cuts if cut.axis not in mapped) for cuts in self.cuts)
        return tuple(block * many for block, many in zip(self.block, parts, strict=True))

    def starts(self, dim: int) -> np.ndarray:
        """First logical position of every shard, in ring order."""
        spans = (np.arange(cut.parts) * cut.span for cut in self.cuts[dim])
        return functools.reduce(lambda outer, inner: np.add.outer(outer, inner).ravel(), spans, np.zeros(1, int))

    def positions(self, dim: int) -> np.ndarray:
        """Position of each stored index; padding continues the count."""
        return (self.starts(dim)[:, None] + np.arange(self.block[dim])).ravel()

    def counts(self, dim: int) -> np.ndarray:
        counts = np.array([self.shape[dim]])
        for cut in self.cuts[dim]:
            counts = np.clip(counts[:, None] - np.arange(cut.parts) * cut.span, 0, cut.span).ravel()
        return counts

    def logical(self, dim: int) -> np.ndarray:
        return (np.arange(self.block[dim]) < self.counts(dim)[:, None]).ravel()

    def __add__(self, other: "Layout") -> "Layout":
        return Layout(self.shape + other.shape, self.cuts + other.cuts)

    def replace(self, dim: int, size: int, cuts: Cuts) -> "Layout":
        shape, every = list(self.shape), list(self.cuts)
        shape[dim], every[dim] = size, cuts
        return Layout(tuple(shape), tuple(every))

    def resize(self, dim: int, size: int) -> "Layout":
        """Another size of one dimension, cut by the same axes into equal blocks."""
        if size == self.shape[dim]:
            return self
        return self.replace(dim, size, even_cuts(size, [cut[:2] for cut in self.cuts[dim]]))

    def along(self, dims: Iterable[int]) -> "Layout":
        dims = tuple(dims)
        return Layout(tuple(self.shape[d] for d in dims), tuple(self.cuts[d] for d in dims))

    def without(self, dims: Iterable[int]) -> "Layout":
        return self.along(sorted({*range(self.ndim)}.difference(dims)))

    def cut_by(self, dim: int, cuts: Iterable[Cut]) -> "Layout":
        """The layout with a dimension cut evenly by the axes of these cuts."""
        return self.replace(dim, self.shape[dim], even_cuts(self.shape[dim], [cut[:2] for cut in cuts]))

    def insert(self, dim: int, size: int, cuts: Cuts) -> "Layout":
        return Layout((*self.shape[:dim], size, *self.shape[dim:]), (*self.cuts[:dim], cuts, *self.cuts[dim:]))

    def label(self, done: frozenset[int] = frozenset()) -> str:
        """The layout as A[X_x, Y, Z_yz]: dimension, subscript its mesh axes; a prime marks a transformed one."""
        names = (dim_name(d, self.ndim) + "'" * (d in done) for d in range(self.ndim))
        return "A[" + ", ".join(n + "_" * bool(a) + join_axes(a) for n, a in zip(names, self.axes, strict=True)) + "]"

    def __repr__(self) -> str:
        shape, block, stored = (" x ".join(map(str, sizes)) for sizes in (self.shape, self.block, self.storage))
        cuts = ", ".join(f"{cut.axis}={cut.parts}" for cut in itertools.chain(*self.cuts))
        padding = "" if self.even else f", stored as {stored}"
        return f"<Layout: {self.label()} of {shape}, cut by {cuts or 'nothing'} into blocks of {block}{padding}>"


def axis_sizes(mesh: AnyMesh | None) -> dict[str, int]:
    if mesh is not None and not isinstance(mesh, Mesh | AbstractMesh):
        raise TypeError(f"mesh is {mesh!r}: give a jax.sharding.Mesh, such as jax.make_mesh((2, 2), ('x', 'y'))")
    return {} if mesh is None else dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))


def axes_of(mesh: AnyMesh | None, kind: AxisType) -> frozenset[str]:
    kinds = () if mesh is None else zip(mesh.axis_names, mesh.axis_types, strict=True)
    return frozenset(name for name, one in kinds if one == kind)


def mapped_axes(mesh: AnyMesh | None) -> frozenset[str]:
    return axes_of(mesh, AxisType.Manual)


def spec_of(axes: Iterable[tuple[str, ...]]) -> PartitionSpec:
    return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in axes))


def nested(cuts: Cuts) -> bool:
    """True if each cut divides the span above: shards in ring order have no gaps."""
    return all(outer.span == inner.parts * inner.span for outer, inner in itertools.pairwise(cuts))


def real_cuts(cuts: Cuts) -> Cuts:
    return tuple(cut for cut in cuts if cut.parts > 1)


def even_cuts(size: int, axes: Sequence[tuple[str, int]]) -> Cuts:
    """Cuts of `size` positions by (name, parts) pairs into equal blocks, padded at the tail only."""
    block = -(-size // math.prod(parts for _, parts in axes))
    spans = [block * math.prod(parts for _, parts in axes[j + 1 :]) for j in range(len(axes))]
    return tuple(Cut(name, parts, span) for (name, parts), span in zip(axes, spans, strict=True))


def entries_of(spec: Spec | None) -> list[tuple[str, ...]]:
    """The mesh axes that a spec names for each dimension."""
    if isinstance(spec, NamedSharding):
        raise TypeError(f"spec is a NamedSharding: give its spec, {spec.spec}")
    if spec is not None and not isinstance(spec, PartitionSpec | tuple | list):
        raise TypeError(f"spec is {spec!r}: give a PartitionSpec, such as P('x', None)")
    if isinstance(spec, PartitionSpec) and (spec.unreduced or spec.reduced):
        axes = ", ".join(sorted(spec.unreduced | spec.reduced))
        raise ValueError(f"spec {spec} has unreduced or reduced axes ({axes}): jax.reshard to one without them first")
    return [_axes_of(entry) for entry in (spec or ())]


def from_spec(shape: Sequence[int], sizes: Mapping[str, int], spec: Spec | None) -> Layout:
    entries = entries_of(spec)
    shown = spec_of(entries)
    if len(entries) > len(shape):
        many, most = len(entries), len(shape)
        raise ValueError(f"spec {shown} has {many} entries, the array has {most} dimensions: give at most {most}")
    used = [axis for axes in entries for axis in axes]
    for axis in used:
        if axis not in sizes:
            axes = ", ".join(f"{name}={size}" for name, size in sizes.items())
            remedy = f"the mesh has {axes}: use one of those" if axes else "no mesh is given: pass mesh="
            raise ValueError(f"spec {shown} names mesh axis {axis!r}; {remedy}")
        if used.count(axis) != 1:
            raise ValueError(f"spec {shown} uses mesh axis {axis!r} twice: a mesh axis cuts one dimension")
    entries += [()] * (len(shape) - len(entries))
    cuts = tuple(even_cuts(n, [(a, sizes[a]) for a in axes]) for n, axes in zip(shape, entries, strict=True))
    return Layout(tuple(shape), cuts)


def from_block(shape: Sequence[int], mesh: AnyMesh | None, spec: Spec | None) -> Layout:
    """`from_spec` for an array whose block along the mapped axes has this `shape`."""
    sizes, mapped = axis_sizes(mesh), mapped_axes(mesh)
    cuts = from_spec(shape, sizes, spec).cuts
    blocks = (math.prod(cut.parts for cut in by if cut.axis in mapped) for by in cuts)
    return from_spec([n * many for n, many in zip(shape, blocks, strict=True)], sizes, spec)


def dim_name(dim: int, ndim: int) -> str:
    return "XYZWUV"[dim] if ndim <= 6 else f"D{dim}"


def resized(layout: Layout, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Layout:
    return functools.reduce(lambda at, pair: at.resize(*pair), zip(dims, sizes, strict=True), layout)


def line_shape(dim: int, ndim: int) -> tuple[int, ...]:
    """The shape that makes numbers along one dimension broadcast."""
    return tuple(-1 if d == dim else 1 for d in range(ndim))


def shift(dim: int, inserted: int) -> int:
    """Index of a dimension after another is inserted before `inserted`."""
    return dim + (dim >= inserted)


def join_axes(axes: Sequence[str]) -> str:
    return "".join(axes) if all(len(a) == 1 for a in axes) else ",".join(axes)


def _axes_of(entry: object) -> tuple[str, ...]:
    names = () if entry is None else tuple(entry) if isinstance(entry, tuple | list) else (entry,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"spec entry {entry!r} is not a mesh axis name, a tuple of names or None")
    return names


def meshes(shape: Sequence[int], count: int, alike: bool) -> Iterator[tuple[AbstractMesh, PartitionSpec]]:
    """Every mesh of `count` devices with its spec; if `alike`, dimensions of one size have falling factors."""
    if not 0 < len(shape) <= len(AXES):
        raise ValueError(f"shape {shape} has {len(shape)} dimensions, not 1 to {len(AXES)}: give a mesh")
    divisors = [[p for p in range(min(n, count), 0, -1) if count % p == 0] for n in shape]
    for factors in itertools.product(*divisors):
        pairs = itertools.combinations(zip(shape, factors, strict=True), 2)
        falls = not alike or all(p >= q for (n, p), (m, q) in pairs if n == m)
        if falls and math.prod(factors) == count:
            cut = {name: parts for name, parts in zip(AXES, factors, strict=False) if parts > 1}
            names = (name if name in cut else None for name in AXES[: len(shape)])
            yield AbstractMesh(tuple(cut.values()), tuple(cut)), PartitionSpec(*names)
