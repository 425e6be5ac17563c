"""Topologies: machines by name, as "v3:32x32", and the machine that a mesh of devices shows.

A torus axis is joined at its ends where it is as long as the pod's, or where the pod is wired by optical switches, in
multiples of four chips (v4, v5p and v7x: How to Scale Your Model, TPUs; v2, v3: Jouppi et al., CACM 63(7), 2020).
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh

from ..layout.layout import AnyMesh
from .chip import Chip
from .chips import CHIPS, chip_for
from .device_order import jax_order, neighbour_order
from .machine import Machine, Network
from .torus import Order, Torus

ORDERS = ("ring", "jax")
SWITCHED = 4  # chips along the side of a cube that optical switches join


class Topology(NamedTuple):
    """So many devices of one chip, on a torus where the chip has one."""

    name: str
    chip: Chip
    torus: Torus | None
    devices: int


def topology(name: str | Topology) -> Topology:
    """The machine of a name: chip, colon, chips along each axis of its torus; or for others how many devices.

    Raises:
        ValueError: no such chip, or a shape that it does not come in.
    """
    if isinstance(name, Topology):
        return name
    kind, _, text = name.partition(":")
    if kind not in CHIPS:
        raise ValueError(f"topology {name!r} names no chip that is known: begin with one of {', '.join(CHIPS)}")
    chip, words = CHIPS[kind], text.split("x")
    example = f"{kind}:{'x'.join(map(str, chip.torus)) or 8}"
    right = all(word.isdecimal() and int(word) > 0 for word in words)
    if not right:
        raise ValueError(f"topology {name!r} has no shape: give chips along each axis, as {example}")
    shape = tuple(int(word) for word in words)
    if not chip.torus:
        if len(shape) != 1:
            raise ValueError(f"topology {name!r}: {kind} devices form no torus: give their number, as {example}")
        return Topology(name, chip, None, shape[0])
    if len(shape) != len(chip.torus):
        raise ValueError(f"topology {name!r} has {len(shape)} axes, {kind} has {len(chip.torus)}: {example}")
    longest = zip(sorted(shape), sorted(chip.torus), strict=True)
    if not all(size <= most for size, most in longest):
        raise ValueError(f"topology {name!r} is beyond the largest {kind}: {example}")
    return Topology(name, chip, torus_of(chip, shape), math.prod(shape) * chip.devices)


def torus_of(chip: Chip, shape: tuple[int, ...]) -> Torus:
    """The torus of a slice of so many chips along each axis."""
    switched = len(chip.torus) == 3
    wraps = tuple(n % SWITCHED == 0 if switched else n == most for n, most in zip(shape, chip.torus, strict=True))
    return Torus(shape, wraps, chip.devices)


@functools.lru_cache(maxsize=1024)
def placed(where: Topology, sizes: tuple[int, ...], names: tuple[str, ...], order: str = "ring") -> Machine:
    """The machine with its devices on a mesh: rings as cycles of neighbours, or in the order of `jax.make_mesh`.

    Raises:
        ValueError: the mesh has another number of devices.
    """
    if order not in ORDERS:
        raise ValueError(f"device order {order!r} is unknown: use one of {', '.join(ORDERS)}")
    count = math.prod(sizes)
    if count != where.devices:
        raise ValueError(f"the mesh has {count} devices, {where.name} has {where.devices}: use all of them")
    if where.torus is None:
        return Machine(where.chip)
    if order == "ring":
        found = _in_rings(where.torus, sizes)
    else:
        found = jax_order(where.torus, sizes, where.chip.kinds[0])
    return Machine(where.chip, Network(where.torus, found, names, order))


def _in_rings(torus: Torus, sizes: tuple[int, ...]) -> Order:
    """The neighbours' order, found once for all orders of the axes."""
    ascending = tuple(sorted(range(len(sizes)), key=sizes.__getitem__))
    devices = neighbour_order(torus, tuple(sizes[axis] for axis in ascending)).array
    return Order.of(devices.transpose(np.argsort(ascending)))


@functools.lru_cache(maxsize=64)
def machine_of(mesh: AnyMesh | None, platform: str | None = None) -> Machine:
    """The machine that a mesh shows: its chip, and where its devices say so their places on the torus.

    Without a mesh it is one device, of a platform where that is known.
    """
    if not isinstance(mesh, Mesh):
        kind = getattr(mesh, "abstract_device", None)
        shown = platform if mesh is None else getattr(kind, "platform", None)
        return Machine(chip_for(shown, getattr(kind, "device_kind", "")))
    first = mesh.devices.flat[0]
    chip = chip_for(first.platform, first.device_kind)
    if not chip.torus or not hasattr(first, "coords"):
        return Machine(chip)
    coords = np.array([device.coords[: len(chip.torus)] for device in mesh.devices.flat])
    cores = np.array([device.core_on_chip for device in mesh.devices.flat])
    coords = coords - coords.min(0)
    torus = torus_of(chip, tuple(int(n) for n in coords.max(0) + 1))
    if torus.size != mesh.devices.size:
        return Machine(chip)  # devices here and there: no torus of its own
    order = Order.of(torus.numbers(coords, cores).reshape(mesh.devices.shape))
    return Machine(chip, Network(torus, order, tuple(mesh.axis_names)))
