"""Operands from the matrices that callers give as points, arrays or functions."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike

from ..layout.layout import AnyMesh, mapped_axes
from ..numerics.dtypes import Dot, check_numeric, real_dtype
from ..numerics.phases import host_roots
from .inverses import host_vandermonde
from .matrices import Blocks, Dense, Matrix, Roots
from .points import SCATTERED, Points
from .transform import Transform, factor

Leaves = TypeVar("Leaves")
TABLE_BYTES = 2**24
_GIVE = "say what the numbers are, as mf.Points.turns(t) for each axis, or None for uniform ones"


def entries(points: object, dims: tuple[int, ...]) -> tuple[Points | None, ...]:
    """Each dimension's points; ValueError or TypeError for a wrong number, no Points, or a raveled grid."""
    given = (points,) if isinstance(points, Points) else points
    if given is None:
        return (None,) * len(dims)
    if not isinstance(given, list | tuple):
        plane = f". {SCATTERED}" if getattr(given, "ndim", 0) > 1 else ""
        raise TypeError(f"points is a {type(given).__name__}: {_GIVE}{plane}")
    for entry in given:
        if entry is not None and not isinstance(entry, Points):
            raise TypeError(f"points has a {type(entry).__name__}: {_GIVE}")
    if len(given) != len(dims):
        raise ValueError(f"points has {len(given)} entries for {len(dims)} axes: give one for each axis")
    settled = tuple(None if entry is None else entry.settled for entry in given)
    _check_grid({dim: one for dim, one in zip(dims, settled, strict=True) if one is not None and one.angle is not None})
    return settled


def _check_grid(given: dict[int, Points]) -> None:
    """Raises ValueError for a raveled grid, whose axes' product is another transform."""
    if len(given) < 2 or len({one.size for one in given.values()}) > 1 or not all(one.known for one in given.values()):
        return
    # One number per distinct point. Neighbours on a raveled grid differ along one axis only.
    columns = [
        np.asarray(p.angle) + 1j * np.asarray(0.0 if p.log_radius is None else p.log_radius) for p in given.values()
    ]
    if sum(len(column) > 1 and column[0] != column[1] for column in columns) != 1:
        return
    sides, size = [len(np.unique(column)) for column in columns], len(columns[0])
    if min(sides) > 1 and math.prod(sides) == size == len(np.unique(np.stack(columns, -1), axis=0)):
        axes, grid = " and ".join(map(str, given)), " x ".join(map(str, sides))
        raise ValueError(
            f"the {size} points of axes {axes} are a grid of {grid}, raveled: give each axis its own points, "
            f"{grid.replace(' x ', ' and ')} of them, as np.unique(k) has them. {SCATTERED}"
        )


def sampled(
    shape: Sequence[int], dims: tuple[int, ...], points: tuple[Points | None, ...], norm: str | None, dtype: np.dtype
) -> Transform:
    """The KDFT of some dimensions at points; None means one uniform point per input."""
    real, matrices = real_dtype(dtype), list[Matrix]()
    for dim, chosen in zip(dims, points, strict=True):
        if chosen is None and shape[dim] == 0:  # as fftn of nothing
            matrices.append(Roots(1, -1, 0, 0))
            continue
        matrices.append(matrix_of(chosen or Points.uniform(shape[dim]), shape[dim], dim, real))
    return Transform(dims, tuple(matrices), factor(math.prod(shape[d] for d in dims), norm, False))


class DeviceTables(Generic[Leaves]):
    """All devices' tables, stacked along their first dimension, on the host and on the devices."""

    def __init__(self, tables: Leaves, mesh: AnyMesh | None, axes: tuple[str, ...]) -> None:
        self.host, self.tables = tables, tables
        if isinstance(mesh, Mesh):
            sharding = NamedSharding(mesh, PartitionSpec(axes or None))

            def put(table: np.ndarray) -> Array:  # even while JAX traces
                return jax.make_array_from_callback(table.shape, sharding, lambda at: table[at])

            self.tables = jax.tree.map(put, tables)
        elif mesh is None:
            with jax.ensure_compile_time_eval():
                self.tables = jax.tree.map(jax.device_put, tables)

    def operand(self, real: DTypeLike) -> Leaves:
        """The tables on devices; the host's if programs may not capture arrays, as in a caller's shard_map."""
        if mapped_axes(jax.sharding.get_abstract_mesh()) or (self._on_several and isinstance(jnp.zeros(()), Tracer)):
            return self.host
        return self.tables

    @functools.cached_property
    def _on_several(self) -> bool:
        return not all(leaf.is_fully_addressable for leaf in jax.tree.leaves(self.tables) if isinstance(leaf, Array))


@runtime_checkable
class OperandSource(Protocol):
    def operand(self, real: DTypeLike) -> Any: ...


def operand_of(source: object, real: DTypeLike) -> object:
    if isinstance(source, OperandSource):
        return source.operand(real)
    if not isinstance(source, np.ndarray | Array):
        return None
    xp = np if isinstance(source, np.ndarray) else jnp
    planes = (source.real, source.imag) if xp.iscomplexobj(source) else (source,)
    return xp.stack(planes).astype(real)


