"""Machines by name ("v3:32x32", "4*h100:8") or from a mesh: domains, their torus, and the order of devices."""

import contextlib
import dataclasses
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import Mesh

from ..layout.layout import AnyMesh, axis_sizes
from .chip import Chip, Figure
from .chips import CHIPS, chip_for
from .machine import Machine
from .machine_file import read_machine_file
from .network import Network
from .torus import Order, Sizes, Torus, factors, neighbour_order

ORDERS = ("ring", "jax")
SWITCHED = 4  # chips per side of a cube that optical switches join


class Topology(NamedTuple):
    name: str
    chip: Chip
    torus: Torus | None  # of each domain
    devices: int  # of all domains
    domains: int = 1


Named = str | os.PathLike[str] | Topology


def topology(name: Named) -> Topology:
    """The machine of a file of `meshfft measure`, or of a name: "v3:32x32", "4*h100:8" or "2*v5p:8x8x8@5GB/s".

    A name has the number of domains and a star, if several; the chip; a domain's chips along each torus axis, or number
    of devices; and, after @, the rate from a device to other domains.
    """
    if isinstance(name, Topology):
        return name
    if isinstance(name, os.PathLike) or (isinstance(name, str) and name.endswith(".toml")):
        chip, devices, domains, shape = read_machine_file(Path(name))
        return Topology(f"machine {name}", chip, torus_of(chip, shape) if shape else None, devices, domains)
    if not isinstance(name, str):
        raise TypeError(f"topology is {name!r}: give a name, such as 'v5e:4x4', or a file of meshfft measure")
    head, _, text = name.partition(":")
    several = re.match(r"([1-9]\d*)\*", head)
    domains, kind = int(several[1]) if several else 1, head[several.end() if several else 0 :].lower()
    if kind not in CHIPS:
        known = f"begin with one of {', '.join(CHIPS)}, or with a number of them and a star, as 4*h100:8"
        raise ValueError(f"topology {name!r} names no chip that is known: {known}")
    text, *rates = text.split("@")
    chip, words = _with_rate(CHIPS[kind], name, rates), text.split("x")
    example = f"{kind}:{'x'.join(map(str, chip.torus)) or 8}"
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        what = "chips lie along each axis" if chip.torus else "devices there are"
        raise ValueError(f"topology {name!r} does not say how many {what}: write it as {example}")
    shape = tuple(int(word) for word in words)
    if not chip.torus:
        if len(shape) != 1:
            remedy = f"give their number, as {example}, or nodes of so many, as 4*{example}"
            raise ValueError(f"topology {name!r}: {kind} devices form no torus: {remedy}")
        return Topology(name, chip, None, domains * shape[0], domains * _nodes(name, chip, domains, shape[0]))
    if len(shape) != len(chip.torus):
        axes = f"{kind} has {len(chip.torus)} axes, not {len(shape)}"
        raise ValueError(f"topology {name!r}: {axes}: give chips along each, as {example}")
    if any(size > most for size, most in zip(sorted(shape), sorted(chip.torus), strict=True)):
        raise ValueError(f"topology {name!r} is larger than the largest {kind}: give at most {example}")
    return Topology(name, chip, torus_of(chip, shape), domains * math.prod(shape) * chip.devices, domains)


def _with_rate(chip: Chip, name: str, rates: list[str]) -> Chip:
    if not rates:
        return chip
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]?)B/s", rates[0])
    if found is None or len(rates) > 1 or not float(found[1]):
        raise ValueError(f"topology {name!r} has no rate between domains after @: write it as @25GB/s")
    value = float(found[1]) * 1000 ** " kMGT".index(found[2] or " ")
    return dataclasses.replace(chip, outer=Figure(value, "given", "given by the caller"))


