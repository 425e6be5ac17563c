"""Libraries that JAX runs: meshfft, `jnp.fft` on one device and on sharded arrays, and jaxDecomp.

Programs are compiled ahead, so that no call that is timed can compile. On a GPU `jnp.fft` is cuFFT.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module

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

from ..common import mesh_of
from .cases import Case
from .data import Data, Place, Prepared, random_turns, ready

AS_IT_LIES, CONTIGUOUS = "transposed-layout", "transposed-array"  # how jaxDecomp leaves its result
JNP: dict[str, Callable[..., jax.Array]] = {"fft": jnp.fft.fftn, "rfft": jnp.fft.rfftn, "dct-2": dctn}


def plan_of(case: Case, mesh: Mesh | AbstractMesh | None = None) -> Plan:
    """The plan of a case of meshfft's, for a mesh of devices, or one that is only described."""
    described = AbstractMesh(case.mesh, tuple(AXES[: len(case.mesh)]), axis_types=(AxisType.Auto,) * len(case.mesh))
    return plan(
        case.shape,
        mesh=described if mesh is None else mesh,
        spec=PartitionSpec(*case.spec),
        dtype=case.dtype,
        kind=case.kind,
        method=case.method,
        order=case.order,
        points=[Points.turns(t) for t in random_turns(case.samples)] or None,
        precision=case.precision or None,
        ring=case.ring or "auto",
    )


def prepare_meshfft(case: Case, data: Data, place: Place) -> Prepared:
    mesh = mesh_of(case.mesh, place.devices)
    return ready(partial(compile_plan(plan_of(case, mesh), mesh), data.on(mesh, case)), data, read=gather)


def prepare_jnp(case: Case, data: Data, place: Place) -> Prepared:
    """`jnp.fft` on the first device, or of the sharded array, its result where XLA leaves it."""
    x = _placed(case, data, place) if case.mesh else jax.device_put(data.x, place.devices[0])
    return ready(partial(jax.jit(JNP[case.kind]).lower(x).compile(), x), data)


def prepare_jaxdecomp(case: Case, data: Data, place: Place) -> Prepared:
    """jaxDecomp's pfft3d, whose result stays transposed: the array (Y, Z, X), or only its layout."""
    if len(case.shape) != 3:
        raise ValueError(f"it does three dimensions, not {len(case.shape)}")
    jaxdecomp = import_module("jaxdecomp")
    contiguous = case.method == CONTIGUOUS
    jax.clear_caches()  # the setting is read while tracing and is no part of jit's key
    jaxdecomp.config.update("transpose_axis_contiguous", contiguous)
    x, back = _placed(case, data, place), (2, 0, 1) if contiguous else (0, 1, 2)
    compiled = jax.jit(jaxdecomp.fft.pfft3d).lower(x).compile()
    return ready(partial(compiled, x), data, read=lambda y: np.asarray(y).transpose(back))


def _placed(case: Case, data: Data, place: Place) -> jax.Array:
    where = NamedSharding(mesh_of(case.mesh, place.devices), PartitionSpec(*case.spec))
    return jax.device_put(data.x, where)
