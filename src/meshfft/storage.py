"""In and out: NumPy arrays of any size to evenly stored, sharded ones, and back.

JAX shards a dimension only in equal parts, so a size that no mesh axis divides is stored with zeros at its tail; the
logical size is kept beside it, in the plan's layouts.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from .dtypes import check_numeric
from .errors import check
from .holding import check_blocks
from .layout import Layout, Spec, axis_sizes, from_spec
from .whole import whole


class Sliceable(Protocol):
    """Anything with a shape, a dtype and slices: a NumPy array, a memory map, a dataset in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...


def shard(array: Sliceable | Array, mesh: Mesh, spec: Spec) -> Array:
    """Puts an array on a mesh, padded with zeros at the tail of every dimension that its mesh axes do not divide.

        stored size = p ceil(n / p)   for p shards of a dimension of n positions

    Args:
        array: a NumPy or JAX array, or anything with `shape`, `dtype` and slices: each device's block is read by
            itself. On several processes each reads those of its own devices, from what must be one array to all.
        mesh: a concrete device mesh.
        spec: a PartitionSpec; several mesh axes may cut one dimension, and axes may stay idle.

    Returns:
        The stored array. It does not know its logical shape, and `fftn` would transform the padding as data: where
        sizes do not divide, give `array.shape` to `plan` and the stored array to that plan.

    Raises:
        ValueError: the spec does not fit the array or the mesh.
        TypeError: the elements are not numbers.
    """
    check(isinstance(mesh, Mesh), f"mesh is {type(mesh).__name__}: give a jax.sharding.Mesh of real devices", TypeError)
    array = array if hasattr(array, "dtype") else np.asarray(array)
    check_numeric(np.dtype(array.dtype))
    layout = from_spec(array.shape, axis_sizes(mesh), spec)
    check_blocks(array, layout, np.dtype(array.dtype).itemsize, mesh, "the array")
    sharding = NamedSharding(mesh, layout.spec)
    if isinstance(array, jax.Array):
        widths = [(0, stored - n) for stored, n in zip(layout.storage, layout.shape, strict=True)]
        return put(jnp.pad(array, widths) if not layout.even else array, sharding)
    return _from_blocks(array, layout, sharding)


def put(array: Array, sharding: NamedSharding) -> Array:
    """A JAX array with another sharding.

    From one that this process holds whole each takes its own blocks: `device_put` would send all of it to all
    processes, to see that it is the same to each.
    """
    near = not isinstance(array, jax.core.Tracer) and array.is_fully_addressable
    if near and not sharding.is_fully_addressable:
        values = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda at: values[at], dtype=array.dtype)
    return jax.device_put(array, sharding)


def gather(y: Array, shape: tuple[int, ...]) -> np.ndarray:
    """Brings a stored array to the host as a NumPy array of its logical shape.

    Where several processes hold it, each must call this and each gets all of it, sent round a part at a time: it has to
    fit in the memory of every host. Work on `y.addressable_shards` where it does not.

    Args:
        y: a stored array.
        shape: the logical shape: `plan.shape` of an input, `plan.out_shape` of a result.

    Raises:
        ValueError: the shape has another rank or is larger than what is stored, or this process has none of the
            array's devices.
    """
    fits = len(shape) == y.ndim and all(0 <= n <= stored for n, stored in zip(shape, y.shape, strict=False))
    check(
        fits, f"shape {tuple(shape)} is not within the stored {y.shape}: give the logical shape, such as plan.out_shape"
    )
    return whole(y)[tuple(slice(0, n) for n in shape)]


def _from_blocks(array: Sliceable, layout: Layout, sharding: NamedSharding) -> Array:
    """Reads one block after the other, and keeps none on the host once the devices that hold it have it."""
    places: dict[tuple[tuple[int, int], ...], list[Any]] = {}
    for device, index in sharding.addressable_devices_indices_map(layout.storage).items():
        bounds = tuple(s.indices(n)[:2] for s, n in zip(index or (), layout.storage, strict=True))
        places.setdefault(bounds, []).append(device)
    stored: list[Array] = []
    for bounds, devices in places.items():
        block = _read(array, layout, bounds)
        stored += [_put(block, device) for device in devices]
    dtype = jax.dtypes.canonicalize_dtype(np.dtype(array.dtype).newbyteorder("="))
    return jax.make_array_from_single_device_arrays(layout.storage, sharding, stored, dtype=dtype)


def _put(block: np.ndarray, device: Any) -> Array:
    """A block on its device, at once: `device_put` would wait for the end of a `jit` that it is called in."""
    return jax.make_array_from_callback(block.shape, SingleDeviceSharding(device), lambda _: block).block_until_ready()


def _read(array: Sliceable, layout: Layout, bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
    """One block, zeros beyond the logical sizes."""
    inside = tuple(slice(min(a, n), min(b, n)) for (a, b), n in zip(bounds, layout.shape, strict=True))
    sides, full = [s.stop - s.start for s in inside], [b - a for a, b in bounds]
    into, native = getattr(array, "into", None), np.dtype(array.dtype).newbyteorder("=")
    if sides == full or into is None:
        block = np.asarray(array[inside]).astype(native, copy=False)  # files are often big-endian, devices are not
        return np.pad(block, [(0, n - have) for n, have in zip(full, sides, strict=True)]) if sides != full else block
    block = np.zeros(full, native)
    into(block[tuple(map(slice, sides))], inside)
    return block
