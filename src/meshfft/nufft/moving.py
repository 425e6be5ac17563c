"""Points that move while JAX traces them: a plan made with `slack`, its values at them, and its derivatives in them.

    d c_j = sum over dimensions of -2 pi i dk_jm (A(n_m x))_j        A the transform, n_m positions along dimension m
    d x   = sum over dimensions of n_m A^H(2 pi i dk_m c)

What a point has moved by is taken from where the plan has it, in cells, and sent to its owner as values are. A gradient
costs one transform more for each dimension, and has all their digits.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh
from jax.typing import DTypeLike

from ..layout.layout import Layout, line_shape
from ..layout.padded_array import AnyArray, mapped, padded
from ..layout.placement import brought
from ..layout.storage import stored_on
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import scaled
from ..operators.operands import Source
from ..plans.plan import Plan
from ..walks.walk import Walk
from .record import Planned
from .steps import Interpolate
from .steps.interpolate import Moved


class Moving:
    """The tables of a plan, with what points have moved by, as the operand of interpolation."""

    def __init__(self, held: Source, shift: Array) -> None:
        self.held, self.shift = held, shift

    def operand(self, real: DTypeLike) -> Moved:
        return Moved(self.held.operand(real), self.shift)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def values_at(plan: Planned, placed: bool, unit: str, x: AnyArray, coords: Array) -> Any:
    """The values of an image at points that have moved to `coords` (points, d)."""
    return _moved(plan, placed, unit, coords)(x)


def _values_change(plan: Planned, placed: bool, unit: str, primals: Any, tangents: Any) -> Any:
    (x, coords), (dx, dk) = primals, tangents
    at = functools.partial(values_at, plan, placed, unit, coords=coords)
    changes = [] if _is_zero(dx) else [at(dx)]
    for j, turned in enumerate([] if _is_zero(dk) else _turned(plan, placed, unit, dk, -1)):
        changes.append(mapped(jnp.multiply, at(_weighted(plan, x, j)), turned))
    return at(x), functools.reduce(functools.partial(mapped, jnp.add), changes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def image_of(plan: Planned, placed: bool, unit: str, c: AnyArray, coords: Array) -> Any:
    """The adjoint of `values_at` in the image."""
    return _moved(plan, placed, unit, coords).adjoint(c)


def _image_change(plan: Planned, placed: bool, unit: str, primals: Any, tangents: Any) -> Any:
    (c, coords), (dc, dk) = primals, tangents
    of = functools.partial(image_of, plan, placed, unit, coords=coords)
    changes = [] if _is_zero(dc) else [of(dc)]
    for j, turned in enumerate([] if _is_zero(dk) else _turned(plan, placed, unit, dk, 1)):
        changes.append(_weighted(plan, of(mapped(jnp.multiply, c, turned)), j))
    return of(c), functools.reduce(functools.partial(mapped, jnp.add), changes)


values_at.defjvp(_values_change, symbolic_zeros=True)
image_of.defjvp(_image_change, symbolic_zeros=True)


def _is_zero(change: Any) -> bool:
    return any(isinstance(leaf, SymbolicZero) for leaf in jax.tree.leaves(change))


def _moved(plan: Planned, placed: bool, unit: str, coords: Array) -> Plan:
    """The plan whose points lie at `coords`."""
    whole = plan.owner if placed else plan.caller
    middles = (0,) * len(plan.grid) if plan.origin == "centre" else (n // 2 for n in plan.ending.modes)
    moving = tuple(zip(middles, plan.grid, strict=True))
    steps = tuple(dataclasses.replace(s, moving=moving) if isinstance(s, Interpolate) else s for s in whole.walk.steps)
    first, *others = whole.points
    assert first is not None
    shift = _in_slots(plan, _cells(plan, unit, coords))
    sources = (Moving(first, shift), *others)
    return dataclasses.replace(whole, walk=dataclasses.replace(whole.walk, steps=steps), points=sources)


def _cells(plan: Planned, unit: str, coords: Array) -> Array:
    """Cells (d, points) by which each point has moved; no digit is lost to where it was."""
    real = real_dtype(plan.caller.dtype)
    turns = coords.astype(real) if unit == "turns" else coords.astype(real) / (2 * np.pi)
    high, low = _planned(plan)
    turns = _points_first(plan, jnp.moveaxis(turns, -1, 0))
    apart = (turns - high) - low
    return (apart - jnp.round(apart)) * jnp.asarray(plan.grid, real).reshape(line_shape(0, apart.ndim))


@functools.lru_cache(maxsize=8)
def _planned(plan: Planned) -> tuple[Array, Array]:
    """Where the plan has its points, stored as their values, in two terms."""
    real = real_dtype(plan.caller.dtype)
    turns = plan.points.in_turns.T.reshape(-1, *plan.points.shape)
    high = turns.astype(real)
    layout = _layout(plan)
    with jax.ensure_compile_time_eval():
        terms = []
        for term in (high, (turns - high).astype(real)):
            if isinstance(plan.mesh, Mesh):
                term = getattr(one := stored_on(term, plan.mesh, layout.spec), "stored", one)
            terms.append(jnp.asarray(term))
    return terms[0], terms[1]


def _layout(plan: Planned) -> Layout:
    """That of coordinates, one dimension of them before those of the points."""
    ndim = len(plan.points.shape)
    tail = Layout(plan.out_layout.shape[-ndim:], plan.out_layout.cuts[-ndim:])
    return Layout((len(plan.grid),), ((),)) + tail


def _points_first(plan: Planned, turns: Array) -> Array:
    """Coordinates (d, points) as they are stored."""
    layout = _layout(plan)
    around = [(0, stored - n) for stored, n in zip(layout.storage, layout.shape, strict=True)]
    return brought(jnp.pad(turns, around), plan.mesh, layout.spec)


def _in_slots(plan: Planned, numbers: Array) -> Array:
    """Real numbers (d, points), as they are stored, in the plan's order."""
    step, after = plan.walk.pairs[-1]
    walk = Walk(_layout(plan), (step.transpose(after).at_slot(0),), real=True)
    given = padded(numbers, walk.start, plan.mesh)
    one = dataclasses.replace(plan.caller, walk=walk, points=plan.caller.points[-1:])
    return one(given)


def _turned(plan: Planned, placed: bool, unit: str, change: Array, sign: int) -> list[Any]:
    """sign 2 pi i dk of every dimension, where the values lie."""
    radians = change if unit == "radians" else change * (2 * math.pi)
    numbers = _points_first(plan, jnp.moveaxis(radians.astype(real_dtype(plan.caller.dtype)), -1, 0))
    numbers = _in_slots(plan, numbers) if placed else numbers
    end = plan.placed_layout if placed else plan.out_layout
    lead = end.ndim - (numbers.ndim - 1)
    parts = []
    for one in numbers:
        one = one.reshape(*[1] * lead, *one.shape)
        part = jax.lax.complex(jnp.zeros_like(one), sign * one)
        tail = Layout((*[1] * lead, *end.shape[lead:]), (*[()] * lead, *end.cuts[lead:]))
        parts.append(padded(part, tail, plan.mesh))
    return parts


def _weighted(plan: Planned, x: AnyArray, j: int) -> Any:
    """An image times its positions along a transformed dimension."""
    dim, start = plan.dims[j], plan.in_layout
    middle = start.shape[dim] // 2 if plan.origin == "centre" else 0
    positions = np.asarray(start.positions(dim) - middle, real_dtype(plan.caller.dtype))
    return mapped(functools.partial(scaled, factor=positions.reshape(line_shape(dim, start.ndim))), x)
