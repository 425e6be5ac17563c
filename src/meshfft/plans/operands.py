"""Operands: what the steps of a walk take besides the array, made from what the caller gave.

A source is a Points, a matrix, or None. Points become limbs, matrices rows. Where products are made of bfloat16 terms
here (see precision), a matrix that is known on the host and not too large becomes a table: computed in float64 and
split once. A larger one is made block by block on the devices, and split there.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from ..numerics.tiers import Dot
from ..operators.matrices import Dense, Matrix, Roots
from ..operators.points import Points
from ..operators.vandermonde import vandermonde
from ..steps import RingDense
from ..walks.walk import Walk

TABLE_BYTES = 2**24
OWN_SPLIT = ("cpu",)  # platforms whose products of bfloat16 terms are made here


def furnish(walk: Walk, sources: tuple[Any, ...], platform: str | None, real: Any) -> tuple[Walk, tuple[Any, ...]]:
    """The walk with tables for matrices where they pay, and its operands by slot."""
    operands = [_operand(source, real) for source in sources]
    steps = []
    for step in walk.steps:
        if isinstance(step, RingDense) and platform in OWN_SPLIT and not step.turned:
            source = step.matrix if step.slot is None else sources[step.slot]
            if (table := _table(source, step.matrix, step.dot)) is not None:
                step = dataclasses.replace(
                    step, matrix=Dense(table.shape[-2], table.shape[-1], planes=step.matrix.planes), slot=len(operands)
                )
                operands.append(table)
        steps.append(step)
    return dataclasses.replace(walk, steps=tuple(steps)), tuple(operands)


def _operand(source: Any, real: Any) -> Any:
    if source is None:
        return None
    if isinstance(source, Points):
        return source.operand(real)
    xp = np if isinstance(source, np.ndarray) else jnp
    planes = (source.real, source.imag) if xp.iscomplexobj(source) else (source,)
    return xp.stack(planes).astype(real)


def _table(source: Any, matrix: Matrix, dot: Dot) -> np.ndarray | None:
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


def differentiable(walk: Walk) -> bool:
    """True where samples are traced."""
    return any(getattr(getattr(step, "matrix", None), "unit", None) for step in walk.steps)


def stored(walk: Walk, operands: tuple[Any, ...], mapped: frozenset[str] = frozenset()) -> tuple[Any, ...]:
    """The operands as the steps of a walk take them, by slot; none for steps of other walks."""
    found: list[Any] = [None] * len(operands)
    for step, layout in walk.pairs:
        if isinstance(step, RingDense) and step.slot is not None:
            found[step.slot] = step.store(operands[step.slot], layout, mapped)
    return tuple(found)
