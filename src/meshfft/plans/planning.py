"""Planning: from a setting and a transform to a Plan, cached; and from shapes and names alone, without an array."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jax.typing import DTypeLike

from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes, from_spec, mapped_axes
from ..layout.memory import check_blocks
from ..layout.meshes import AXES, meshes
from ..machine.machine import Machine
from ..machine.topology import ORDERS as DEVICE_ORDERS
from ..machine.topology import Topology, machine_of, placed
from ..machine.topology import topology as named
from ..numerics.dtypes import Dot, complex_dtype, dots_of, real_dtype
from ..operators.point_entries import entries
from ..operators.points import Points, sampled
from ..operators.transform import Transform, check_once, integers, natural_dtype, resolve, transform_of
from ..walks.choice import find_walk, goal_of, natural_end
from .execute import NOTHING
from .plan import Plan
from .request import Setting

STAYING = ("kdft", "cooley-tukey")  # methods that leave dimensions cut as they are
WHAT = ("s", "axes", "norm", "kind", "inverse", "points")  # what is transformed; the rest says how


class Options(NamedTuple):
    """How a transform is to be done: see `fftn`; `evades` says that mesh axes may move where a result does not divide,
    as functions do it.
    """

    method: str = "auto"
    order: str = "natural"
    precision: str | None = None
    out_spec: Spec | None = None
    multiplications: int | None = None
    evades: bool = True


def plan_for(setting: Setting, transform: Transform, options: Options) -> Plan:
    """The plan of a transform of an array in some setting, the same one for the same question.

    Raises:
        ValueError, TypeError, MemoryError: as `fftn`.
    """
    start, precision = setting.start, options.precision
    dtype, dots = complex_dtype(setting.dtype, precision), dots_of(setting.dtype, precision, options.multiplications)
    after = natural_end(start, transform)
    check_blocks(after, real_dtype(dtype).itemsize, setting.room, "the result")
    if options.evades:
        _check_known(start, after, options, setting.mesh)
    sizes, stays = axis_sizes(setting.mesh), options.method in STAYING
    there, goal, last = None if stays else options.out_spec, None, None
    if options.evades or there is not None:
        goal = goal_of(start, transform, options.order, there, sizes)
    if stays and options.out_spec is not None:
        last = goal_of(after, NOTHING, "natural", options.out_spec, sizes)
    evades = options.evades and start.even and goal is None and not (after.even and options.order == "natural")
    what = (options.method, options.order, dtype, dots, transform.takes_real(setting.real), goal, evades)
    return _planned(start, transform, setting.mesh, setting.machine, *what, last)


@functools.lru_cache(maxsize=1024)
def _planned(
    start: Layout,
    transform: Transform,
    mesh: AnyMesh | None,
    machine: Machine,
    method: str,
    order: str,
    dtype: np.dtype,
    dots: tuple[Dot, ...],
    real: bool,
    goal: Layout | None,
    even: bool,
    last: Layout | None,
) -> Plan:
    how = (machine, dtype.itemsize, dots)
    walk = find_walk(start, transform, method, order, *how, even=even, goal=goal, real=real)
    if last is not None:  # the method leaves dimensions where they are: exchanges follow
        move = find_walk(walk.end, NOTHING, "auto", "natural", *how, goal=last, real=walk.reals[-1])
        walk = dataclasses.replace(walk, steps=(*walk.steps, *move.steps))
    return Plan(walk, transform, mesh, dtype, method, order, machine, dots)


def plan(
    shape: Sequence[int],
    *,
    mesh: Mesh | AbstractMesh | None = None,
    spec: Spec | None = None,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    norm: str | None = None,
    kind: str = "fft",
    method: str = "auto",
    order: str = "natural",
    inverse: bool = False,
    points: Points | Sequence[Points | None] | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
    out_spec: Spec | None = None,
    topology: str | Topology | None = None,
) -> Plan:
    """Finds the cheapest walk for a transform, without an array and without a device.

        X[k] = scale sum_n x[n] exp(-2 pi i k n / N)   along every dimension in `axes`

    Args:
        shape: logical shape; sizes need not divide the mesh, storage is padded at the tail (see `shard`).
        mesh, spec: the mesh, concrete or abstract, and the array's spec; by default mesh axis i cuts dimension i.
        s, axes, norm: transform lengths, dimensions and scale, as numpy.fft.fftn.
        dtype: type of the input, by default complex64, and float32 for kinds that are for real arrays.
        kind, inverse: "fft", "rfft", "hfft", "dct-1" to "dct-4" or "dst-1" to "dst-4", or its inverse.
        method, order: as `fftn`.
        points, precision, multiplications: as `kdftn`; points exclude `s` and `inverse`.
        out_spec: the result's spec, where it is not to lie as the array comes; excludes order "any".
        topology: a machine without its devices, as "v3:32x32": chip, and chips along each axis; on its best mesh.

    Returns:
        A Plan, in milliseconds, or seconds where the mesh is free; print it, or call it.

    Raises:
        ValueError, TypeError: an argument that does not fit, with what would.
    """
    shape, what = _sizes(shape), (s, axes, norm, kind, inverse, points)
    dtype = np.dtype(dtype or natural_dtype(kind))
    how = Options(method, order, precision, out_spec, multiplications, evades=False)
    if topology is not None and mesh is None:
        named_axes = spec if out_spec is None else out_spec
        if named_axes is not None:
            raise ValueError(f"spec {named_axes} names mesh axes: give a mesh too, or leave both free")
        named_how = {name: value for name, value in how._asdict().items() if name not in ("out_spec", "evades")}
        return ranked(shape, topology, dtype=dtype, **dict(zip(WHAT, what, strict=True)), **named_how)[0]
    start = from_spec(shape, axis_sizes(mesh), _default_spec(len(shape), axis_sizes(mesh)) if spec is None else spec)
    transform, samples = _transform(shape, what, complex_dtype(dtype, precision))
    plans = (
        plan_for(Setting(start, mesh, one, dtype), transform, how) for one in _machines(mesh, topology, dtype, how)
    )
    best = min(plans, key=lambda one: (one.fits is False, one.seconds or 0.0))
    return dataclasses.replace(best, points=samples) if samples else best


def out_spec(
    shape: Sequence[int], *, mesh: Mesh | AbstractMesh | None = None, spec: Spec | None = None, **options: Any
) -> PartitionSpec:
    """The PartitionSpec that a function gives its result: for code under Auto mesh axes, where JAX hides it.

    Where the mesh axes do not divide the result, functions move some of them to another dimension; a plan does not.

    Args:
        shape: the array's shape.
        mesh, spec: the mesh, and the array's spec on it.
        options: as `plan`: kind="rfft" says `rfftn`, inverse=True with it `irfftn`; `s`, `axes`, `method` and so on.

    Raises:
        ValueError, TypeError: as `plan`.

    >>> import jax, meshfft as mf
    >>> mf.out_spec((8, 8, 8), mesh=jax.sharding.AbstractMesh((2, 2), ("x", "y")), spec=("x", None, "y"), kind="rfft")
    PartitionSpec(('y', 'x'), None, None)
    """
    kept = plan(shape, mesh=mesh, spec=spec, **options)
    setting = Setting(kept.in_layout, mesh, kept.machine, kept.in_dtype)
    names = {name: value for name, value in options.items() if name in Options._fields}
    return plan_for(setting, kept.transform, Options(**names)).out_layout.spec


def ranked(shape: Sequence[int], topology: str | Topology, **options: Any) -> list[Plan]:
    """Plans for every way to lay a machine's devices over the dimensions, the best first: those that fit, by seconds.

    Takes seconds for thousands of devices.

    Args:
        shape: logical shape.
        topology: a machine without its devices, such as "v3:32x32".
        options: as `plan`, but for mesh and spec.

    Raises:
        ValueError: an argument that does not fit, or a method that has no walk on any mesh.
    """
    many, free = named(topology).devices, all(options.get(name) is None for name in ("axes", "points", "s"))
    if not 0 < len(shape) <= len(AXES):
        raise ValueError(f"shape {tuple(shape)} has {len(shape)} dimensions: give a mesh for so many")
    found, refusal = [], f"{many} devices cannot be laid over shape {tuple(shape)}: give a mesh and a spec"
    for mesh, spec in meshes(shape, many, alike=free):
        try:
            found.append(plan(shape, mesh=mesh, spec=spec, topology=topology, **options))
        except ValueError as error:
            refusal = str(error)
    if not found:
        raise ValueError(refusal)
    return sorted(found, key=lambda one: (one.fits is False, one.seconds or 0.0))


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    shape = integers(shape, "shape")
    if not min(shape, default=0) >= 0:
        raise ValueError(f"shape {shape} has a negative size: give sizes of 0 or more")
    return shape


def _machines(
    mesh: AnyMesh | None, topology: str | Topology | None, dtype: np.dtype, options: Options
) -> Iterator[Machine]:
    """The machine of a mesh; of a torus one for each order of its devices."""
    if topology is None:
        yield machine_of(mesh)
        return
    where, sizes = named(topology), axis_sizes(mesh)
    wide = complex_dtype(dtype, options.precision).itemsize == 16 and where.chip.platform == "tpu"
    if wide:
        raise ValueError(f"{where.name} has no complex128: plan with dtype='complex64' or precision='float32'")
    for kind in DEVICE_ORDERS if where.torus is not None and len(sizes) > 1 else DEVICE_ORDERS[:1]:
        yield placed(where, tuple(sizes.values()), tuple(sizes), kind)


def _transform(
    shape: tuple[int, ...], what: tuple[Any, ...], dtype: np.dtype
) -> tuple[Transform, tuple[Points | None, ...]]:
    """What is computed: a transform of uniform samples, or of any."""
    s, axes, norm, kind, inverse, points = what
    dims, lengths = resolve(shape, s, axes, kind, inverse)
    if points is None:
        return transform_of(dims, lengths, norm, inverse, kind), ()
    alone = s is None and not inverse and kind == "fft"
    if not alone:
        raise ValueError("points cannot go with s, kind or inverse: give as many points as are wanted")
    check_once(dims)
    samples = entries(points, dims)
    return sampled(shape, dims, samples, norm, dtype), samples


def _check_known(start: Layout, after: Layout, options: Options, mesh: AnyMesh | None) -> None:
    """Raises ValueError where the result would not lie as the array came, which is all that out_specs can know."""
    cut = mapped_axes(mesh) & start.mesh_axes
    remedy = "call a mf.plan(...) inside, whose out_layout tells the out_specs, or transform outside of shard_map"
    free = options.order != "any" and options.out_spec is None
    if cut and not free:
        raise ValueError(f"order 'any' and out_spec= inside shard_map change a layout that it has fixed: {remedy}")
    if cut and not after.even and start.even:
        raise ValueError(
            f"the result of shape {after.shape} is not divided by spec {start.spec}, and mesh axes cannot move to "
            f"other dimensions inside shard_map: choose s= that divides, {remedy}"
        )


def _default_spec(ndim: int, sizes: Any) -> tuple[str, ...]:
    if len(sizes) > ndim:
        raise ValueError(
            f"the mesh has {len(sizes)} axes, the array {ndim} dimensions: say with spec= "
            "which axes cut which dimension"
        )
    return tuple(sizes)
