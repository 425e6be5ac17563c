"""Machines: a chip, and how its devices are linked, by name, as "v3:32x32", or as a mesh of devices shows them.

compute = products + vector + memory        links = sum of moves
seconds = compute + links                   if nothing overlaps, else, in parts computed while the last one travels,
        = compute / parts + max((1 - 1 / parts) compute, links)
"""

import contextlib
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from ..layout.layout import AnyMesh, hashed_once
from .chip import CHIPS, Chip, chip_for
from .device_order import jax_order, neighbour_order
from .torus import Order, Torus, exchange_load, ring_load
from .work import Move, Work

ORDERS = ("ring", "jax")
SWITCHED = 4  # chips along the side of a cube that optical switches join
EFFICIENCY = 0.7  # of the busiest link that an all-to-all of many messages reaches: assumed, as no figure is published


class Network(NamedTuple):
    """A torus, and which of its devices is where on a mesh with these axes; `kind` says by what rule."""

    torus: Torus
    order: Order
    names: tuple[str, ...]
    kind: str = "given"


class Seconds(NamedTuple):
    """Modelled seconds by resource, and in all, which is less than their sum if they overlap."""

    products: float
    vector: float
    memory: float
    links: float
    total: float


@hashed_once
@dataclasses.dataclass(frozen=True)
class Machine:
    chip: Chip
    network: Network | None = None  # None where every device reaches every other alike
    devices: int = 1
    slices: int = 1  # of a TPU, joined by a slower network than their own
    device: jax.Device | None = None  # of this process, on which kernels are tried; None where there are none to try
    failed: tuple[str, ...] = ()  # kernels that failed there, so that XLA's engine is taken

    @property
    def caveat(self) -> str | None:
        """What the prices leave out if devices of several fast networks are priced as those of one."""
        if self.chip.megacore:
            name = self.chip.name
            what = f"{name} is priced as a device for each core, where JAX makes one of both cores of a chip (megacore)"
            return f"{what}: a mesh there has half as many devices, each with twice the memory"
        if self.slices > 1:
            return f"{self.slices} TPU slices are priced as one: seconds between slices are underestimated"
        domain = self.chip.domain
        if domain is None or self.devices <= domain.value:
            return None
        usual = f"one NVLink domain ({domain.value:g} a node is usual)"
        return f"{self.devices} GPUs are priced as {usual}: seconds between nodes are underestimated"

    @property
    def count(self) -> int:
        return self.devices if self.network is None else self.network.torus.size

    @property
    def most(self) -> int:
        """The devices of the largest torus of its chips; 0 if these form none."""
        return math.prod(self.chip.torus) * self.chip.devices if self.chip.torus else 0

    @property
    def gridding(self) -> str:
        """Whose form of gridding is taken (nufft/grid/form.py): the platform's, or XLA's alone."""
        return "xla" if self.chip.refuses_bfloat16 or self.has_failed("points") else self.chip.platform

    def has_failed(self, *families: str) -> bool:
        """Whether a kernel whose name begins with one of these has failed."""
        return any(name.startswith(families) for name in self.failed)

    def seconds(self, work: Work) -> Seconds:
        fed = work.fed_bytes / self.chip.memory.value  # products read and write as they go
        products = max(work.matrix_flops / self.chip.product_rate(work.tier), fed)
        vector, memory = work.vector_flops / self.chip.vector.value, work.memory_bytes / self.chip.memory.value
        vector += work.kernel_cycles / self.chip.clock.value if self.chip.clock else 0.0
        compute, links = products + vector + memory, self._links(work)
        first = compute / work.parts if self.chip.overlaps else compute
        return Seconds(products, vector, memory, links, first + max(compute - first, links))

    def price(self, work: Work) -> float:
        return self.seconds(work).total

    def _links(self, work: Work) -> float:
        if self.network is not None:
            return sum(map(self.move_seconds, work.moves))
        starts = work.hops + work.all_to_alls
        if work.matrix_flops:
            starts += work.hops + work.parts  # of a hop's imaginary part, and of each product
        return work.sent_bytes / self.chip.link.value + starts * self.chip.hop.value

    def move_seconds(self, move: Move) -> float:
        """Modelled seconds of a move: the busiest link's blocks, and a latency for each exchange."""
        network = self.network
        if network is None:
            return move.times * (move.nbytes / self.chip.link.value + self.chip.hop.value)
        axes = tuple(network.names.index(name) for name in move.axes)
        if move.kind == "all-to-all":
            load, far = exchange_load(network.torus, network.order, axes) / EFFICIENCY, sum(network.torus.shape) // 2
        else:
            load, far = ring_load(network.torus, network.order, axes, move.kind == "two-way ring"), 1
        return move.times * (load * move.nbytes / self.chip.link.value + far * self.chip.hop.value)


class Topology(NamedTuple):
    """The devices of one chip in a pod, on a torus if the chip has one."""

    name: str
    chip: Chip
    torus: Torus | None
    devices: int