def table(source: object, matrix: Matrix, dot: Dot) -> np.ndarray | None:
    """The matrix in bfloat16 terms, (forms, terms, rows, columns); None if traced, too large or not split."""
    if not dot.terms or 2 * 3 * dot.terms * matrix.rows * matrix.columns > TABLE_BYTES:
        return None
    if isinstance(source, Roots) or (isinstance(source, Points) and source.known):
        return _table_of_points(source, matrix.columns, dot)
    return _split(source, dot) if isinstance(source, np.ndarray) else None


@functools.lru_cache(maxsize=16)
def _table_of_points(source: Roots | Points, columns: int, dot: Dot) -> np.ndarray | None:
    if isinstance(source, Points):
        return _split(host_vandermonde(source.in_turns, source.log_radius, columns), dot)
    k, n = np.arange(source.rows, dtype=np.int64), np.arange(source.columns, dtype=np.int64)
    return _split(host_roots(k[:, None] * n, source.length, source.sign), dot)


def _split(matrix: np.ndarray, dot: Dot) -> np.ndarray:
    forms = [matrix.real, matrix.imag] if np.iscomplexobj(matrix) else [matrix]
    if len(forms) == 2 and dot.multiplications == 3:
        forms.insert(0, forms[0] + forms[1])
    rests, terms = np.stack(forms).astype(np.float64), []
    for _ in range(dot.terms):
        terms.append(rests.astype(np.float32).astype(ml_dtypes.bfloat16))
        rests = rests - terms[-1].astype(np.float64)
    return np.stack(terms, 1)


def rows_of(leaf: Array | np.ndarray, axis: int, rows: np.ndarray, reach: int) -> Array | np.ndarray:
    """An operand's leaf with the given rows along `axis`, and `reach` columns, zero-padded."""
    xp = np if isinstance(leaf, np.ndarray) else jnp
    if not np.array_equal(rows, np.arange(leaf.shape[axis])):
        leaf = xp.take(leaf, np.minimum(rows, leaf.shape[axis] - 1), axis)
    if axis == leaf.ndim - 1:
        return leaf
    leaf, short = leaf[..., :reach], max(reach - leaf.shape[-1], 0)
    return xp.pad(leaf, [(0, short if d == leaf.ndim - 1 else 0) for d in range(leaf.ndim)]) if short else leaf


@dataclasses.dataclass(frozen=True)
class BlockMatrix:
    """A matrix given by a function of int32 index vectors, which computes each
    block on the device that uses it.

    Attributes:
        shape: rows and columns.
        block: block(rows, columns) is the array (len(rows), len(columns)) of
            entries there. Indices may exceed the shape; entries there are
            dropped.

    >>> half = lambda k, n: jnp.full((len(k), len(n)), 0.5)
    >>> halves = mf.BlockMatrix((1, 4), half)
    >>> mf.apply_separable([halves], jnp.ones(4)).tolist()
    [2.0]
    """

    shape: tuple[int, int]
    block: Callable[[Array, Array], Array]


Given = BlockMatrix | Points | Array | np.ndarray


def sources_of(matrices: Sequence[ArrayLike | BlockMatrix | Points | None], dims: tuple[int, ...]) -> dict[int, Given]:
    if not isinstance(matrices, list | tuple):
        kind = type(matrices).__name__
        raise TypeError(f"matrices is of type {kind}: give a list, with one matrix, or None, for each axis")
    if len(matrices) != len(dims):
        raise ValueError(f"there are {len(matrices)} matrices for {len(dims)} axes: give one for each, or None")
    return {dim: _source(matrix, dim) for dim, matrix in zip(dims, matrices, strict=True) if matrix is not None}


def _source(matrix: ArrayLike | BlockMatrix | Points, dim: int) -> Given:
    if isinstance(matrix, Points):
        return matrix.settled
    if isinstance(matrix, BlockMatrix):
        shape = getattr(_sketch(matrix), "shape", None)
        if shape != (2, 3):
            raise ValueError(f"block(rows, columns) has shape {shape} for 2 rows and 3 columns: give (2, 3)")
        return matrix
    array = matrix if isinstance(matrix, jax.Array) else np.asarray(matrix)
    check_numeric(array.dtype)
    if array.ndim != 2:
        raise ValueError(f"the matrix of axis {dim} has shape {array.shape}: give two dimensions, (m, n)")
    return array


def _sketch(matrix: BlockMatrix) -> jax.ShapeDtypeStruct:
    sketch: jax.ShapeDtypeStruct = jax.eval_shape(matrix.block, *(np.arange(n, dtype=np.int32) for n in (2, 3)))
    return sketch


def matrix_of(source: Given, size: int, dim: int, real: np.dtype) -> Matrix:
    if isinstance(source, Points):
        source.check_range(size, real, f"points of axis {dim}")
        return source.matrix(size)
    rows, columns = source.shape
    if columns != size:
        raise ValueError(
            f"the matrix of axis {dim} has shape {(rows, columns)}, the dimension {size}: give (m, {size})"
        )
    if rows < 1:
        raise ValueError(f"the matrix of axis {dim} has no rows: give at least one")
    if isinstance(source, BlockMatrix):
        return Blocks(source.block, rows, columns, planes=2 if jnp.iscomplexobj(_sketch(source)) else 1)
    return Dense(rows, columns, planes=2 if jnp.iscomplexobj(source) else 1)
