"""Planning: from a setting and a transform to a Plan, cached; and from shapes and names alone, without an array."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from ..collectives.wire import wire_of
from ..layout.layout import AXES, AnyMesh, Layout, Spec, axis_sizes, from_spec, mapped_axes, meshes
from ..layout.memory import check_blocks
from ..layout.placement import mesh_here
from ..machine.machine import ORDERS as DEVICE_ORDERS
from ..machine.machine import Machine, Topology, device_of, machine_of, placed
from ..machine.machine import topology as named
from ..numerics.dtypes import Precision, check_reached, complex_dtype, dots_of, real_dtype
from ..operators.operands import entries, sampled
from ..operators.points import Points
from ..operators.transform import (
    Transform,
    check_once,
    integers,
    is_integer,
    lengths_of,
    natural_dtype,
    resolve,
    transform_of,
)
from ..steps.problem import Problem
from ..walks.choice import NOTHING, find_within, goal_of, moves, natural_end
from ..walks.walk import Walk
from .execute import tried
from .margins import framed, widths_of, without
from .plan import Plan
from .request import Setting

STAYING = ("kdft", "cooley-tukey")  # methods that leave dimensions cut as they are
PointsLike = Points | Sequence[Points | None] | None


class Options(NamedTuple):
    """How a transform is to be done: see `fftn`; from `s` to `margin` it is for `plan`, and says what is transformed.

    `evades`: mesh axes may move where a result does not divide, as functions do it.
    """

    method: str = "auto"
    order: str = "natural"
    precision: Precision = None
    out_spec: Spec | None = None
    multiplications: int | None = None
    ring: str = "auto"
    engine: str = "auto"
    wire: str = "exact"
    evades: bool = True
    s: Sequence[int] | None = None
    axes: Sequence[int] | None = None
    dtype: DTypeLike | None = None
    norm: str | None = None
    kind: str = "fft"
    inverse: bool = False
    points: PointsLike = None
    margin: int | Sequence[int] = 0
    donate: bool = False  # of functions; a plan is told where it is called


def plan_for(setting: Setting, transform: Transform, options: Options) -> Plan:
    """The plan of a transform of an array in some setting, kept."""
    start, mesh, sizes = setting.start, setting.mesh, axis_sizes(setting.mesh)
    method, order, precision, out_spec, multiplications, ring, engine, wire_name, evades, *_ = options
    dtype, unit = complex_dtype(setting.dtype, precision), setting.machine.chip.unit
    dots = dots_of(setting.dtype, precision, multiplications, unit)
    after, stays = natural_end(start, transform), method in STAYING and out_spec is not None
    check_blocks(after, real_dtype(dtype).itemsize, setting.room, "the result")
    if evades:
        _check_known(start, options, mesh)
    there, how = None if stays else out_spec, (setting.machine, dtype.itemsize, dots)
    may_move = evades and not mapped_axes(mesh) & start.mesh_axes  # shard_map has fixed which axes cut what
    goal = goal_of(start, transform, order, there, sizes) if may_move or there is not None else None
    even = may_move and start.even and goal is None and not (after.even and order == "natural")
    real = transform.takes_real(setting.real)
    wire = wire_of(wire_name, real_dtype(dtype))
    problem = Problem(start, transform, *how, method, goal, even, real, ring, engine, wire)
    walk = find_within(problem, order, precision)
    if stays:  # the method leaves dimensions where they are: exchanges follow
        last = goal_of(after, NOTHING, "natural", out_spec, sizes)
        walk = _followed(walk, moves(walk.end, last, *how, real=walk.reals[-1], wire=wire))
    if (machine := tried(walk, setting.machine, dtype.itemsize)) is not setting.machine:
        return plan_for(dataclasses.replace(setting, machine=machine), transform, options)
    mesh_here(mesh, walk.end)
    check_reached(precision, walk.error(dtype.itemsize), ", or wire='exact'" * wire.lossy)
    return _kept(walk, transform, mesh, dtype, method, order, setting.machine, dots, wire=wire)


@functools.lru_cache(maxsize=1024)
def _followed(walk: Walk, move: Walk) -> Walk:
    return dataclasses.replace(walk, steps=(*walk.steps, *move.steps))


_kept = functools.lru_cache(maxsize=1024)(Plan)


def _check_known(start: Layout, options: Options, mesh: AnyMesh | None) -> None:
    """Raises ValueError where the result would be cut as neither the array nor out_spec= says, which is all that
    out_specs can know."""
    if mapped_axes(mesh) & start.mesh_axes and options.order == "any":
        raise ValueError(
            "order 'any' inside shard_map leaves a layout that out_specs cannot know: call a mf.plan(...) inside, "
            "whose out_layout tells them, or give out_spec="
        )


def plan(
    shape: Sequence[int],
    *,
    mesh: AnyMesh | None = None,
    spec: Spec | None = None,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    norm: str | None = None,
    kind: str = "fft",
    method: str = "auto",
    order: str = "natural",
    inverse: bool = False,
    points: PointsLike = None,
    precision: Precision = None,
    multiplications: int | None = None,
    ring: str = "auto",
    engine: str = "auto",
    wire: str = "exact",
    out_spec: Spec | None = None,
    margin: int | Sequence[int] = 0,
    topology: str | Topology | None = None,
) -> Plan:
    """Finds the cheapest walk for a transform, without an array and without a
    device.

        X[k] = scale sum_n x[n] exp(-2 pi i k n / N)   along every axis

    Args:
        shape: logical shape; sizes need not divide the mesh, storage is padded
            at the tail (see `shard`).
        mesh, spec, out_spec: concrete or abstract; the array's, by default
            mesh axis i cuts dimension i; the result's.
        s, axes, norm, method, order, engine, wire: as `fftn`; precision,
            multiplications, ring: as `kdftn`.
        dtype: type of the input, by default complex64, and float32 for kinds
            that are for real arrays.
        kind, inverse: "fft", "rfft", "hfft", "dct-1" to "dct-4" or "dst-1" to
            "dst-4", or its inverse.
        points: as `kdftn`, without `s` and `inverse`.
        margin: ghost cells on both sides of every block, along all `axes` or
            one number for each. `shape` counts them, p (n / p + 2 m) cells for
            n points in p equal blocks, `s` does not; the result has as many,
            zeros.
        topology: a machine without its devices, as "v3:32x32": chip, and chips
            along each axis; on its best mesh.

    Returns:
        A Plan, in milliseconds, or seconds where the mesh is free or its TPUs
        first try a kernel (docs/kernels.md); print it, or call it.

    Raises:
        ValueError, TypeError: an argument that does not fit, with what would.

    >>> mf.plan((256, 256), kind="rfft").out_shape
    (256, 129)
    """
    what = (s, axes, dtype, norm, kind, inverse, points, margin)
    options = Options(method, order, precision, out_spec, multiplications, ring, engine, wire, False, *what)
    return _plans(shape, mesh, spec, topology, options)[0]


def out_spec(
    shape: Sequence[int], *, mesh: AnyMesh | None = None, spec: Spec | None = None, **options: Any
) -> PartitionSpec:
    """The PartitionSpec that a function gives its result: for code under Auto
    mesh axes, where JAX hides it.

    Where the mesh axes do not divide the result, functions move some of them
    to another dimension; a plan does not.

    Args:
        shape: the array's shape.
        mesh, spec: the mesh, and the array's spec on it.
        options: as `plan`: kind="rfft" says `rfftn`, inverse=True with it
            `irfftn`; `s`, `axes`, `method` and so on.

    Raises:
        ValueError, TypeError: as `plan`.

    >>> mesh = jax.sharding.AbstractMesh((2, 2), ("x", "y"))
    >>> cut = ("x", None, "y")
    >>> tuple(mf.out_spec((8, 8, 8), mesh=mesh, spec=cut, kind="rfft"))
    (('y', 'x'), None, None)
    """
    kept = plan(shape, mesh=mesh, spec=spec, **options)
    if any(kept.margin):
        raise ValueError(f"functions have no margins, as {kept.margin}: mf.plan(...).out_layout.spec tells a plan's")
    setting = Setting(kept.in_layout, mesh, kept.machine, kept.in_dtype)
    asked = Options(**{name: value for name, value in options.items() if name != "topology"})
    return plan_for(setting, kept.transform, asked).out_layout.spec


def ranked(shape: Sequence[int], topology: str | Topology, **options: Any) -> list[Plan]:
    """Plans for every mesh of a machine that is only named, the best first; options as `plan`, but for mesh, spec."""
    return _plans(shape, None, None, topology, Options(evades=False, **options))


def _plans(
    shape: Sequence[int], mesh: AnyMesh | None, spec: Spec | None, topology: str | Topology | None, options: Options
) -> list[Plan]:
    """Plans for a mesh, or for all of a machine that is only named, the best first."""
    s, axes = lengths_of(options.s), None if options.axes is None else integers(options.axes, "axes")
    options = options._replace(s=s, axes=axes)  # an iterator can be read once
    if topology is None or mesh is not None:
        return [_plan(shape, mesh, spec, topology, options)]
    axes_named = spec if options.out_spec is None else options.out_spec
    if axes_named is not None:
        raise ValueError(f"spec {axes_named} names mesh axes: give a mesh too, or leave both free")
    if not is_integer(options.margin) or options.margin:
        raise ValueError(f"margin {options.margin} is that of each block: give a mesh, which says how many there are")
    shape, count = laid_out(shape, None, None).shape, named(topology).devices
    if not 0 < len(shape) <= len(AXES):
        raise ValueError(f"shape {shape} has {len(shape)} dimensions: give a mesh for that many")
    plans, refusal = [], f"{count} devices cannot be laid over shape {shape}: give a mesh and a spec"
    alike = options.axes is None and options.points is None and options.s is None
    for mesh, spec in meshes(shape, count, alike):
        try:
            plans.append(_plan(shape, mesh, spec, topology, options))
        except ValueError as error:
            refusal = str(error)
    if not plans:
        raise ValueError(refusal)
    return sorted(plans, key=_rank)


def _plan(
    shape: Sequence[int], mesh: AnyMesh | None, spec: Spec | None, topology: str | Topology | None, options: Options
) -> Plan:
    """The plan for a mesh; on a torus, for its best order of devices."""
    start, dtype = laid_out(shape, mesh, spec), _dtype(options)
    dims, _ = resolve(start.shape, options.s, options.axes, options.kind, options.inverse)
    widths = widths_of(options.margin, start, dims)
    start = without(start, widths)
    transform, samples = _transform(start.shape, options)
    settings = (Setting(start, mesh, machine, dtype) for machine in machines(mesh, topology))
    best = min((plan_for(setting, transform, options) for setting in settings), key=_rank)
    best = dataclasses.replace(best, walk=framed(best.walk, widths)) if widths else best
    return dataclasses.replace(best, points=samples) if samples else best


def _rank(plan: Plan) -> tuple[bool, float]:
    """Those that fit come first, then by seconds."""
    return plan.fits is False, plan.seconds or 0.0


def laid_out(shape: Sequence[int], mesh: AnyMesh | None, spec: Spec | None) -> Layout:
    """The layout of an array; by default mesh axis i cuts dimension i."""
    shape, sizes = integers(shape, "shape"), axis_sizes(mesh)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has a negative size: give sizes of 0 or more")
    if spec is None and len(sizes) > len(shape):
        remedy = "say with spec= which axes cut which dimension"
        raise ValueError(f"the mesh has {len(sizes)} axes, the array {len(shape)} dimensions: {remedy}")
    return from_spec(shape, sizes, tuple(sizes) if spec is None else spec)


def _dtype(options: Options) -> np.dtype:
    """The type of the input."""
    return np.dtype(options.dtype or natural_dtype(options.kind))


def _transform(shape: tuple[int, ...], options: Options) -> tuple[Transform, tuple[Points | None, ...]]:
    """What is computed: a transform of uniform samples, or of any."""
    *_, s, axes, _, norm, kind, inverse, points, _, _ = options
    dims, lengths = resolve(shape, s, axes, kind, inverse)
    if points is None:
        return transform_of(dims, lengths, norm, inverse, kind), ()
    if s is not None or inverse or kind != "fft":
        raise ValueError("points cannot go with s, kind or inverse: give as many points as are wanted")
    check_once(dims)
    samples = entries(points, dims)
    return sampled(shape, dims, samples, norm, complex_dtype(_dtype(options), options.precision)), samples


def machines(mesh: AnyMesh | None, topology: str | Topology | None) -> Iterator[Machine]:
    """The machine of a mesh; of a torus one for each order of its devices."""
    if topology is None:
        yield machine_of(mesh)
        return
    where, sizes = named(topology), axis_sizes(mesh)
    for kind in DEVICE_ORDERS if where.torus is not None and len(sizes) > 1 else DEVICE_ORDERS[:1]:
        machine, device = placed(where, tuple(sizes.values()), tuple(sizes), kind), device_of(where.chip, mesh)
        yield machine if device is None else dataclasses.replace(machine, device=device)
