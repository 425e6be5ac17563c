"""A caller's own shard_map around functions of arrays, and its compiled program."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshfft.inspect.hlo import collectives

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
SHAPE, SPEC = (8, 12, 16), P("x", "y", "z")


def only(spec: P, names: Sequence[str]) -> P:
    """The part of a spec that is valid in in_specs."""
    entries = (entry if isinstance(entry, tuple) else (entry,) for entry in spec)
    return P(*(tuple(axis for axis in entry if axis in tuple(names)) or None for entry in entries))


def mapped(body: Callable[..., Any], devices: Mesh, manual: Sequence[str], specs: Any, out: Any, **how: Any) -> Any:
    return jax.shard_map(body, mesh=devices, in_specs=specs, out_specs=out, axis_names=set(manual), **how)


def inside(body: Callable[[Array], Array], devices: Mesh, manual: Sequence[str], spec: P, **how: Any) -> Any:
    """A function of one array, in and out cut by the manual part of a spec."""
    return mapped(body, devices, manual, only(spec, manual), only(spec, manual), **how)


def put(x: np.ndarray, devices: Mesh, spec: P = SPEC) -> Array:
    return jax.device_put(x, NamedSharding(devices, spec))


def hops(run: Callable[..., Any], *arrays: Array) -> dict[str, int]:
    return collectives(jax.jit(run).lower(*arrays).compile())
