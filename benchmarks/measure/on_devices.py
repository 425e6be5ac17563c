"""Baselines that JAX runs: meshfft, `jnp.fft` on one device and on sharded arrays, and jaxDecomp.

Programs are compiled ahead, so that no call that is timed can compile. On a GPU `jnp.fft` is cuFFT.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.fft import dctn
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from meshfft.inspect.aot import compile_plan
from meshfft.layout.layout import AXES
from meshfft.layout.padded_array import gather
from meshfft.operators.points import Points
from meshfft.plans.plan import Plan
from meshfft.plans.planning import plan

from .cases import Case
from .data import Data, mesh_of, random_turns
from .prepared import Place, Prepared
from .timing import timer

AS_IT_LIES, CONTIGUOUS = "transposed-layout", "transposed-array"  # how jaxDecomp leaves its result


def plan_of(case: Case, mesh: Mesh | AbstractMesh | None = None) -> Plan:
    """The plan of a case of meshfft's, for a mesh of devices, or one that is only described.

    Raises:
        ValueError, TypeError: there is no such walk.
    """
    points = [Points.turns(t) for t in random_turns(case.samples)] or None
    described = AbstractMesh(case.mesh, tuple(AXES[: len(case.mesh)]), axis_types=(AxisType.Auto,) * len(case.mesh))
    return plan(
        case.shape,
        mesh=described if mesh is None else mesh,
        spec=PartitionSpec(*case.spec),
        dtype=case.dtype,
        kind=case.kind,
        method=case.method,
        order=case.order,
        points=points,
        precision=case.precision or None,
        ring=case.ring or "auto",
    )


def prepare_meshfft(case: Case, data: Data, place: Place) -> Prepared:
    """The plan's program, on the input as it is stored."""
    mesh = mesh_of(case.layout, place.devices)
    made = plan_of(case, mesh)
    x = data.on(mesh, case.layout)
    return _ready(compile_plan(made, mesh), x, data, gather)


def prepare_sharded(case: Case, data: Data, place: Place) -> Prepared:
    """`jnp.fft` of the sharded array, its result where XLA leaves it."""
    mesh = mesh_of(case.layout, place.devices)
    x = jax.device_put(data.x, NamedSharding(mesh, PartitionSpec(*case.spec)))
    return _ready(jax.jit(_jnp_call(case.kind)).lower(x).compile(), x, data, np.asarray)


def prepare_single(case: Case, data: Data, place: Place) -> Prepared:
    """`jnp.fft` on the first device."""
    x = jax.device_put(data.x, place.devices[0])
    return _ready(jax.jit(_jnp_call(case.kind)).lower(x).compile(), x, data, np.asarray)


def prepare_jaxdecomp(case: Case, data: Data, place: Place) -> Prepared:
    """jaxDecomp's pfft3d, whose result stays transposed: the array (Y, Z, X), or only its layout.

    Raises:
        ValueError: it does other arrays.
    """
    _require(len(case.shape) == 3, f"it does three dimensions, not {len(case.shape)}")
    jaxdecomp = import_module("jaxdecomp")
    contiguous = case.method == CONTIGUOUS
    jax.clear_caches()  # the setting is read while tracing and is no part of jit's key
    jaxdecomp.config.update("transpose_axis_contiguous", contiguous)
    mesh = mesh_of(case.layout, place.devices)
    x = jax.device_put(data.x, NamedSharding(mesh, PartitionSpec(*case.spec)))
    back = (2, 0, 1) if contiguous else (0, 1, 2)
    compiled = jax.jit(jaxdecomp.fft.pfft3d).lower(x).compile()
    return _ready(compiled, x, data, lambda y: np.asarray(y).transpose(back))


def _jnp_call(kind: str) -> Callable[[Any], Any]:
    calls: dict[str, Callable[[Any], Any]] = {"fft": jnp.fft.fftn, "rfft": jnp.fft.rfftn, "dct-2": dctn}
    return calls[kind]


def _ready(compiled: Any, x: Any, data: Data, gathered: Callable[[Any], np.ndarray]) -> Prepared:
    return Prepared(timer(lambda: compiled(x)), data.error(gathered(compiled(x))))


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)
