"""Operands of matrices: what a device's block of a matrix is made of, from what the caller gave.

A source is a Points, a matrix, or None. Points become limbs, matrices rows. Where products are made of bfloat16 terms
(see products), a matrix that is known on the host and not too large becomes a table: computed in float64 and split
once. A larger one is made block by block on the devices, and split there.
"""

import functools
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ..numerics.dtypes import Dot
from .matrices import Matrix, Roots
from .points import Points
from .vandermonde import vandermonde

TABLE_BYTES = 2**24


def operand_of(source: Any, real: Any) -> Any:
    """The operand of a source, of numbers of a real type."""
    if source is None:
        return None
    if isinstance(source, Points):
        return source.operand(real)
    xp = np if isinstance(source, np.ndarray) else jnp
    planes = (source.real, source.imag) if xp.iscomplexobj(source) else (source,)
    return xp.stack(planes).astype(real)


def table(source: Any, matrix: Matrix, dot: Dot) -> np.ndarray | None:
    """The matrix in bfloat16 terms, (forms, terms, rows, columns); None where it is traced, too large or not split."""
    small = 2 * 3 * dot.terms * matrix.rows * matrix.columns <= TABLE_BYTES
    if not dot.terms or not small:
        return None
    if isinstance(source, Roots) or (isinstance(source, Points) and source.known):
        return _table_of_points(source, matrix.columns, dot)
    return _split(source, dot) if isinstance(source, np.ndarray) else None


@functools.lru_cache(maxsize=16)
def _table_of_points(source: Roots | Points, columns: int, dot: Dot) -> np.ndarray | None:
    if isinstance(source, Roots):
        k, n = np.arange(source.rows, dtype=np.int64), np.arange(source.columns, dtype=np.int64)
        turns = (k[:, None] * n % source.length) / source.length
        return _split(np.exp(source.sign * 2j * np.pi * turns), dot)
    return _split(vandermonde(source.in_turns, source.log_radius, columns), dot)


def _split(matrix: np.ndarray, dot: Dot) -> np.ndarray:
    """Forms of a float64 matrix, each as terms that are rounded rests, largest first."""
    forms = [matrix.real, matrix.imag] if np.iscomplexobj(matrix) else [matrix]
    if len(forms) == 2 and dot.multiplications == 3:
        forms.insert(0, forms[0] + forms[1])
    return np.stack([_terms(form.astype(np.float64), dot.terms) for form in forms])


def _terms(rest: np.ndarray, many: int) -> np.ndarray:
    terms = []
    for _ in range(many):
        terms.append(rest.astype(np.float32).astype(ml_dtypes.bfloat16))
        rest = rest - terms[-1].astype(np.float64)
    return np.stack(terms)


def rows_of(leaf: Any, axis: int, rows: np.ndarray, reach: int) -> Any:
    """A leaf of an operand with the given rows along `axis`, and as many columns as shards reach, zeros beyond."""
    xp = np if isinstance(leaf, np.ndarray) else jnp
    if not np.array_equal(rows, np.arange(leaf.shape[axis])):
        leaf = xp.take(leaf, np.minimum(rows, leaf.shape[axis] - 1), axis)
    if axis == leaf.ndim - 1:
        return leaf
    leaf, short = leaf[..., :reach], max(reach - leaf.shape[-1], 0)
    return xp.pad(leaf, [(0, short if d == leaf.ndim - 1 else 0) for d in range(leaf.ndim)]) if short else leaf
