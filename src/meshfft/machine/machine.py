"""Machines: a chip and the links of its devices, by name ("v3:32x32") or from a mesh.

compute = products + vector + memory        links = sum of moves
seconds = compute + links                                             without overlap
        = compute / parts + max((1 - 1 / parts) compute, links)       if each part is sent during the next
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import Mesh

from ..layout.layout import AnyMesh, hashed_once
from .chip import CHIPS, Chip, chip_for
from .torus import Order, Torus, exchange_load, hops, loads, neighbour_order, ring_load

ORDERS = ("ring", "jax")
SWITCHED = 4  # chips per side of a cube that optical switches join
EFFICIENCY = 0.7  # assumed share of the busiest link's rate that an all-to-all of many messages reaches


class Move(NamedTuple):
    """Exchanges over a ring: "ring", a block to a neighbour; "two-way ring", to both; "all-to-all", a part to each."""

    kind: str
    axes: tuple[str, ...]
    nbytes: int  # bytes of the block
    times: int


@dataclasses.dataclass(frozen=True)
class Work:
    matrix_flops: int = 0  # real operations of matrix products, padded to the matrix unit, passes not counted
    tier: str = "float32"  # precision tier of these products
    vector_flops: int = 0  # other real operations: FFT butterflies, phases
    kernel_flops: int = 0  # real operations of vector-unit kernels, which cost their cycles
    kernel_cycles: int = 0  # cycles of these kernels, or of their memory traffic if that takes longer
    memory_bytes: int = 0  # bytes read and written outside products and kernels
    fed_bytes: int = 0  # bytes read and written by the products, at the same time
    sent_bytes: int = 0  # bytes sent to other devices
    all_to_alls: int = 0
    hops: int = 0  # collective permutes between neighbours
    moves: tuple[Move, ...] = ()  # everything sent, by kind and mesh axes
    parts: int = 1  # parts computed in sequence, each sent during the next
    peak_bytes: int = 0  # bytes alive at the peak, input and output included
    beside_bytes: int = 0  # bytes alive at every step, as kept rows, and input or output that others do not count

    @property
    def flops(self) -> int:
        return self.matrix_flops + self.vector_flops + self.kernel_flops


def total(works: Iterable[Work]) -> Work:
    works = list(works)
    return Work(
        matrix_flops=sum(w.matrix_flops for w in works),
        tier=next((w.tier for w in works if w.matrix_flops), "float32"),
        vector_flops=sum(w.vector_flops for w in works),
        kernel_flops=sum(w.kernel_flops for w in works),
        kernel_cycles=sum(w.kernel_cycles for w in works),
        memory_bytes=sum(w.memory_bytes for w in works),
        fed_bytes=sum(w.fed_bytes for w in works),
        sent_bytes=sum(w.sent_bytes for w in works),
        all_to_alls=sum(w.all_to_alls for w in works),
        hops=sum(w.hops for w in works),
        moves=tuple(move for w in works for move in w.moves),
        peak_bytes=max((w.peak_bytes for w in works), default=0) + sum(w.beside_bytes for w in works),
    )


class Network(NamedTuple):
    """A torus, and the device at each position of a mesh with these axes; `kind` names the rule."""

    torus: Torus
    order: Order
    names: tuple[str, ...]
    kind: str = "given"


class Seconds(NamedTuple):
    """Modelled seconds by resource, and in total, which is less than their sum if they overlap."""

    products: float
    vector: float
    memory: float
    links: float
    total: float


@hashed_once
@dataclasses.dataclass(frozen=True)
class Machine:
    chip: Chip
    network: Network | None = None  # None if every device reaches every other alike
    devices: int = 1
    slices: int = 1  # TPU slices, joined by a slower network
    device: jax.Device | None = None  # a local device for kernel trials; None without one
    failed: tuple[str, ...] = ()  # kernels that failed there; XLA's engine replaces them

    @property
    def caveat(self) -> str | None:
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
        return math.prod(self.chip.torus) * self.chip.devices if self.chip.torus else 0

    @property
    def gridding(self) -> str:
        """The form of gridding (nufft/grid/form.py): the platform's, or "xla"."""
        return "xla" if self.chip.refuses_bfloat16 or self.has_failed("points") else self.chip.platform

    def has_failed(self, *families: str) -> bool:
        return any(name.startswith(families) for name in self.failed)

    def seconds(self, work: Work) -> Seconds:
        fed = work.fed_bytes / self.chip.memory.value  # products read and write as they compute
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
            starts += work.hops + work.parts  # for a hop's imaginary part, and for each product
        return work.sent_bytes / self.chip.link.value + starts * self.chip.hop.value

    def move_seconds(self, move: Move) -> float:
        network = self.network
        if network is None:
            return move.times * (move.nbytes / self.chip.link.value + self.chip.hop.value)
        axes = tuple(network.names.index(name) for name in move.axes)
        if move.kind == "all-to-all":
            load, far = exchange_load(network.torus, network.order, axes) / EFFICIENCY, sum(network.torus.shape) // 2
        else:
            load, far = ring_load(network.torus, network.order, axes, move.kind == "two-way ring"), 1
        return move.times * (load * move.nbytes / self.chip.link.value + far * self.chip.hop.value)

    def permute_seconds(self, pairs: Sequence[tuple[int, int]], nbytes: int) -> float:
        """A permute of `nbytes` between pairs (source, target) of positions in the mesh."""
        load, far = 1.0, 1
        if self.network is not None:
            torus, order = self.network.torus, self.network.order.array.ravel()
            sources, targets = order[np.array(pairs, int).reshape(-1, 2).T]
            load, far = float(loads(torus, sources, targets, 1).max(initial=0)), hops(torus, sources, targets)
        return load * nbytes / self.chip.link.value + far * self.chip.hop.value


