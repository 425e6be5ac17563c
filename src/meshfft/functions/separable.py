"""Dense operators, one matrix for each dimension: the paper's KDFT at any points, and any others.

    Y = (M_1 x M_2 x ...) vec(x)   (x: the Kronecker product)

Every dimension goes over its own one-shuffle ring; only what a matrix is differs.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..layout.layout import Spec
from ..numerics.dtypes import check_numeric, complex_dtype, real_dtype
from ..operators.matrices import Blocks, Dense, Matrix
from ..operators.points import Points
from ..operators.transform import Transform, resolve_once
from ..plans.planning import Options, plan_for
from ..plans.request import read


@dataclasses.dataclass(frozen=True)
class BlockMatrix:
    """A matrix given by a function of int32 index vectors, which makes any block of it where that is used.

    Attributes:
        shape: rows and columns.
        block: block(rows, columns) is the array of entries at these rows and columns, of shape
            (len(rows), len(columns)). Indices may lie beyond the shape; what it returns there is dropped.
    """

    shape: tuple[int, int]
    block: Callable[[Array, Array], Array]


def apply_separable(
    matrices: Sequence[ArrayLike | BlockMatrix | Points | None],
    x: Any,
    *,
    axes: Sequence[int] | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
) -> Any:
    """Multiplies every dimension of a sharded array by a dense matrix of its own.

        Y[k_1, k_2, ...] = sum over n_1, n_2, ... of M_1[k_1, n_1] M_2[k_2, n_2] ... x[n_1, n_2, ...]

    Args:
        matrices: for each axis an array (m, n), n the size of the dimension and m that in the result, a BlockMatrix, a
            Points (its Vandermonde matrix), or None to leave that dimension alone.
        x: a sharded, replicated or single-device array, or a tuple of planes (re, im).
        axes: the dimensions of the matrices; None means all.
        spec, out_spec, precision, multiplications: as `kdftn`.

    Returns:
        The product, sharded as the array came where sizes still divide; real where everything is.

    Raises:
        ValueError, TypeError: a matrix that is none or does not fit its dimension; sizes that no layout divides.

    Costs as `kdftn`. Differentiable in the array and in the matrices. Source: the paper's Algorithm 1, for any matrix.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.apply_separable([jnp.ones((1, 3)), None], jnp.ones((3, 2))).tolist()
    [[3.0, 3.0]]
    """
    request, options = read(x, spec), Options("kdft", "natural", precision, out_spec, multiplications)
    shape = request.shape
    dims, _ = resolve_once(shape, None, axes)
    pairs = [(d, _source(m, d)) for d, m in zip(dims, _listed(matrices, len(dims)), strict=True) if m is not None]
    real = real_dtype(complex_dtype(request.setting.dtype, precision))
    chosen = tuple(_matrix(source, shape[dim], dim, real) for dim, source in pairs)
    transform = Transform(tuple(dim for dim, _ in pairs), chosen, 1.0)
    sources = tuple(None if isinstance(source, BlockMatrix) else source for _, source in pairs)
    return plan_for(request.setting, transform, options).execute(request, sources)


def _listed(matrices: Any, many: int) -> Sequence[Any]:
    """One matrix for each axis, or an error that says what was given."""
    if not isinstance(matrices, list | tuple):
        raise TypeError("matrices is no list: give one matrix, or None, for each axis")
    if len(matrices) != many:
        raise ValueError(f"there are {len(matrices)} matrices for {many} axes: give one for each, or None")
    return matrices


def _source(matrix: Any, dim: int) -> Any:
    """The matrix as NumPy's, JAX's, or as it describes itself."""
    if isinstance(matrix, BlockMatrix):
        shape = getattr(_sketch(matrix), "shape", None)
        if shape != (2, 3):
            raise ValueError(f"block(rows, columns) has shape {shape} for 2 rows and 3 columns: give (2, 3)")
        return matrix
    if isinstance(matrix, Points):
        return matrix.settled
    array = matrix if isinstance(matrix, jax.Array) else np.asarray(matrix)
    check_numeric(array.dtype)
    if array.ndim != 2:
        raise ValueError(f"the matrix of axis {dim} has shape {array.shape}: give two dimensions, (m, n)")
    return array


def _is_complex(value: Any) -> bool:
    return bool(jnp.iscomplexobj(_sketch(value) if isinstance(value, BlockMatrix) else value))


def _sketch(matrix: BlockMatrix) -> Any:
    """Shape and type of a block of two rows and three columns."""
    return jax.eval_shape(matrix.block, *(jax.ShapeDtypeStruct((n,), jnp.int32) for n in (2, 3)))


def _matrix(source: Any, size: int, dim: int, real: np.dtype) -> Matrix:
    if isinstance(source, Points):
        source.check_range(size, real, f"points of axis {dim}")
        return source.matrix(size)
    rows, columns = source.shape
    if columns != size:
        raise ValueError(
            f"the matrix of axis {dim} has shape ({rows}, {columns}), the dimension {size}: give (m, {size})"
        )
    if not rows >= 1:
        raise ValueError(f"the matrix of axis {dim} has no rows: give at least one")
    planes = 2 if _is_complex(source) else 1
    if isinstance(source, BlockMatrix):
        return Blocks(source.block, rows, columns, planes=planes)
    return Dense(rows, columns, planes=planes)
