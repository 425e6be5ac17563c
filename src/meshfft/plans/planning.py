"""Planning: from shapes and names to a Plan, without an array and without a device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jax.typing import DTypeLike

from ..errors import check
from ..layout.layout import Spec, axis_sizes, from_spec
from ..layout.meshes import AXES, meshes
from ..machine.machine import Machine
from ..machine.topology import ORDERS as DEVICE_ORDERS
from ..machine.topology import Topology, machine_of, placed
from ..machine.topology import topology as named
from ..numerics.dtypes import complex_dtype, dots_of
from ..operators.point_entries import entries
from ..operators.points import Points, sampled
from ..operators.transform import Transform, check_once, integers, natural_dtype, resolve, transform_of
from ..walks.choice import find_walk, goal_of
from .plan import Plan

WHAT = ("s", "axes", "norm", "kind", "inverse", "points")  # what is transformed; the rest says how


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
    dtype = dtype or natural_dtype(kind)
    how = {"dtype": dtype, "method": method, "order": order, "precision": precision, "multiplications": multiplications}
    if topology is not None and mesh is None:
        named_axes = spec if out_spec is None else out_spec
        check(named_axes is None, f"spec {named_axes} names mesh axes: give a mesh too, or leave both free")
        return ranked(shape, topology, **dict(zip(WHAT, what, strict=True)), **how)[0]
    return _planned(shape, mesh, spec, what, topology, out_spec=out_spec, **how)


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
    start, transform = kept.in_layout, kept.transform
    goal = goal_of(start, transform, kept.order, options.get("out_spec"), axis_sizes(mesh))
    how = (kept.method, kept.order, kept.machine, kept.dtype.itemsize, kept.dots)
    return find_walk(start, transform, *how, even=start.even, goal=goal, real=kept.walk.real).end.spec


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
    check(0 < len(shape) <= len(AXES), f"shape {tuple(shape)} has {len(shape)} dimensions: give a mesh for so many")
    found, refusal = [], f"{many} devices cannot be laid over shape {tuple(shape)}: give a mesh and a spec"
    for mesh, spec in meshes(shape, many, alike=free):
        try:
            found.append(plan(shape, mesh=mesh, spec=spec, topology=topology, **options))
        except ValueError as error:
            refusal = str(error)
    check(bool(found), refusal)
    return sorted(found, key=lambda one: (one.fits is False, one.seconds or 0.0))


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    shape = integers(shape, "shape")
    check(min(shape, default=0) >= 0, f"shape {shape} has a negative size: give sizes of 0 or more")
    return shape


def _planned(
    shape: tuple[int, ...],
    mesh: Mesh | AbstractMesh | None,
    spec: Spec | None,
    what: tuple[Any, ...],
    topology: str | Topology | None,
    *,
    dtype: Any,
    method: Any,
    order: Any,
    precision: Any,
    multiplications: Any,
    out_spec: Spec | None = None,
) -> Plan:
    """The plan for one mesh; on a torus, with its devices in the order that is cheaper."""
    complex_type, sizes = complex_dtype(np.dtype(dtype), precision), axis_sizes(mesh)
    transform, samples = _transform(shape, what, complex_type)
    start = from_spec(shape, sizes, _default_spec(len(shape), sizes) if spec is None else spec)
    dots, real = dots_of(np.dtype(dtype), precision, multiplications), transform.takes_real(np.dtype(dtype).kind != "c")

    goal = None if out_spec is None else goal_of(start, transform, order, out_spec, sizes)

    def on(machine: Machine) -> Plan:
        how = (method, order, machine, complex_type.itemsize, dots)
        walk = find_walk(start, transform, *how, goal=goal, real=real)
        return Plan(walk, transform, mesh, complex_type, method, order, machine, dots, samples)

    if topology is None:
        return on(machine_of(mesh))
    where = named(topology)
    wide = complex_type.itemsize == 16 and where.chip.platform == "tpu"
    check(not wide, f"{where.name} has no complex128: plan with dtype='complex64' or precision='float32'")
    orders = DEVICE_ORDERS if where.torus is not None and len(sizes) > 1 else DEVICE_ORDERS[:1]
    plans = [on(placed(where, tuple(sizes.values()), tuple(sizes), kind)) for kind in orders]
    return min(plans, key=lambda one: (one.fits is False, one.seconds or 0.0))


def _transform(
    shape: tuple[int, ...], what: tuple[Any, ...], dtype: np.dtype
) -> tuple[Transform, tuple[Points | None, ...]]:
    """What is computed: a transform of uniform samples, or of any."""
    s, axes, norm, kind, inverse, points = what
    dims, lengths = resolve(shape, s, axes, kind, inverse)
    if points is None:
        return transform_of(dims, lengths, norm, inverse, kind), ()
    alone = s is None and not inverse and kind == "fft"
    check(alone, "points cannot go with s, kind or inverse: give as many points as are wanted")
    check_once(dims)
    samples = entries(points, dims)
    return sampled(shape, dims, samples, norm, dtype), samples


def _default_spec(ndim: int, sizes: Any) -> tuple[str, ...]:
    check(
        len(sizes) <= ndim,
        f"the mesh has {len(sizes)} axes, the array {ndim} dimensions: say with spec= which axes cut which dimension",
    )
    return tuple(sizes)
