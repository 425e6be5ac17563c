"""From an array and a transform to the result: read the sharding, find the walk (cached), run it.

The one way in for every function that takes an array. An array is anything NumPy takes, a PaddedArray, or a tuple
of two planes (re, im), which comes back as two planes.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding

from ..errors import check
from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes, from_block, from_spec, mapped_axes
from ..layout.memory import check_blocks
from ..layout.padded_array import PaddedArray, padded, stored_of
from ..layout.padding import without_padding
from ..layout.placement import placement, standing
from ..machine.chip import Chip, CompilerOptions
from ..machine.chips import chip_for
from ..machine.machine import Machine
from ..machine.topology import machine_of
from ..numerics.dtypes import check_numeric, complex_dtype, dots_of, real_dtype
from ..numerics.tiers import Dot
from ..operators.transform import Transform
from ..walks.choice import find_walk, goal_of, natural_end
from ..walks.walk import Walk
from .operands import differentiable, furnish, stored
from .primitive import bind

PROGRAMS = 64  # sets of compiler options kept, each with the programs compiled with it
STAYING = ("kdft", "cooley-tukey")  # methods that leave dimensions cut as they are


class PlanePair(NamedTuple):
    """The real and imaginary planes of a complex array."""

    re: Array
    im: Array


class Options(NamedTuple):
    """What every function passes on as it came: see `fftn`."""

    method: str = "auto"
    order: str = "natural"
    spec: Spec | None = None
    precision: str | None = None
    out_spec: Spec | None = None
    multiplications: int | None = None


def received(a: Any) -> tuple[Any, ...]:
    """The argument as one array or two planes, refused by name where it is no array of numbers."""
    return tuple(_array(part) for part in parts(a))


def parts(a: Any) -> tuple[Any, ...]:
    """The argument as it came, or its planes: a tuple of arrays. A list of arrays is an array, as in NumPy.

    Raises:
        ValueError, TypeError: planes that do not match, or are not real.
    """
    if not is_planes(a):
        return (a,)
    re, im = a[0], a[-1]
    check(re.shape == im.shape, f"the planes have shapes {re.shape} and {im.shape}: give two of one shape")
    check(re.dtype == im.dtype, f"the planes are {re.dtype} and {im.dtype}: give two of one type", TypeError)
    check(re.dtype.kind != "c", f"the planes are {re.dtype}: give real ones, or one complex array", TypeError)
    return a


def is_planes(a: Any) -> bool:
    """True for planes: (re, im), or (re,) of a real array."""
    return isinstance(a, tuple) and len(a) in (1, 2) and all(hasattr(part, "dtype") for part in a)


class Setting(NamedTuple):
    """Where and how a transform of an array is computed.

    Attributes:
        start: the layout the array comes in.
        mesh: its mesh; None on one device.
        machine: what prices steps there.
        dtype: the complex type it is computed in, whose planes are the real one.
        dots: the ways to multiply that the precision allows.
    """

    start: Layout
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    dots: tuple[Dot, ...]


def setting(arrays: tuple[Any, ...], options: Options) -> Setting:
    """The setting that an array, or its planes, show.

    Raises:
        ValueError, TypeError: as `fftn`.
    """
    x, precision = arrays[0], options.precision
    start, mesh = located(arrays, options.spec)
    dots = dots_of(x.dtype, precision, options.multiplications)
    return Setting(start, mesh, _machine(x, mesh), complex_dtype(x.dtype, precision), dots)


def located(arrays: tuple[Any, ...], spec: Spec | None) -> tuple[Layout, AnyMesh | None]:
    """The layout that an array, or two planes, come in, and their mesh.

    Raises:
        ValueError, TypeError: as `fftn`.
    """
    start, mesh = _located(arrays[0], spec)
    for plane in arrays[1:]:
        other, _ = _located(plane, spec)
        check(other == start, f"the planes are sharded as {start.spec} and {other.spec}: shard them alike")
    return start, mesh


def _located(x: Any, spec: Spec | None) -> tuple[Layout, AnyMesh | None]:
    if isinstance(x, PaddedArray):
        return _padded_at(x, spec)
    mesh, found = placement(x, spec)
    start = from_block(x.shape, mesh, found)
    remedy = "use mf.shard(x, mesh, spec), which stores any size, or give a spec whose mesh axes divide it"
    check(start.even, f"shape {x.shape} is not divided by spec {start.spec}: {remedy}")
    return start, mesh


def _padded_at(x: PaddedArray, spec: Spec | None) -> tuple[Layout, AnyMesh | None]:
    """Where a padded array says that it lies."""
    layout, mesh = x.layout, standing(x.mesh, x.layout)
    seen, stored = layout.within(mapped_axes(mesh)), np.shape(x.stored)
    check(
        seen == stored,
        f"a padded array of shape {layout.shape} is stored as {seen}, this one as {stored}: let vmap take and leave "
        "leading dimensions only, and change stored arrays by y.map(...)",
    )
    same = spec is None or from_spec(layout.shape, axis_sizes(mesh), spec) == layout
    check(same, f"spec {spec} is given, but the array is sharded as {layout.spec}: drop spec=")
    return layout, mesh


def transformed(
    arrays: tuple[Array, ...],
    transform: Transform,
    options: Options,
    sources: tuple[Any, ...] = (),
    planes: bool | None = None,
) -> Any:
    """An array, or its planes, through the cheapest walk.

    `sources` are the points or matrices of the transform's dimensions, by place (see operands). `planes` says that a
    single array is the plane of a real one, so that planes are returned.

    Raises:
        ValueError, TypeError: as `fftn`.
    """
    if options.out_spec is not None and options.method in STAYING:
        stays = transformed(arrays, transform, options._replace(out_spec=None), sources, planes)
        return moved(stays, options.out_spec, options.spec)
    start, mesh, machine, dtype, dots = setting(arrays, options)
    after = natural_end(start, transform)
    check_blocks(arrays[0], after, real_dtype(dtype).itemsize, mesh, "the result")
    _check_known(start, after, options, mesh)
    real = transform.takes_real(len(arrays) == 1 and arrays[0].dtype.kind != "c")
    how = (options.method, options.order, machine, dtype.itemsize, dots)
    goal = goal_of(start, transform, options.order, options.out_spec, axis_sizes(mesh))
    walk = find_walk(start, transform, *how, even=start.even, goal=goal, real=real)
    return formed(applied(arrays, walk, sources, mesh, machine.chip, dtype, planes))


def moved(y: Any, out_spec: Spec | None, spec: Spec | None = None) -> Any:
    """A result, or its planes, sharded as `out_spec` says, bit for bit in its own type; as it is without one.

    `spec` says how it lies where JAX hides that.

    Raises:
        ValueError, TypeError: the spec does not fit.
    """
    if out_spec is None:
        return y
    arrays, nothing = received(y), Transform((), (), 1.0)
    start, mesh, machine, dtype, dots = setting(arrays, Options(spec=spec))
    goal = goal_of(start, nothing, "natural", out_spec, axis_sizes(mesh))
    walk = find_walk(start, nothing, "auto", "natural", machine, dtype.itemsize, dots, goal=goal)
    walk = dataclasses.replace(walk, planes=False)  # numbers of any type go as they are
    lead, home = (arrays[0].lead, arrays[0].home) if isinstance(arrays[0], PaddedArray) else (None, mesh)
    return formed(tuple(padded(as_stored((stored_of(x),), walk, mesh, False)[0], walk.end, home, lead) for x in arrays))


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
    lead, home = (first.lead, first.home) if isinstance(first, PaddedArray) else (None, home or mesh)
    arrays = tuple(map(stored_of, arrays))
    if planes and not walk.real and len(arrays) == 1:  # the plane of a real array, for a walk of complex ones
        arrays = (*arrays, jnp.zeros_like(arrays[0]))
    walk, operands = furnish(walk, sources, chip.name, real_dtype(dtype))
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((arrays, operands)))
    whole = not planes and arrays[0].dtype == dtype
    compiled_with = () if traced else walk.compiler_options(dtype.itemsize, chip, whole)
    found = _program(compiled_with)(arrays, operands, walk, mesh, dtype, planes)
    return tuple(padded(y, walk.end, home, lead) for y in found)


def formed(arrays: tuple[Array, ...]) -> Any:
    """What a caller gets: an array, or a pair of planes."""
    return arrays[0] if len(arrays) == 1 else PlanePair(*arrays)


@functools.lru_cache(maxsize=PROGRAMS)
def _program(options: CompilerOptions) -> Callable[..., tuple[Array, ...]]:
    """`run` compiled with options, which JAX takes only of the outermost program."""
    return jax.jit(run, static_argnums=(2, 3, 4, 5), compiler_options=dict(options) or None)


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


def _array(a: Any) -> Any:
    if isinstance(a, jax.Array | PaddedArray):
        check_numeric(a.dtype)
        return a
    array = np.asarray(a)
    check_numeric(array.dtype)
    return jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _check_known(start: Layout, after: Layout, options: Options, mesh: AnyMesh | None) -> None:
    """Raises ValueError where the result would not lie as the array came, which is all that out_specs can know."""
    cut = mapped_axes(mesh) & start.cutting
    remedy = "call a mf.plan(...) inside, whose out_layout tells the out_specs, or transform outside of shard_map"
    free = options.order != "any" and options.out_spec is None
    check(
        not cut or free,
        f"order 'any' and out_spec= inside shard_map change a layout that it has fixed: {remedy}",
    )
    check(
        not cut or after.even or not start.even,
        f"the result of shape {after.shape} is not divided by spec {start.spec}, and mesh axes cannot move to other "
        f"dimensions inside shard_map: choose s= that divides, {remedy}",
    )


def _machine(x: Array, mesh: AnyMesh | None) -> Machine:
    """The machine that holds the array."""
    if mesh is not None:
        return machine_of(mesh)
    x = stored_of(x)
    platform = jax.default_backend() if isinstance(x, jax.core.Tracer) else next(iter(x.devices())).platform
    return Machine(chip_for(platform))