class Topology(NamedTuple):
    name: str
    chip: Chip
    torus: Torus | None
    devices: int


def topology(name: str | Topology) -> Topology:
    """The machine of a name: chip, colon, chips along each torus axis, or the number of devices."""
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
    """The torus of a slice. An axis wraps if it has the pod's length, or, with optical switches, a multiple of four.

    Source: How to Scale Your Model, TPUs (v4, v5p, v7x); Jouppi et al., CACM 63(7), 2020 (v2, v3).
    """
    switched = len(chip.torus) == 3
    wraps = tuple(n % SWITCHED == 0 if switched else n == most for n, most in zip(shape, chip.torus, strict=True))
    return Torus(shape, wraps, chip.devices)


@functools.lru_cache(maxsize=256)
def jax_order(torus: Torus, sizes: tuple[int, ...], kind: str) -> Order:
    """The order of `jax.make_mesh` on devices of a kind such as "TPU v5" (v5p), or of its remedy if it refuses."""
    numbers = np.arange(torus.size)
    coords = np.pad(torus.coords(numbers), [(0, 0), (0, 3 - len(torus.shape))])
    alike = functools.partial(SimpleNamespace, device_kind=kind, platform="tpu", process_index=0, slice_index=0)
    devices = [alike(id=n, coords=tuple(map(int, at)), core_on_chip=n % torus.cores) for n, at in enumerate(coords)]
    for split in (kind in ("TPU v5 lite", "TPU v5e"), True):
        try:
            mesh = create_device_mesh(sizes, devices, allow_split_physical_axes=split)
        except (NotImplementedError, AssertionError):  # asserts that a v4 or v5p chip is one device
            continue
        return Order.of(np.array([device.id for device in mesh.flat]).reshape(sizes))
    return Order.of(numbers.reshape(sizes))


@functools.lru_cache(maxsize=1024)
def placed(where: Topology, sizes: tuple[int, ...], names: tuple[str, ...], kind: str = "ring") -> Machine:
    """The machine with its devices on a mesh, in rings of neighbours or in the order of `jax.make_mesh`."""
    count = math.prod(sizes)
    if count != where.devices:
        raise ValueError(f"the mesh has {count} devices, {where.name} has {where.devices}: use all of them")
    if where.torus is None:
        return Machine(where.chip, devices=count)
    if kind == "jax":
        return Machine(where.chip, Network(where.torus, jax_order(where.torus, sizes, where.chip.kind), names, kind))
    ascending = np.argsort(sizes, kind="stable")  # one search serves all orders of the mesh axes
    devices = neighbour_order(where.torus, tuple(sizes[axis] for axis in ascending)).array
    order = Order.of(devices.transpose(np.argsort(ascending)))
    return Machine(where.chip, Network(where.torus, order, names, kind))


@functools.lru_cache(maxsize=64)
def machine_of(mesh: AnyMesh | None, platform: str | None = None) -> Machine:
    """The machine of a mesh: its chip, and the torus if its devices have coordinates; one device without a mesh."""
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
        return alike
    order = Order.of(torus.numbers(coords, cores).reshape(mesh.devices.shape))
    return Machine(chip, Network(torus, order, tuple(mesh.axis_names)), device=tried)


def device_of(chip: Chip, mesh: AnyMesh | None, platform: str | None = None) -> jax.Device | None:
    """A local device on which kernels of a chip can be tried, or None; devices of a described pod do not count."""
    if chip.scratch is None or not (platform or isinstance(mesh, Mesh)):
        return None
    there = list(mesh.devices.flat) if isinstance(mesh, Mesh) else []
    if platform:
        with contextlib.suppress(RuntimeError):
            there = there or jax.local_devices(backend=chip.platform)
    near = (d for d in there if d.platform == chip.platform and d.device_kind.startswith(chip.kind))
    return next((d for d in near if isinstance(d, jax.Device) and d in d.client.local_devices()), None)
