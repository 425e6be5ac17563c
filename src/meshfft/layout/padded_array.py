"""Padded arrays: sharded arrays of any size, and `gather`, which brings any array to the host.

Invariant: padding is zero in values and gradients, so sums, norms and dot products of stored and logical arrays agree.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jax.typing import ArrayLike, DTypeLike

from .batches import Origin, check_stored, lead_of
from .elements import broadcast, extended, single_cut
from .layout import AnyMesh, Layout, axis_sizes, from_spec, mapped_axes
from .padded_numpy import REMEDY, NumpyFace
from .placement import local_slice, reshard, to_host, without_padding


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PaddedArray(NumpyFace):
    """A sharded array of any size: the stored array, padded with zeros, and
    the layout of its elements.

    `mf.shard`, plans and all functions return one if the mesh does not divide
    the sizes, and accept it. `jit`, `grad`, `scan` and `vmap` over leading
    dimensions carry it; a `scan` along padding visits it, too. It has
    arithmetic with numbers, arrays and padded arrays, broadcast as in NumPy
    (by an all-reduce along a cut dimension of one element); NumPy's `sum`,
    `mean`, `max`, `min`; basic slices and `where`. `map` applies any
    elementwise function and keeps the padding zero, as does `np.exp(y)`;
    functions of `jax.numpy` refuse it.

    Attributes:
        stored: the jax.Array, larger than the shape, its padding zeros.
        full_layout: the layout it was made with, a batch of `vmap` included.
        home: the mesh it was made on; its description once a pytree held it.

    >>> y = mf.shard(np.ones(7), jax.make_mesh((2,), ("x",)), ("x",))
    >>> (2 * y + 1).sum().item(), y.map(jnp.exp).shape
    (21.0, (7,))
    """

    stored: Array
    full_layout: Layout
    home: AnyMesh | None = None

    @property
    def layout(self) -> Layout:
        """The layout of the visible array: without dimensions that `vmap`
        removed, with those that it added.
        """
        stored, layout = np.shape(self.stored), self.full_layout
        if stored == layout.storage:
            return layout
        more = len(stored) - layout.ndim
        if more <= 0:
            layout = layout.along(range(-more, layout.ndim))
        else:
            shown = getattr(self.sharding, "spec", ())[:more]  # under Auto axes a traced array shows none
            layout = from_spec(stored[:more], axis_sizes(self.home), shown) + layout
        check_stored(stored, layout)
        return layout

    @property
    def lead(self) -> Layout:
        return lead_of(self.full_layout, np.shape(self.stored))

    @property
    def mesh(self) -> AnyMesh | None:
        known = isinstance(self.stored, Array) and not isinstance(self.stored, jax.core.Tracer)
        if known and isinstance(self.sharding, NamedSharding):
            return self.sharding.mesh
        here = jax.sharding.get_abstract_mesh()
        if mapped_axes(self.home) and not mapped_axes(here):  # made inside a caller's shard_map, now outside
            around = (jax.typeof(self.stored).sharding.mesh, here)
            return next((mesh for mesh in around if not mesh.empty), self.home)
        return self.home

    @property
    def spec(self) -> PartitionSpec:
        return self.layout.spec

    @property
    def sharding(self) -> Sharding:
        """The stored array's sharding."""
        return jax.typeof(self.stored).sharding if isinstance(self.stored, jax.core.Tracer) else self.stored.sharding

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, without padding."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.stored.dtype)

    @property
    def addressable_shards(self) -> Sequence[jax.Shard]:
        """The shards of `stored` in this process, padding included."""
        return self.stored.addressable_shards

    def map(self, function: Callable[..., Array], *others: "ArrayLike | PaddedArray") -> "PaddedArray":
        """function(x, *others), elementwise: `y.map(jax.numpy.exp)`. Padding
        stays zero.

        Args:
            function: takes stored arrays, and returns one of the shape to
                which they broadcast.
            others: numbers, arrays and padded arrays, cut alike, that
                broadcast with the logical shape.

        Raises:
            ValueError: shapes or layouts that do not fit.
        """
        alike = [self, *(x for x in others if isinstance(x, PaddedArray))]
        layout, mapped = functools.reduce(broadcast, [x.layout for x in alike]), self._mapped()
        for x in others:  # inside shard_map an array may be a block, whose whole size is unknown
            layout = layout if isinstance(x, PaddedArray) else extended(layout, np.shape(x), longer=not mapped)
        result = function(*(_stored_as(x, layout) for x in (self, *others)))
        same = layout == self.layout
        stored, expected = np.shape(result), np.shape(self.stored) if same else layout.within(mapped)
        if stored != expected:
            raise ValueError(f"the function made {stored} of a stored {expected}: give an elementwise one")
        if not same:
            here = jax.sharding.get_abstract_mesh()
            result = reshard(result, here if mapped_axes(here) else self.mesh, layout.spec)
        lead = max((x.lead for x in alike), key=lambda lead: lead.ndim)
        return type(self)(self._masked(result, layout), lead + layout, self.home)

    def like(self, stored: Array) -> "PaddedArray":
        """Another stored array in this layout, its padding set to zero.

        Raises:
            ValueError: it is not stored as this one is.
        """
        given, wanted = np.shape(stored), np.shape(self.stored)
        if given != wanted:
            remedy = "use mf.shard of a logical one"
            raise ValueError(f"the array has shape {given}, this one is stored as {wanted}: {remedy}")
        return self.map(lambda x, new: new, PaddedArray(stored, self.full_layout, self.home))

    def _masked(self, stored: ArrayLike, layout: Layout) -> Array:
        # Under jit JAX finds the mask's devices; an eager derivative shows an abstract mesh.
        return _without_padding(jnp.asarray(stored), layout, self._mapped())

    def _with(self, stored: Array, layout: Layout) -> "Array | PaddedArray":
        return padded(stored, layout, self.home, self)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if isinstance(self.stored, jax.core.Tracer):
            raise TypeError(f"inside jit this is {REMEDY}")
        if copy is False:
            raise ValueError("a padded array is gathered into a new one: leave copy=False out")
        return np.asarray(gather(self), dtype)

    def __repr__(self) -> str:
        kind = getattr(self.stored, "dtype", type(self.stored).__name__)
        if not hasattr(self.stored, "shape"):
            return f"PaddedArray({kind})"
        try:
            shape, spec = self.shape, self.spec
        except ValueError:  # stored in another shape than its layout has
            return f"PaddedArray(dtype={kind}, stored={self.stored.shape}, made as {self.full_layout.shape})"
        return f"PaddedArray(shape={shape}, dtype={kind}, spec={spec}, stored={self.stored.shape})"

    def __bool__(self) -> bool:
        raise TypeError("a padded array is neither true nor false: use jax.numpy.any(y.stored), whose padding is zero")


