"""Moving traced points: values at points displaced from a plan with `slack`, and derivatives in the points.

    d c_j = sum over dimensions of -2 pi i dk_jm (A(n_m x))_j        A the transform, n_m positions along dimension m
    d x   = sum over dimensions of n_m A^H(2 pi i dk_m c)

Displacements are in cells. A gradient costs one transform per dimension.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh
from jax.typing import DTypeLike

from ..layout.layout import Layout, line_shape
from ..layout.padded_array import AnyArray, AnyStored, mapped, padded, stored_of
from ..layout.placement import reshard
from ..layout.storage import stored_on
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import scaled
from ..operators.operands import OperandSource
from ..plans.plan import Plan
from ..steps.base import Step, at_slot
from ..walks.walk import Walk
from .points import Scattered
from .steps.known_points import Moved


class Planned(NamedTuple):
    whole: Plan  # to values in the caller's layout
    run: Plan  # `whole`, or the plan to values in the plan's order
    points: Scattered
    grid: tuple[int, ...]
    dims: tuple[int, ...]
    origin: str


@dataclasses.dataclass(frozen=True, eq=False)
class _Moving:
    held: OperandSource
    shift: Array

    def operand(self, real: DTypeLike) -> Moved:
        return Moved(self.held.operand(real), self.shift)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def at_moved(plan: Planned, unit: str, back: bool, a: AnyArray, coords: Array) -> Any:
    """Values of an image at points moved to `coords` (points, d); with `back`, the adjoint."""
    first, *others = plan.run.sources
    assert first is not None
    sources = (_Moving(first, _in_slots(plan, _cells(plan, unit, coords))), *others)
    run = dataclasses.replace(plan.run, sources=sources)
    return run.adjoint(a) if back else run(a)


def _change(plan: Planned, unit: str, back: bool, primals: Any, tangents: Any) -> Any:
    (a, coords), (da, dk) = primals, tangents
    at = functools.partial(at_moved, plan, unit, back, coords=coords)
    changes = [] if _is_zero(da) else [at(da)]
    for j, turned in enumerate([] if _is_zero(dk) else _turned(plan, unit, dk, 1 if back else -1)):
        if back:
            changes.append(_weighted(plan, at(mapped(jnp.multiply, a, turned)), j))
        else:
            changes.append(mapped(jnp.multiply, at(_weighted(plan, a, j)), turned))
    return at(a), functools.reduce(functools.partial(mapped, jnp.add), changes)


at_moved.defjvp(_change, symbolic_zeros=True)


def _is_zero(change: object) -> bool:
    return any(isinstance(leaf, SymbolicZero) for leaf in jax.tree.leaves(change))


def _cells(plan: Planned, unit: str, coords: Array) -> Array:
    """Displacements in cells along ascending dimensions, (d, points), free of the rounding of positions."""
    real = real_dtype(plan.whole.dtype)
    turns = coords.astype(real) if unit == "turns" else coords.astype(real) / (2 * np.pi)
    high, low = _positions(plan)
    turns = _points_first(plan, jnp.moveaxis(turns, -1, 0))
    apart = (turns - high) - low
    cells = (apart - jnp.round(apart)) * jnp.asarray(plan.grid, real).reshape(line_shape(0, apart.ndim))
    return jnp.stack([cells[j] for j in np.argsort(plan.dims)])


@functools.lru_cache(maxsize=8)
def _positions(plan: Planned) -> tuple[Array, ...]:
    """Planned positions stored as values, as a sum of two floats."""
    real, mesh, spec = real_dtype(plan.whole.dtype), plan.whole.mesh, _layout(plan).spec
    turns = plan.points.in_turns.T.reshape(-1, *plan.points.shape)
    high = turns.astype(real)
    with jax.ensure_compile_time_eval():
        terms = [high, (turns - high).astype(real)]
        if isinstance(mesh, Mesh):
            return tuple(stored_of(stored_on(term, mesh, spec)) for term in terms)
        return tuple(map(jnp.asarray, terms))


def _layout(plan: Planned) -> Layout:
    end = plan.whole.out_layout
    return Layout((len(plan.grid),), ((),)) + end.along(range(end.ndim - len(plan.points.shape), end.ndim))


def _points_first(plan: Planned, turns: Array) -> Array:
    layout = _layout(plan)
    around = [(0, stored - n) for stored, n in zip(layout.storage, layout.shape, strict=True)]
    return reshard(jnp.pad(turns, around), plan.whole.mesh, layout.spec)


def exchange_plan(whole: Plan, step: Step, layout: Layout, real: bool) -> Plan:
    """The plan of a plan's last step or its transpose alone, between two orders of values, which are sent exactly."""
    walk = Walk(layout, (at_slot(step, 0),), real=real).wired()
    return dataclasses.replace(whole, walk=walk, sources=whole.sources[-1:])


def _in_slots(plan: Planned, numbers: Array) -> Any:
    whole, layout = plan.whole, _layout(plan)
    step, after = whole.walk.pairs[-1]
    return exchange_plan(whole, step.transpose(after), layout, real=True)(padded(numbers, layout, whole.mesh))


def _turned(plan: Planned, unit: str, change: Array, sign: int) -> list[AnyStored]:
    """sign 2 pi i dk of every dimension, stored as the values."""
    radians = change if unit == "radians" else change * (2 * math.pi)
    numbers = _points_first(plan, jnp.moveaxis(radians.astype(real_dtype(plan.whole.dtype)), -1, 0))
    numbers = numbers if plan.run is plan.whole else _in_slots(plan, numbers)
    end = plan.run.out_layout
    lead = end.ndim - (numbers.ndim - 1)
    tail = Layout((1,) * lead, ((),) * lead) + end.along(range(lead, end.ndim))
    parts = (jax.lax.complex(jnp.zeros_like(one), sign * one).reshape(*[1] * lead, *one.shape) for one in numbers)
    return [padded(part, tail, plan.whole.mesh) for part in parts]


def _weighted(plan: Planned, x: AnyStored, j: int) -> AnyStored:
    dim, start = plan.dims[j], plan.whole.in_layout
    middle = start.shape[dim] // 2 if plan.origin == "centre" else 0
    positions = np.asarray(start.positions(dim) - middle, real_dtype(plan.whole.dtype))
    return mapped(functools.partial(scaled, factor=positions.reshape(line_shape(dim, start.ndim))), x)