def _nodes(name: str, chip: Chip, domains: int, devices: int) -> int:
    """Nodes of these GPUs; a fast network joins some of them."""
    most = int(chip.domain.value) if chip.domain else devices
    if devices <= most:
        return 1
    if domains == 1 and devices % most == 0:
        return devices // most
    total = domains * devices
    nodes = next(n for n in range(-(-total // most), total + 1) if total % n == 0)
    whole = f"{nodes}*{chip.name}:{total // nodes}"
    raise ValueError(f"topology {name!r}: a node has at most {most} {chip.name} devices: write {whole}")


def torus_of(chip: Chip, shape: tuple[int, ...]) -> Torus:
    """The torus of a slice. An axis wraps if it has the pod's length, or, with optical switches, a multiple of four.

    Source: How to Scale Your Model, TPUs (v4, v5p, v7x); Jouppi et al., CACM 63(7), 2020 (v2, v3).
    """
    switched = len(chip.torus) == 3
    wraps = tuple(n % SWITCHED == 0 if switched else n == most for n, most in zip(shape, chip.torus, strict=True))
    return Torus(shape, wraps, chip.devices)


@functools.lru_cache(maxsize=256)
def jax_order(torus: Torus, sizes: Sizes, kind: str) -> Order:
    """The order of `jax.make_mesh` on devices of a kind such as "TPU v5" (v5p), with split axes if needed."""
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


def placements(where: Topology, mesh: AnyMesh | None) -> Iterator[Machine]:
    """The machine on a mesh, in every order: any mesh axes may join the domains, and a domain's devices are in rings of
    neighbours or in `jax.make_mesh`'s order.
    """
    if where.chip.is_measured_here and isinstance(mesh, Mesh):
        yield _measured(where, mesh)
        return
    sizes, device = axis_sizes(mesh), device_of(where.chip, mesh)
    kinds = ORDERS if where.torus is not None and len(sizes) > 1 else ORDERS[:1]
    splits: list[Sizes | None] = [*factors(where.domains, tuple(sizes.values()))]
    for outside in splits or [None]:
        for kind in kinds:
            machine = placed(where, tuple(sizes.values()), tuple(sizes), kind, outside)
            yield machine if device is None else dataclasses.replace(machine, device=device)


def _measured(where: Topology, mesh: Mesh) -> Machine:
    machine = machine_of(mesh)
    if (machine.chip.platform, machine.chip.kind, mesh.size) != (where.chip.platform, where.chip.kind, where.devices):
        rates = f"{where.name} has rates of {where.devices} {where.chip.name} devices"
        have = f"the mesh has {mesh.size} {machine.chip.name} devices"
        raise ValueError(f"{rates}, {have}: give the file that was measured on as many of them")
    return dataclasses.replace(machine, chip=where.chip)


@functools.lru_cache(maxsize=1024)
def placed(
    where: Topology, sizes: Sizes, names: tuple[str, ...], kind: str = "ring", outside: Sizes | None = None
) -> Machine:
    """The machine on a mesh; `outside`: domains along each axis, by default first axes first."""
    count = math.prod(sizes)
    if count != where.devices:
        raise ValueError(f"the mesh has {count} devices, {where.name} has {where.devices}: use all of them")
    if outside is None:
        outside = max(factors(where.domains, sizes), default=(1,) * len(sizes))
    inside = tuple(size // parts for size, parts in zip(sizes, outside, strict=True))
    if where.torus is None:
        order = Order.of(np.arange(math.prod(inside)).reshape(inside))
    elif kind == "jax":
        order = jax_order(where.torus, inside, where.chip.kind)
    else:
        ascending = np.argsort(inside, kind="stable")  # one search serves all orders of the mesh axes
        devices = neighbour_order(where.torus, tuple(inside[axis] for axis in ascending)).array
        order = Order.of(devices.transpose(np.argsort(ascending)))
    network = None if where.torus is None else Network(where.torus, order, names, kind)
    if where.domains > 1:
        domains = Order.of(np.kron(np.arange(where.domains).reshape(outside), np.ones(inside, int)))
        whole = Order.of(np.tile(order.array, outside))
        network = Network(where.torus, whole, names, kind, domains, where.chip.sharing)
    return Machine(where.chip, network, count)


@functools.lru_cache(maxsize=64)
def machine_of(mesh: AnyMesh | None, platform: str | None = None) -> Machine:
    """The machine of a mesh: its chip, the domains of its devices, and the torus if they have coordinates; one device
    without a mesh. Abstract meshes of GPUs fill node after node.
    """
    if not isinstance(mesh, Mesh):
        kind = getattr(mesh, "abstract_device", None)
        shown = platform if mesh is None else getattr(kind, "platform", None)
        chip = chip_for(shown, getattr(kind, "device_kind", ""))
        count, network = 1 if mesh is None else mesh.size, None
        near = int(chip.domain.value) if chip.domain else count
        if mesh is not None and count > near and count % near == 0:
            network = _network(chip, np.arange(count).reshape(mesh.axis_sizes) // near, mesh.axis_names, None)
        return Machine(chip, network, count, device=device_of(chip, mesh, platform))
    first, devices = mesh.devices.flat[0], mesh.devices.ravel()
    chip, coords = chip_for(first.platform, first.device_kind), None
    domains = np.unique([_domain_of(device) for device in devices], return_inverse=True)[1]
    if chip.torus and hasattr(first, "coords"):
        coords = np.array([(*device.coords[: len(chip.torus)], device.core_on_chip) for device in devices])
    network = _network(chip, domains.reshape(mesh.devices.shape), mesh.axis_names, coords)
    return Machine(chip, network, mesh.size, device=device_of(chip, mesh))


def mesh_as(machine: Machine, sizes: Mapping[str, int], devices: Sequence[jax.Device]) -> Mesh:
    """These devices on a mesh, in the machine's places."""
    if len(devices) != math.prod(sizes.values()):
        raise ValueError(f"{len(devices)} devices are given, the plan is for {math.prod(sizes.values())}: give as many")
    want, here = machine.network, machine_of(Mesh(np.array(devices), ("every",))).network
    if want is None:
        return Mesh(np.array(devices).reshape(tuple(sizes.values())), tuple(sizes))
    if here is None or (here.torus, here.several) != (want.torus, want.several):
        have = "1" if here is None else f"{here.several}{_torus(here)}"
        what = f"{machine.chip.domain_name}s of {machine.chip.name} devices{_torus(want)}"
        raise ValueError(f"planned for {want.several} {what}, given {have}: plan for the given devices")
    place = np.empty((here.several, len(devices) // here.several), object)
    place[here.domain, here.order.array] = devices
    return Mesh(place[want.domain, want.order.array], tuple(sizes))


def mesh_call(machine: Machine, sizes: Mapping[str, int]) -> str | None:
    """JAX's own call that makes the mesh of a machine, or None."""
    network, shape, names = machine.network, tuple(sizes.values()), tuple(sizes)
    outside = None if network is None else network.outside
    if network is None or outside is None:
        return f"jax.make_mesh({shape}, {names})" if network is None else None
    inside = tuple(n // parts for n, parts in zip(shape, outside, strict=True))
    near = np.arange(math.prod(inside)).reshape(inside)
    order = Order.of(near) if network.torus is None else jax_order(network.torus, inside, machine.chip.kind)
    if network.order != Order.of(np.tile(order.array, outside)):
        return None
    if network.domains is None:
        return f"jax.make_mesh({shape}, {names})"
    return f"jax.sharding.Mesh(jax.experimental.mesh_utils.create_hybrid_device_mesh({inside}, {outside}), {names})"


def _domain_of(device: jax.Device) -> int:
    """Its slice, of TPUs or of GPUs that NVLink joins, or its process."""
    index = None if device.platform == "cpu" else getattr(device, "slice_index", None)  # always 0 on CPUs
    if index is None:  # devices of a described slice have none, and several processes
        index = 0 if device.platform == "tpu" else device.process_index
    return int(index)


def _network(chip: Chip, domains: np.ndarray, names: tuple[str, ...], coords: np.ndarray | None) -> Network | None:
    """The network of devices by domains and coordinates; None if all are alike."""
    where, count = domains.ravel(), int(domains.max()) + 1
    each = np.bincount(where)
    torus, order = None, np.zeros(domains.size, int)
    for j in range(count):
        order[where == j] = np.arange(each[j])
    if coords is not None:
        near = [coords[where == j] for j in range(count)]
        shapes = {tuple(map(int, np.ptp(one[:, :-1], axis=0) + 1)) for one in near}
        torus = torus_of(chip, shapes.pop())
        if shapes or any(len(one) != torus.size for one in near):  # parts of slices, or several kinds
            torus = None
        else:
            for j, one in enumerate(near):
                order[where == j] = torus.numbers(one[:, :-1] - one[:, :-1].min(0), one[:, -1])
    if torus is None and count == 1:
        return None
    several = Order.of(domains) if count > 1 else None
    return Network(torus, Order.of(order.reshape(domains.shape)), names, "given", several, chip.sharing)


def device_of(chip: Chip, mesh: AnyMesh | None, platform: str | None = None) -> jax.Device | None:
    """A local device for a chip's kernel trials; not one of a described pod."""
    if chip.scratch is None or not (platform or isinstance(mesh, Mesh)):
        return None
    there = list(mesh.devices.flat) if isinstance(mesh, Mesh) else []
    if platform:
        with contextlib.suppress(RuntimeError):
            there = there or jax.local_devices(backend=chip.platform)
    near = (d for d in there if d.platform == chip.platform and d.device_kind.startswith(chip.kind))
    return next((d for d in near if isinstance(d, jax.Device) and d in d.client.local_devices()), None)


def _torus(network: Network) -> str:
    return f" (torus of {'x'.join(map(str, network.torus.shape))})" if network.torus else ""
