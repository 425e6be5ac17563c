"""Storage: NumPy arrays of any size, and replicated arrays, as evenly stored and sharded arrays."""

import math
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from jax.typing import DTypeLike

from ..numerics.dtypes import check_fits, check_numeric
from .layout import AnyMesh, Layout, Spec, axis_sizes, from_spec, mapped_axes
from .memory import check_blocks, room_of
from .padded_array import PaddedArray, padded
from .placement import reshard

ALIGNMENT = 64


class Sliceable(Protocol):
    """For example a NumPy array, a memory map, or a dataset in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DTypeLike: ...
    def __getitem__(self, index: tuple[slice, ...], /) -> np.ndarray: ...


def stored_on(array: Sliceable | Array, mesh: Mesh, spec: Spec) -> Array | PaddedArray:
    """An array on a mesh, as in `shard`; NumPy arrays and Sliceables are read block by block."""
    array = array if hasattr(array, "dtype") else np.asarray(array)
    check_numeric(np.dtype(array.dtype))
    layout = from_spec(array.shape, axis_sizes(mesh), spec)
    check_blocks(layout, np.dtype(array.dtype).itemsize, room_of(array, mesh), "the array")
    sharding = NamedSharding(mesh, layout.spec)
    if not isinstance(array, jax.Array):
        return padded(_from_blocks(array, layout, sharding), layout, mesh)
    if not layout.even:
        array = jnp.pad(array, [(0, stored - n) for stored, n in zip(layout.storage, layout.shape, strict=True)])
    return padded(put(array, sharding), layout, mesh)


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An empty array that JAX uses on CPUs without a copy."""
    nbytes = math.prod(shape) * dtype.itemsize
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    first = -buffer.ctypes.data % ALIGNMENT
    return buffer[first : first + nbytes].view(dtype).reshape(shape)


def put(array: Array, sharding: NamedSharding) -> Array:
    """A JAX array with another sharding; `device_put` would send all of it to all processes."""
    if not isinstance(array, jax.core.Tracer) and array.is_fully_addressable and not sharding.is_fully_addressable:
        values = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda at: values[at], dtype=array.dtype)
    return jax.device_put(array, sharding)


def cut_replicated(b: Array, layout: Layout, mesh: AnyMesh | None) -> Array:
    """A replicated array, padded to a layout's storage, and cut; nothing is sent."""

    def block(b: Array) -> Array:
        for dim, (size, axes) in enumerate(zip(layout.block, layout.axes, strict=True)):
            start = lax.axis_index(axes) * size if axes else 0
            b = jnp.pad(b, [(0, size if d == dim else 0) for d in range(b.ndim)])
            b = lax.dynamic_slice_in_dim(b, start, size, dim)  # clipped so that the slice fits
        return b

    if mesh is None or mapped_axes(mesh) & layout.mesh_axes:
        return block(b)
    cut = jax.shard_map(block, mesh=mesh, in_specs=PartitionSpec(), out_specs=layout.spec, check_vma=False)
    return cut(reshard(b, mesh, PartitionSpec()))


def _from_blocks(array: Sliceable, layout: Layout, sharding: NamedSharding) -> Array:
    """Reads block by block, and keeps none once its devices have it."""
    holders: dict[tuple[tuple[int, int], ...], list[jax.Device]] = {}
    for device, index in sharding.addressable_devices_indices_map(layout.storage).items():
        bounds = tuple(s.indices(n)[:2] for s, n in zip(index or (), layout.storage, strict=True))
        holders.setdefault(bounds, []).append(device)
    stored: list[Array] = []
    for bounds, devices in holders.items():
        block = _block(array, layout, bounds)
        check_fits(block)
        stored += [_on_device(block, device) for device in devices]
    dtype = jax.dtypes.canonicalize_dtype(np.dtype(array.dtype).newbyteorder("="))
    return jax.make_array_from_single_device_arrays(layout.storage, sharding, stored, dtype=dtype)


def _on_device(block: np.ndarray, device: jax.Device) -> Array:
    """One block, at once: `device_put` would wait for an enclosing `jit`."""
    return jax.make_array_from_callback(block.shape, SingleDeviceSharding(device), lambda _: block).block_until_ready()


def _block(array: Sliceable, layout: Layout, bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
    inside = tuple(slice(min(a, n), min(b, n)) for (a, b), n in zip(bounds, layout.shape, strict=True))
    sides, full = [s.stop - s.start for s in inside], [b - a for a, b in bounds]
    into, native = getattr(array, "into", None), np.dtype(array.dtype).newbyteorder("=")
    if sides == full or into is None:
        block = np.asarray(array[inside]).astype(native, copy=False)  # files are often big-endian
        return np.pad(block, [(0, n - have) for n, have in zip(full, sides, strict=True)]) if sides != full else block
    block = np.zeros(full, native)
    into(block[tuple(map(slice, sides))], inside)
    return block