def topology(name: str | Topology) -> Topology:
    """The machine of a name: chip, colon, chips along each axis of its torus; or for others how many devices.

    Raises:
        ValueError: no such chip, or a shape that it does not come in.
        TypeError: it is no name.
    """
    if isinstance(name, Topology):
        return name
    if not isinstance(name, str):
        raise TypeError(f"topology is {name!r}: give a name, such as 'v5e:4x4'")
    kind, _, text = name.partition(":")
    if kind not in CHIPS:
        raise ValueError(f"topology {name!r} names no chip that is known: begin with one of {', '.join(CHIPS)}")
    chip, words = CHIPS[kind], text.split("x")
    example = f"{kind}:{'x'.join(map(str, chip.torus)) or 8}"
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        what = "chips lie along each axis" if chip.torus else "devices there are"
        raise ValueError(f"topology {name!r} does not say how many {what}: write it as {example}")
    shape = tuple(int(word) for word in words)
    if not chip.torus:
        if len(shape) != 1:
            raise ValueError(f"topology {name!r}: {kind} devices form no torus: give their number, as {example}")
        return Topology(name, chip, None, shape[0])
    if len(shape) != len(chip.torus):
        axes = f"{kind} has {len(chip.torus)} axes, not {len(shape)}"
        raise ValueError(f"topology {name!r}: {axes}: give chips along each, as {example}")
    if any(size > most for size, most in zip(sorted(shape), sorted(chip.torus), strict=True)):
        raise ValueError(f"topology {name!r} is larger than the largest {kind}: give at most {example}")
    return Topology(name, chip, torus_of(chip, shape), math.prod(shape) * chip.devices)


def torus_of(chip: Chip, shape: tuple[int, ...]) -> Torus:
    """The torus of a slice with these chips along each axis.

    An axis is joined at its ends if it is as long as the pod's, or, in a pod wired by optical switches, a multiple of
    four chips (v4, v5p and v7x: How to Scale Your Model, TPUs; v2, v3: Jouppi et al., CACM 63(7), 2020).
    """
    switched = len(chip.torus) == 3
    wraps = tuple(n % SWITCHED == 0 if switched else n == most for n, most in zip(shape, chip.torus, strict=True))
    return Torus(shape, wraps, chip.devices)


@functools.lru_cache(maxsize=1024)
def placed(where: Topology, sizes: tuple[int, ...], names: tuple[str, ...], kind: str = "ring") -> Machine:
    """The machine with its devices on a mesh: rings as cycles of neighbours, or in the order of `jax.make_mesh`.

    Raises:
        ValueError: the mesh has another number of devices.
    """
    count = math.prod(sizes)
    if count != where.devices:
        raise ValueError(f"the mesh has {count} devices, {where.name} has {where.devices}: use all of them")
    if where.torus is None:
        return Machine(where.chip, devices=count)
    if kind == "jax":
        return Machine(where.chip, Network(where.torus, jax_order(where.torus, sizes, where.chip.kind), names, kind))
    ascending = np.argsort(sizes, kind="stable")  # one search for all orders of the mesh axes
    devices = neighbour_order(where.torus, tuple(sizes[axis] for axis in ascending)).array
    order = Order.of(devices.transpose(np.argsort(ascending)))
    return Machine(where.chip, Network(where.torus, order, names, kind))


@functools.lru_cache(maxsize=64)
def machine_of(mesh: AnyMesh | None, platform: str | None = None) -> Machine:
    """The machine of a mesh: its chip, and the torus if its devices have coordinates. Without a mesh one device."""
    if not isinstance(mesh, Mesh):
        kind = getattr(mesh, "abstract_device", None)
        shown = platform if mesh is None else getattr(kind, "platform", None)
        chip = chip_for(shown, getattr(kind, "device_kind", ""))
        return Machine(chip, devices=1 if mesh is None else mesh.size, device=device_of(chip, mesh, platform))
    first, slices = mesh.devices.flat[0], {getattr(device, "slice_index", 0) for device in mesh.devices.flat}
    chip = chip_for(first.platform, first.device_kind)
    tried = device_of(chip, mesh)
    alike = Machine(chip, devices=mesh.size, slices=len(slices) if chip.torus else 1, device=tried)
    if not chip.torus or not hasattr(first, "coords") or alike.slices > 1:
        return alike
    coords = np.array([device.coords[: len(chip.torus)] for device in mesh.devices.flat])
    cores = np.array([device.core_on_chip for device in mesh.devices.flat])
    coords = coords - coords.min(0)
    torus = torus_of(chip, tuple(int(n) for n in coords.max(0) + 1))
    if torus.size != mesh.devices.size:
        return alike  # scattered devices have no torus of their own
    order = Order.of(torus.numbers(coords, cores).reshape(mesh.devices.shape))
    return Machine(chip, Network(torus, order, tuple(mesh.axis_names)), device=tried)


def device_of(chip: Chip, mesh: AnyMesh | None, platform: str | None = None) -> jax.Device | None:
    """The first device of this process on a mesh that kernels of a chip can be tried on, or None.

    For a mesh that is only described, any such device if JAX runs (a `platform` is known); else nothing is started.
    Devices of a described pod do not count.
    """
    if chip.scratch is None or not (platform or isinstance(mesh, Mesh)):
        return None
    there = list(mesh.devices.flat) if isinstance(mesh, Mesh) else []
    if platform:
        with contextlib.suppress(RuntimeError):  # no such devices
            there = there or jax.local_devices(backend=chip.platform)
    near = (d for d in there if d.platform == chip.platform and d.device_kind.startswith(chip.kind))
    return next((d for d in near if isinstance(d, jax.Device) and d in d.client.local_devices()), None)
