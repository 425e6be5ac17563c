"""Execution: a walk on arrays, as one compiled program; the only place where transforms run.

A program is compiled once for a walk, a mesh and a type, and kept. Invariant: padding is zero before and after.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding

from ..layout.layout import AnyMesh, Spec, axis_sizes, mapped_axes
from ..layout.padded_array import padded, stored_of
from ..layout.placement import without_padding
from ..machine.chip import Chip, CompilerOptions
from ..numerics.dtypes import complex_dtype, dots_of, real_dtype
from ..operators.transform import Transform
from ..walks.choice import find_walk, goal_of
from ..walks.walk import Walk
from .operands import differentiable, furnish, stored
from .primitive import bind
from .request import formed, read

PROGRAMS = 256  # kept, each for one walk on one mesh
NOTHING = Transform((), (), 1.0)


def applied(
    arrays: tuple[Any, ...],
    walk: Walk,
    sources: tuple[Any, ...],
    mesh: AnyMesh | None,
    chip: Chip,
    dtype: np.dtype,
    planes: bool | None = None,
    home: AnyMesh | None = None,
) -> tuple[Any, ...]:
    """A walk with its operands made from their sources, on arrays: two are planes, and one may be.

    Results that have padding say so, and are at `home`: the mesh outside of a caller's shard_map.
    """
    first, planes = arrays[0], len(arrays) == 2 if planes is None else planes
    arrays = tuple(map(stored_of, arrays))
    if planes and not walk.real and len(arrays) == 1:  # the plane of a real array, for a walk of complex ones
        arrays = (*arrays, jnp.zeros_like(arrays[0]))
    real = real_dtype(dtype)
    walk, operands = furnish(walk, sources, chip.name, real) if sources else _furnished(walk, chip.name, real)
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arrays, operands)))
    whole = not planes and arrays[0].dtype == dtype
    options = () if traced else _options(walk, dtype.itemsize, chip, whole)
    found = _program(walk, mesh, dtype, planes, options)(arrays, operands)
    return tuple(padded(y, walk.end, home or mesh, first) for y in found)


@functools.lru_cache(maxsize=PROGRAMS)
def _furnished(walk: Walk, platform: str, real: np.dtype) -> tuple[Walk, tuple[Any, ...]]:
    """A walk whose operands are known to the host, with them."""
    return furnish(walk, (), platform, real)


@functools.lru_cache(maxsize=PROGRAMS)
def _options(walk: Walk, itemsize: int, chip: Chip, whole: bool) -> CompilerOptions:
    return walk.compiler_options(itemsize, chip, whole)


@functools.lru_cache(maxsize=PROGRAMS)
def _program(
    walk: Walk, mesh: AnyMesh | None, dtype: np.dtype, planes: bool, options: CompilerOptions
) -> Callable[..., tuple[Array, ...]]:
    """`run` compiled for a walk, with options, which JAX takes only of the outermost program."""
    return jax.jit(
        functools.partial(run, walk=walk, mesh=mesh, dtype=dtype, planes=planes), compiler_options=dict(options) or None
    )


def run(
    arrays: tuple[Array, ...],
    operands: tuple[Any, ...],
    walk: Walk,
    mesh: AnyMesh | None,
    dtype: np.dtype,
    planes: bool,
) -> tuple[Array, ...]:
    """The walk on a stored array, or its planes, computed in `dtype`."""
    arrays = tuple(x.astype(real_dtype(dtype) if planes or walk.real else dtype) for x in arrays)
    return walked(arrays, walk, mesh, planes, operands)


def walked(
    arrays: tuple[Array, ...], walk: Walk, mesh: AnyMesh | None, planes: bool, operands: tuple[Any, ...] = ()
) -> tuple[Array, ...]:
    """The walk on a stored array, or its planes, in its first layout; without a mesh, on one device.

    Where samples are traced, step by step, so that the gradient in them costs one more ring for each dimension.
    """
    if isinstance(mesh, Mesh) and set(mesh.axis_types) == {AxisType.Auto}:
        # Nothing moves: this shows JAX the mesh, which it does not find inside our operator where x is a constant.
        arrays = jax.lax.with_sharding_constraint(arrays, NamedSharding(mesh, walk.start.spec))
    seen = mapped_axes(mesh)
    arrays = tuple(without_padding(x, walk.start, seen) for x in arrays)  # nor in what a gradient brings back
    for part in walk.stages() if differentiable(walk) else (walk,):
        arrays = tuple(bind(arrays, part, mesh, planes, stored(part, operands, seen)))
    return tuple(without_padding(y, walk.end, seen) for y in arrays)


as_stored = jax.jit(walked, static_argnums=(1, 2, 3))  # compiled, in the type that the array has


def moved(y: Any, out_spec: Spec | None, spec: Spec | None = None) -> Any:
    """A result, or its planes, sharded as `out_spec` says, bit for bit in its own type; as it is without one.

    `spec` says how it lies where JAX hides that.

    Raises:
        ValueError, TypeError: the spec does not fit.
    """
    if out_spec is None:
        return y
    arrays, setting, _ = read(y, spec)
    start, mesh, machine = setting.start, setting.mesh, setting.machine
    goal = goal_of(start, NOTHING, "natural", out_spec, axis_sizes(mesh))
    itemsize, dots = complex_dtype(setting.dtype, None).itemsize, dots_of(setting.dtype, None, None)
    walk = find_walk(start, NOTHING, "auto", "natural", machine, itemsize, dots, goal=goal)
    walk = dataclasses.replace(walk, planes=False)  # numbers of any type go as they are
    return formed(tuple(padded(as_stored((stored_of(x),), walk, mesh, False)[0], walk.end, mesh, x) for x in arrays))
