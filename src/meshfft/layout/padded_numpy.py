"""Operators, reductions and slices of padded arrays, as in NumPy; padding affects no result and stays zero."""

import operator
from collections.abc import Callable
from html import escape
from numbers import Number
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike
from numpy.lib.array_utils import normalize_axis_tuple

from .elements import array_entry, check_slices, emptied, entries_of, layout_of, reduced, sliced, without
from .in_flight import in_turn
from .layout import AnyMesh, Layout, axis_sizes, mapped_axes

Axis = int | tuple[int, ...] | None
NumpyFunction = Callable[..., Any]
REMEDY = (
    "a PaddedArray, which functions of jax.numpy do not take, because they would read its padding: use "
    "y.map(jax.numpy.exp) for elementwise functions, its own methods such as y.sum(axis=0), or mf.gather(y), which "
    "brings it to the host"
)
_reduced = jax.jit(reduced, static_argnums=(1, 2, 3, 4, 5))
_taken = jax.jit(lambda stored, at, dim: stored[(slice(None),) * dim + (at,)], static_argnums=2)
_sliced = jax.jit(sliced, static_argnums=(1, 2, 3, 4))


class Refusal:
    """Stands in for an array in jax.numpy: any use raises TypeError."""

    def __getattr__(self, name: str) -> object:
        raise TypeError(f"this is {REMEDY}")

    def __repr__(self) -> str:
        return REMEDY


def _operator(function: Callable[..., Array], reflected: bool = False) -> NumpyFunction:
    def method(self: "NumpyFace", *others: object) -> "NumpyFace":
        if not all(isinstance(x, NumpyFace | Array | np.ndarray | np.generic | Number) for x in others):
            return NotImplemented
        return self.map((lambda x, y: function(y, x)) if reflected else function, *others)

    return method


def _operators(function: Callable[..., Array]) -> tuple[NumpyFunction, NumpyFunction]:
    return _operator(function), _operator(function, reflected=True)