class LaidOut(PaddedArray):
    """A PaddedArray whose results keep their layout even without padding."""


def _flatten(y: PaddedArray) -> tuple[tuple[Array], Origin]:
    return (y.stored,), Origin(y.full_layout, y.home, y.stored)


def _flatten_with_keys(y: PaddedArray) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, Array]], Origin]:
    return ((jax.tree_util.GetAttrKey("stored"), y.stored),), _flatten(y)[1]


def _unflatten(kind: type[PaddedArray], origin: Origin, leaves: Iterable[Array]) -> PaddedArray:
    (stored,) = leaves
    return kind(stored, origin.layout, origin.home)


for _kind in (PaddedArray, LaidOut):
    jax.tree_util.register_pytree_with_keys(_kind, _flatten_with_keys, functools.partial(_unflatten, _kind), _flatten)
AnyStored = Array | PaddedArray
OnePlane = ArrayLike | PaddedArray
AnyArray = OnePlane | tuple[Any, ...]  # an array, or planes
# `jax.device_put` cannot change the layout of a padded array.
OVER_HOST = "bring it to the host outside jit, mf.shard(mf.gather(x), mesh, spec)"
S = TypeVar("S", Array, AnyStored)
T = TypeVar("T")


class PlanePair(NamedTuple):
    re: AnyStored
    im: AnyStored


Transformed = AnyStored | PlanePair


def gather(y: ArrayLike | PaddedArray) -> np.ndarray:
    """Brings an array to the host as a NumPy array of its logical shape.

    If several processes hold it, each must call this and gets all of it, sent
    in chunks. For arrays that no host can hold, use `y.addressable_shards`.

    Args:
        y: a jax.Array, sharded or not, or a PaddedArray.

    Raises:
        ValueError: this process has no device of the array.

    >>> mf.gather(mf.fftn(np.ones(2))).real.tolist()
    [2.0, 0.0]
    """
    if not isinstance(y, PaddedArray):
        return to_host(y)
    layout, host = y.layout, to_host(y.stored)
    for dim in range(layout.ndim):
        if layout.storage[dim] != layout.shape[dim]:
            host = np.compress(layout.logical(dim), host, dim)
    return host


def is_padded(x: object) -> bool:
    return isinstance(x, PaddedArray)


def stored_of(x: PaddedArray | T) -> Array | T:
    return x.stored if isinstance(x, PaddedArray) else x


def padded(stored: Array, layout: Layout, mesh: AnyMesh | None, source: object = None) -> Array | PaddedArray:
    """A stored array, as a PaddedArray if it has padding, like `source` in mesh and `vmap` dimensions."""
    if isinstance(source, PaddedArray):
        layout, mesh = source.lead + layout, source.home
    kind = LaidOut if isinstance(source, LaidOut) else PaddedArray
    return stored if layout.even and kind is PaddedArray else kind(stored, layout, mesh)


def mapped(function: Callable[..., Array], first: S, *others: S) -> S:
    """An elementwise function of arrays that are stored alike."""
    return first.map(function, *others) if isinstance(first, PaddedArray) else function(first, *others)


_without_padding = jax.jit(without_padding, static_argnums=(1, 2))


def _stored_as(x: ArrayLike | PaddedArray, layout: Layout) -> ArrayLike:
    """An operand as the layout stores it, or in a shape that broadcasts."""
    if isinstance(x, PaddedArray):
        # Gradients must not reach padding; and every device needs an element that one has.
        single = single_cut(x.layout, layout)
        values = stored_of(x.sum(single, x.dtype, keepdims=True)) if single else x._masked(x.stored, x.layout)
        more = layout.ndim - x.ndim
        return lax.expand_dims(values, range(more)) if more else values
    shape, offset = np.shape(x), layout.ndim - np.ndim(x)
    if not shape:
        return x
    whole = x if isinstance(x, jax.Array) else np.asarray(x)
    for dim, n in enumerate(shape, offset):
        if n == layout.shape[dim] != layout.storage[dim]:
            whole = whole.take(np.minimum(layout.positions(dim), n - 1), axis=dim - offset)
    mapped = mapped_axes(jax.sharding.get_abstract_mesh())
    for dim in range(offset, layout.ndim):
        if whole.shape[dim - offset] != 1:  # every device has all of it
            whole = local_slice(whole, dim - offset, layout.cuts[dim], mapped)
    return whole.reshape((1,) * offset + whole.shape)
