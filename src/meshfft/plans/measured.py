"""The fastest of several plans, found by running them on their devices.

    seconds = the median of ROUNDS runs on noise, each after an untimed run of the same plan, all plans in turn

Short plans, whose times scatter more, run up to MOST_ROUNDS times, for BRIEF seconds in all; after LIMIT seconds none
runs again. The untimed run is there because XLA frees a program's memory after its result is there, during the next
run. The choice is kept beside compiled programs, for later processes on such devices with these versions. Invariant:
every process of a mesh takes the choice of the first one.
"""

import dataclasses
import functools
import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding

from ..collectives.processes import from_all, together
from ..kept import circumstances, keep, recall
from ..layout.layout import AnyMesh
from ..layout.padded_array import AnyStored, padded
from ..machine.topology import machine_of
from ..numerics.dtypes import real_dtype
from ..walks.choice import price_of
from .plan import Plan
from .table import title

LOG = logging.getLogger("meshfft")
Tell = Callable[[str, float], None]
_SECONDS = dict[tuple[Plan, ...], list[float]]()  # of this process's choices
FOLDER = "meshfft-choices"  # among JAX's programs
ROUNDS, MOST_ROUNDS = 5, 40
BRIEF, LIMIT = 3.0, 60.0  # seconds of all rounds that allow more of them; seconds after which nothing more starts
SLOWER = 4.0  # plans that the model finds this many times slower than the best are not run


def fastest(plans: Sequence[Plan], tell: Tell = lambda part, done: LOG.info(part)) -> Plan:
    """The plan that runs fastest; the first is the model's choice. `tell` gets a line before each part, and the share
    done.

    Raises ValueError inside a traced function and for a mesh without devices, and the first plan's error if none runs.
    """
    first = plans[0]
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        raise ValueError("effort='measure' runs plans, which cannot be done while JAX traces: make the plan outside")
    if first.mesh is not None and not isinstance(first.mesh, Mesh):
        what = f"effort='measure' runs plans, and the mesh {dict(first.mesh.shape)} has no devices"
        raise ValueError(f"{what}: give a jax.sharding.Mesh, or leave effort out")
    here, planned = machine_of(first.mesh, jax.default_backend()).chip.name, first.machine.chip.name
    if here != planned:
        what = f"effort='measure' runs plans on the devices of the mesh, which are {here}"
        raise ValueError(f"{what}, and topology= names {planned}: leave one of the two out")
    plans = tuple(dict.fromkeys(one for one in plans if _is_promising(one, first)))
    devices = _devices(first.mesh)
    if plans not in _SECONDS:
        facts: dict[str, object] = {"plans": [f"{title(one)}: {one.name}" for one in plans], "devices": len(devices)}
        facts |= {"processes": jax.process_count(), **circumstances(devices[0])}
        found = _of_first(_recalled(facts, len(plans)), devices)
        if not found:
            found = _of_first(_timed(plans, tell), devices)
            keep(FOLDER, facts, {"seconds": found})
        _SECONDS[plans] = found
    seconds = _SECONDS[plans]
    best = min(range(len(plans)), key=seconds.__getitem__)
    return dataclasses.replace(plans[best], trials=(seconds[best], *seconds[:best], *seconds[best + 1 :]))


def _recalled(facts: Mapping[str, object], count: int) -> list[float]:
    found = (recall(FOLDER, facts) or {}).get("seconds")
    if not isinstance(found, list) or len(found) != count:
        return []
    return found if all(isinstance(one, float) and one > 0 for one in found) else []


def _is_promising(plan: Plan, first: Plan) -> bool:
    own, best = (price_of(one.walk, one.machine, one.dtype.itemsize) for one in (plan, first))
    return own <= SLOWER * best and (plan.fits is not False or first.fits is False)


def _devices(mesh: AnyMesh | None) -> list[jax.Device]:
    return [*mesh.devices.flat] if isinstance(mesh, Mesh) else jax.local_devices()[:1]


def _of_first(values: list[float], devices: Sequence[jax.Device]) -> list[float]:
    said = from_all(values, devices)
    return said[min(said)]


def _timed(plans: Sequence[Plan], tell: Tell) -> list[float]:
    """Seconds of each plan; infinite if it cannot run or time is up."""
    begun, devices, failure = time.perf_counter(), _devices(plans[0].mesh), None
    arrays, runs = dict[tuple[object, ...], AnyStored](), dict[Plan, list[float]]()
    for number, plan in enumerate(plans, 1):
        if runs and _passed(begun, devices) > LIMIT:
            break
        tell(f"compiling walk {number} of {len(plans)}: {plan.name}", (number - 1) / (len(plans) + ROUNDS))
        try:
            together(functools.partial(_run, plan, arrays), devices)
            runs[plan] = []
        except (RuntimeError, MemoryError) as error:
            failure = failure or error
    if failure is not None and not runs:
        raise failure
    compiled = _passed(begun, devices)
    for number in range(1, MOST_ROUNDS + 1):
        tell(f"round {number}", (len(plans) + min(number, ROUNDS) - 1) / (len(plans) + ROUNDS))
        for plan, seconds in runs.items():
            _run(plan, arrays)
            seconds.append(_run(plan, arrays))
        passed = _passed(begun, devices)
        if passed > LIMIT or (number >= ROUNDS and passed > compiled + BRIEF):
            break
    return [statistics.median(runs[plan]) if plan in runs else math.inf for plan in plans]


def _passed(begun: float, devices: Sequence[jax.Device]) -> float:
    return _of_first([time.perf_counter() - begun], devices)[0]


def _run(plan: Plan, arrays: dict[tuple[object, ...], AnyStored]) -> float:
    kind = plan.mesh, plan.in_layout, plan.in_dtype
    if kind not in arrays:
        arrays[kind] = jax.block_until_ready(_noise(plan))
    begun = time.perf_counter()
    jax.block_until_ready(plan(arrays[kind]))
    return time.perf_counter() - begun


def _noise(plan: Plan) -> AnyStored:
    layout, dtype = plan.in_layout, plan.in_dtype
    sharding = NamedSharding(plan.mesh, layout.spec) if isinstance(plan.mesh, Mesh) else None

    def make(key: Array) -> Array:
        parts = jax.random.normal(key, (1 + (dtype.kind == "c"), *layout.storage), real_dtype(dtype))
        return parts[0] if len(parts) == 1 else jax.lax.complex(parts[0], parts[1])

    return padded(jax.jit(make, out_shardings=sharding)(jax.random.key(0)), layout, plan.mesh)
