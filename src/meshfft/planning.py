"""Planning: from shapes and names to a Plan, without an array and without a device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import AbstractMesh, Mesh
from jax.typing import DTypeLike

from .arguments import Transform, check_once, integers, resolve, transform_of
from .choice import find_walk
from .dtypes import complex_dtype, dots_of
from .errors import check
from .layout import Spec, axis_sizes, from_spec
from .plan import Plan
from .points import Points, entries, sampled
from .topology import Topology, machine_of, placed
from .topology import topology as named


def plan(
    shape: Sequence[int],
    *,
    mesh: Mesh | AbstractMesh | None = None,
    spec: Spec | None = None,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    dtype: DTypeLike = "complex64",
    norm: str | None = None,
    method: str = "auto",
    order: str = "natural",
    inverse: bool = False,
    points: Points | Sequence[Points | None] | None = None,
    precision: str | None = None,
    multiplications: int | None = None,
    topology: str | Topology | None = None,
) -> Plan:
    """Finds the cheapest walk for a transform, without an array and without a device.

        X[k] = scale sum_n x[n] exp(-2 pi i k n / N)   along every dimension in `axes`

    Args:
        shape: logical shape; sizes need not divide the mesh, storage is padded at the tail (see `shard`).
        mesh: the device mesh, concrete or an AbstractMesh; None plans for one device.
        spec: the PartitionSpec the array comes with; None lets mesh axis i cut dimension i.
        s, axes: transform lengths and dimensions, as numpy.fft.fftn.
        dtype: type of the input; complex64 for anything of 32 bits or fewer, complex128 otherwise.
        norm: "backward", "ortho" or "forward".
        method: "auto", "transpose", "cooley-tukey" (the paper's FFT) or "kdft" (the paper's KDFT).
        order, inverse: "natural" or "any" as `fftn`; plan the inverse transform.
        points, precision, multiplications: as `kdftn`; points exclude `s` and `inverse`.
        topology: a machine without its devices, such as "v3:32x32": chip, and chips along each axis of its torus.

    Returns:
        A Plan, in milliseconds; print it, or call it.

    Raises:
        ValueError, TypeError: an argument that does not fit, with what would.
    """
    shape = integers(shape, "shape")
    check(min(shape, default=0) >= 0, f"shape {shape} has a negative size: give sizes of 0 or more")
    complex_type, sizes = complex_dtype(np.dtype(dtype), precision), axis_sizes(mesh)
    machine = machine_of(mesh) if topology is None else placed(named(topology), tuple(sizes.values()), tuple(sizes))
    transform, samples = _transform(shape, s, axes, norm, inverse, points, complex_type)
    start = from_spec(shape, sizes, _default_spec(len(shape), sizes) if spec is None else spec)
    dots = dots_of(np.dtype(dtype), precision, multiplications)
    walk = find_walk(start, transform, method, order, machine, complex_type.itemsize, dots)
    return Plan(walk, transform, mesh, complex_type, method, order, machine, dots, samples)


def _transform(
    shape: tuple[int, ...], s: Any, axes: Any, norm: str | None, inverse: bool, points: Any, dtype: np.dtype
) -> tuple[Transform, tuple[Points | None, ...]]:
    """What is computed: a transform of uniform samples, or of any."""
    dims, lengths = resolve(shape, s, axes)
    if points is None:
        return transform_of(dims, lengths, norm, inverse), ()
    check(s is None and not inverse, "points cannot go with s or inverse: give as many points as are wanted")
    check_once(dims)
    samples = entries(points, dims)
    return sampled(shape, dims, samples, norm, dtype), samples


def _default_spec(ndim: int, sizes: Any) -> tuple[str, ...]:
    check(
        len(sizes) <= ndim,
        f"the mesh has {len(sizes)} axes, the array {ndim} dimensions: say with spec= which axes cut which dimension",
    )
    return tuple(sizes)
