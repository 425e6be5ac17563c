"""Padded arrays: sharded ones whose sizes the mesh does not divide, which know their logical shape.

JAX shards a dimension only in equal parts, so such an array is stored with zeros behind its logical positions. From
outside it is an array of its logical shape, and a pytree whose one leaf is what is stored.

Invariant: padding holds zeros, in values and in gradients, so that a sum, a norm or a dot product of the stored array
is that of the logical one.
"""

import dataclasses
import operator
from collections.abc import Callable
from numbers import Number
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike

from .gathering import whole
from .layout import AnyMesh, Layout, axis_sizes, from_spec, mapped_axes
from .padding import broadcast, joined, logical, without_padding


def _operator(function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    def method(self: "PaddedArray", *others: Any) -> Any:
        if not all(isinstance(x, PaddedArray | Array | np.ndarray | np.generic | Number) for x in others):
            return NotImplemented
        return self.map((lambda x, y: function(y, x)) if swapped else function, *others)

    return method


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PaddedArray:
    """A sharded array of any size: what is stored, and the layout that says which of it is data.

    `mf.shard`, plans and all functions return one where sizes do not divide, and take it. `jit`, `grad`, `scan` and,
    over leading dimensions, `vmap` carry it. It has elementwise arithmetic with numbers, with arrays that broadcast to
    its shape, and with others of its kind; `map` applies any elementwise function, and leaves the padding zero where
    `jax.tree.map` would not. Other sums than `sum` go over `stored`. `mf.gather(y)` or `numpy.asarray(y)` bring it to
    the host. Functions of `jax.numpy` refuse it.

    Attributes:
        stored: the jax.Array, larger than the logical shape; its padding holds zeros.
        whole: the layout it was made with; under `vmap` that of the whole batch.
        home: the mesh it was made on.
    """

    stored: Array
    whole: Layout
    home: AnyMesh | None = None
    __array_ufunc__ = None  # NumPy's operators leave theirs to ours
    # No __jax_array__ that says to use map: JAX's operators ask it too, before they leave theirs to ours.
    __iter__ = None
    __hash__ = None  # type: ignore[assignment]
    __add__ = _operator(operator.add)
    __sub__ = _operator(operator.sub)
    __mul__ = _operator(operator.mul)
    __truediv__ = _operator(operator.truediv)
    __floordiv__ = _operator(operator.floordiv)
    __mod__ = _operator(operator.mod)
    __pow__ = _operator(operator.pow)
    __and__ = _operator(operator.and_)
    __or__ = _operator(operator.or_)
    __xor__ = _operator(operator.xor)
    __radd__ = _operator(operator.add, swapped=True)
    __rsub__ = _operator(operator.sub, swapped=True)
    __rmul__ = _operator(operator.mul, swapped=True)
    __rtruediv__ = _operator(operator.truediv, swapped=True)
    __rfloordiv__ = _operator(operator.floordiv, swapped=True)
    __rmod__ = _operator(operator.mod, swapped=True)
    __rpow__ = _operator(operator.pow, swapped=True)
    __rand__ = _operator(operator.and_, swapped=True)
    __ror__ = _operator(operator.or_, swapped=True)
    __rxor__ = _operator(operator.xor, swapped=True)
    __lt__ = _operator(operator.lt)
    __le__ = _operator(operator.le)
    __gt__ = _operator(operator.gt)
    __ge__ = _operator(operator.ge)
    __neg__ = _operator(operator.neg)
    __pos__ = _operator(operator.pos)
    __abs__ = _operator(operator.abs)
    __invert__ = _operator(operator.invert)
    __eq__ = _operator(operator.eq)
    __ne__ = _operator(operator.ne)

    @property
    def layout(self) -> Layout:
        """The logical shape and the cuts of what is seen: without dimensions that `vmap` took, with those it gave."""
        more, layout = np.ndim(self.stored) - self.whole.ndim, self.whole
        if more <= 0:
            return Layout(layout.shape[-more:], layout.cuts[-more:])
        batch = from_spec(self.stored.shape[:more], axis_sizes(self.home), _entries(self.sharding)[:more])
        return Layout(batch.shape + layout.shape, batch.cuts + layout.cuts)

    @property
    def lead(self) -> Layout:
        """The layout of the leading dimensions that `vmap` took."""
        fewer = max(0, self.whole.ndim - np.ndim(self.stored))
        return Layout(self.whole.shape[:fewer], self.whole.cuts[:fewer])

    @property
    def mesh(self) -> AnyMesh | None:
        """The mesh it lies on."""
        known = isinstance(self.stored, Array) and not isinstance(self.stored, jax.core.Tracer)
        return self.sharding.mesh if known and isinstance(self.sharding, NamedSharding) else self.home

    @property
    def spec(self) -> PartitionSpec:
        """How mesh axes cut its dimensions."""
        return self.layout.spec

    @property
    def sharding(self) -> Any:
        """Where JAX says that the stored array lies."""
        return jax.typeof(self.stored).sharding if isinstance(self.stored, jax.core.Tracer) else self.stored.sharding

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many numbers it has, padding left out."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.stored.dtype)

    @property
    def real(self) -> "PaddedArray":
        return self.map(jnp.real)

    @property
    def imag(self) -> "PaddedArray":
        return self.map(jnp.imag)

    @property
    def addressable_shards(self) -> Any:
        """What the devices of this process store, padding included; indices are those of `stored`."""
        return self.stored.addressable_shards

    def sum(self) -> Array:
        """The sum of all its numbers, which the padding leaves as it is."""
        return jnp.sum(self.stored)

    def conj(self) -> "PaddedArray":
        """The complex conjugate."""
        return self.map(jnp.conj)

    def astype(self, dtype: DTypeLike) -> "PaddedArray":
        """The same numbers in another type."""
        return self.map(lambda x: x.astype(dtype))

    def map(self, function: Callable[..., Array], *others: Any) -> "PaddedArray":
        """function(x, *others), elementwise: `y.map(jax.numpy.exp)`. Padding stays zero.

        Args:
            function: takes arrays as they are stored, and returns one of their shape.
            others: numbers, arrays that broadcast against the logical shape, or padded arrays cut alike.

        Raises:
            ValueError: shapes or layouts that do not fit.
        """
        layout = self.layout
        for other in others:
            layout = broadcast(layout, other.layout) if isinstance(other, PaddedArray) else layout
        found = function(*(_stored_as(x, layout) for x in (self, *others)))
        stored, expected = np.shape(found), np.shape(self.stored)
        fits = layout != self.layout or stored == expected
        if not fits:
            raise ValueError(f"the function made {stored} of a stored {expected}: give an elementwise one")
        return PaddedArray(_masked(found, layout, self.mesh), joined(self.lead, layout), self.home)

    def like(self, stored: Array) -> "PaddedArray":
        """Another stored array in the layout of this one; what its padding held becomes zero.

        Raises:
            ValueError: it is not stored as this one is.
        """
        return self.map(lambda x, new: new, PaddedArray(stored, self.whole, self.home))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(gather(self), dtype)

    def __repr__(self) -> str:
        kind = getattr(self.stored, "dtype", type(self.stored).__name__)
        if not hasattr(self.stored, "shape"):
            return f"PaddedArray({kind})"
        return f"PaddedArray(shape={self.shape}, dtype={kind}, spec={self.spec}, stored={self.stored.shape})"

    def __bool__(self) -> bool:
        raise TypeError("a padded array is neither true nor false: use jax.numpy.any(y.stored), whose padding is zero")

    def __getitem__(self, index: Any) -> Any:
        raise TypeError("a padded array has no slices: mf.gather(y) brings it to the host, y.stored is what is stored")


jax.tree_util.register_dataclass(PaddedArray, data_fields=("stored",), meta_fields=("whole", "home"))
AnyArray = ArrayLike | PaddedArray | tuple[Any, ...]  # an array, or its planes


def gather(y: Any) -> np.ndarray:
    """Brings an array to the host as a NumPy array of its logical shape.

    Where several processes hold it, each must call this and each gets all of it, sent round a part at a time: it has to
    fit in the memory of every host. Work on `y.addressable_shards` where it does not.

    Args:
        y: a jax.Array, sharded or not, or a PaddedArray.

    Raises:
        ValueError: this process has none of the array's devices.
    """
    if not isinstance(y, PaddedArray):
        return whole(y)
    layout, found = y.layout, whole(y.stored)
    for dim in range(layout.ndim):
        if layout.storage[dim] != layout.shape[dim]:
            found = np.compress(logical(layout, dim), found, dim)
    return found


def stored_of(x: Any) -> Any:
    """What is stored of an array; a plain one is all data."""
    return x.stored if isinstance(x, PaddedArray) else x


def padded(stored: Array, layout: Layout, mesh: AnyMesh | None, lead: Layout | None = None) -> Any:
    """A stored array, whose padding is zero, with its layout where that has padding; as it is where it has none."""
    layout = layout if lead is None else joined(lead, layout)
    return stored if layout.even else PaddedArray(stored, layout, mesh)


def mapped(function: Callable[..., Array], *arrays: Any) -> Any:
    """An elementwise function of arrays that are stored alike, plain ones or padded ones."""
    first = arrays[0]
    return first.map(function, *arrays[1:]) if isinstance(first, PaddedArray) else function(*arrays)


def _masked(found: Any, layout: Layout, mesh: AnyMesh | None) -> Array:
    here = jax.sharding.get_abstract_mesh()
    return without_padding(jnp.asarray(found), layout, mapped_axes(here) if mesh is not None else frozenset())


def _entries(sharding: Any) -> PartitionSpec:
    """The spec that an array shows; under Auto axes a traced one shows none."""
    return PartitionSpec(*getattr(sharding, "spec", ()))


def _stored_as(x: Any, layout: Layout) -> Any:
    """An operand as the layout stores it, or so that it broadcasts against what the layout stores."""
    if isinstance(x, PaddedArray):
        return _masked(x.stored, x.layout, x.mesh)  # a gradient may not come back into the padding
    if np.ndim(x) == 0:
        return x
    shape, offset = np.shape(x), layout.ndim - np.ndim(x)
    fits = offset >= 0 and all(n in (1, have) for n, have in zip(shape, layout.shape[max(offset, 0) :], strict=False))
    if not fits:
        raise ValueError(
            f"an array of shape {shape} meets a padded one of shape {layout.shape}: give one that broadcasts to it"
        )
    for dim, n in enumerate(shape):
        at = dim + offset
        if n == layout.shape[at] != layout.storage[at]:
            places = np.minimum(layout.positions(at), n - 1)
            x = (jnp if isinstance(x, jax.Array) else np).take(x, places, axis=dim)
    return x if offset == 0 else x.reshape((1,) * offset + x.shape)