class NumpyFace:
    """Operators and reductions, for `map`, a layout and a stored array."""

    stored: Array

    if TYPE_CHECKING:  # of PaddedArray

        @property
        def layout(self) -> Layout: ...
        @property
        def mesh(self) -> AnyMesh | None: ...
        def map(self, function: Callable[..., Array], *others: Any) -> Self: ...
        def _with(self, stored: Array, layout: Layout) -> Array | Self: ...

    __iter__ = None
    __hash__ = None  # type: ignore[assignment]
    __add__, __radd__ = _operators(operator.add)
    __sub__, __rsub__ = _operators(operator.sub)
    __mul__, __rmul__ = _operators(operator.mul)
    __truediv__, __rtruediv__ = _operators(operator.truediv)
    __floordiv__, __rfloordiv__ = _operators(operator.floordiv)
    __mod__, __rmod__ = _operators(operator.mod)
    __pow__, __rpow__ = _operators(operator.pow)
    __and__, __rand__ = _operators(operator.and_)
    __or__, __ror__ = _operators(operator.or_)
    __xor__, __rxor__ = _operators(operator.xor)
    __lt__ = _operator(operator.lt)
    __le__ = _operator(operator.le)
    __gt__ = _operator(operator.gt)
    __ge__ = _operator(operator.ge)
    __eq__ = _operator(operator.eq)
    __ne__ = _operator(operator.ne)
    __neg__ = _operator(operator.neg)
    __pos__ = _operator(operator.pos)
    __abs__ = _operator(operator.abs)
    __invert__ = _operator(operator.invert)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Self:
        """NumPy's elementwise functions, by those of `jax.numpy`."""
        function, whole = getattr(jnp, ufunc.__name__, None), getattr(np, ufunc.__name__, None) is ufunc
        if method != "__call__" or options or not whole or function is None or ufunc.signature or ufunc.nout > 1:
            raise TypeError(f"np.{ufunc.__name__} meets {REMEDY}")
        at = next(j for j, x in enumerate(inputs) if x is self)
        others = inputs[:at] + inputs[at + 1 :]
        return self.map(lambda x, *rest: function(*rest[:at], x, *rest[at:]), *others)

    def __jax_array__(self) -> Refusal:
        return Refusal()

    @property
    def real(self) -> Self:
        return self.map(jnp.real)

    @property
    def imag(self) -> Self:
        return self.map(lambda x: jnp.imag(x) if jnp.iscomplexobj(x) else jnp.zeros_like(x))

    def conj(self) -> Self:
        return self.map(jnp.conj)

    def astype(self, dtype: DTypeLike) -> Self:
        return self.map(lambda x: x.astype(dtype))

    def where(self, condition: "ArrayLike | NumpyFace", other: "ArrayLike | NumpyFace") -> Self:
        """The array where the condition holds, `other` elsewhere.

        Args:
            condition: booleans, an array or a padded array cut alike, which
                broadcast as in NumPy.
            other: a number, an array or a padded array, likewise.
        """
        return self.map(lambda x, holds, y: jnp.where(holds, x, y), condition, other)

    def sum(
        self, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None, keepdims: bool = False
    ) -> Array | Self:
        """The sum of its elements along some dimensions, all by default.

        Args:
            axis: the dimensions: one, several or None for all.
            dtype: the type of the sum; by default as `jax.numpy.sum`.
            out: None; here because NumPy passes it.
            keepdims: keep the dimensions, one element long.

        Returns:
            The rest, cut as before: a PaddedArray if the mesh does not divide
            it, else a jax.Array. Sends partial results only.
        """
        return self._reduced("sum", axis, keepdims, out, dtype)

    def mean(
        self, axis: Axis = None, dtype: DTypeLike | None = None, out: None = None, keepdims: bool = False
    ) -> Array | Self:
        """The mean of its elements; arguments and result as those of `sum`."""
        return self._reduced("mean", axis, keepdims, out, dtype)

    def max(self, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array | Self:
        """The largest of real elements, NaN if one is NaN; arguments and result
        as those of `sum`. It has no gradient inside `shard_map`.
        """
        return self._reduced("max", axis, keepdims, out)

    def min(self, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array | Self:
        """The smallest element, as `max`."""
        return self._reduced("min", axis, keepdims, out)

    def _reduced(self, how: str, axis: Axis, keepdims: bool, out: None, dtype: DTypeLike | None = None) -> Array | Self:
        if out is not None:
            raise TypeError(f"out is {out!r}, but JAX's arrays do not change: use the result")
        layout, given = self.layout, np.dtype(self.stored.dtype)
        dims = tuple(range(layout.ndim)) if axis is None else normalize_axis_tuple(axis, layout.ndim, "axis")
        if how in ("max", "min"):
            if given.kind == "c":
                raise TypeError(f"the array is {given}, complex numbers have no order: use abs(y), y.real or y.imag")
            if 0 in (layout.shape[dim] for dim in dims):
                raise ValueError(f"an array of shape {layout.shape} has no {how} along {dims}: give it elements there")
        y = in_turn(_reduced, self.stored, layout, self._mapped(), how, dims, dtype)
        return self._with(*(y, emptied(layout, dims)) if keepdims else without(y, emptied(layout, dims), dims))

    def __getitem__(self, index: object) -> Array | Self:
        """Basic slices: integers, slices, `...` and None; or one array of
        integers, or traced integer, along an uncut dimension, as in JAX.

        Returns:
            The rest, cut by the same mesh axes: a PaddedArray if these do not
            divide it, else a jax.Array. Every device receives the blocks with
            its rows; an integer along a cut dimension takes a psum.
        """
        layout, mapped = self.layout, self._mapped()
        if taken := array_entry(index, layout):
            dim, values = taken
            before, behind = layout.along(range(dim)), layout.along(range(dim + 1, layout.ndim))
            ended = before + Layout(np.shape(values), ((),) * np.ndim(values)) + behind
            y = self._none(ended) if 0 in ended.shape else in_turn(_taken, self.stored, values, dim)
            return self._with(y, ended)
        entries = entries_of(index, layout.shape)
        check_slices(layout, mapped, entries)
        ended = layout_of(layout, entries)
        empty = 0 in ended.shape
        y = self._none(ended) if empty else in_turn(_sliced, self.stored, layout, mapped, entries, self.mesh)
        return self._with(*without(y, ended, tuple(d for d, one in enumerate(entries) if isinstance(one, int))))

    def _none(self, layout: Layout) -> Array:
        """An array without elements: no shard has one."""
        return jnp.zeros(layout.within(self._mapped()), self.stored.dtype)

    def _mapped(self) -> frozenset[str]:
        here = jax.sharding.get_abstract_mesh()
        return mapped_axes(here) if self.mesh is not None else frozenset()

    def _repr_html_(self) -> str:
        """An HTML table for notebooks: shape, type and layout, no values."""
        if not hasattr(self.stored, "shape"):
            return f"<code>{escape(repr(self))}</code>"
        axes = ", ".join(f"{name}={size}" for name, size in axis_sizes(self.mesh).items())
        rows = {
            "shape": self.layout.shape,
            "dtype": self.stored.dtype,
            "spec": self.layout.spec,
            "mesh": axes or "none",
            "stored": f"{self.layout.storage}, in blocks of {self.layout.block}",
        }
        body = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table><caption>PaddedArray</caption>{body}</table>"
