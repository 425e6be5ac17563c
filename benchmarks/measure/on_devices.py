"""Libraries that JAX runs: meshfft, `jnp.fft` on one device and on sharded arrays, jaxDecomp, and the authors' program.

Programs are compiled ahead, so that no call that is timed can compile. On a GPU `jnp.fft` is cuFFT.
"""

import hashlib
import runpy
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.fft import dctn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshfft.extras import installed
from meshfft.inspect.aot import compile_plan
from meshfft.layout.layout import AXES
from meshfft.layout.padded_array import gather
from meshfft.plans.plan import Plan
from meshfft.plans.planning import plan

from ..common import mesh_of
from .cases import Case
from .data import Data, Place, Prepared, ready

BLOCKS = PartitionSpec(*AXES[:3])  # the authors' program takes three dimensions, each with a mesh axis
LONGEST = 8192  # points of a shard: it reorders them by a matrix of that size squared
AS_IT_LIES, CONTIGUOUS = "transposed-layout", "transposed-array"  # how jaxDecomp leaves its result
JNP: dict[str, Callable[..., jax.Array]] = {"fft": jnp.fft.fftn, "rfft": jnp.fft.rfftn, "dct-2": dctn}


def plan_of(case: Case, mesh: Mesh) -> Plan:
    return plan(
        case.task.shape,
        mesh=mesh,
        spec=PartitionSpec(*case.spec),
        dtype=case.task.dtype,
        kind=case.task.kind,
        method=case.method,
        order=case.order,
        ring=case.ring or "auto",
    )


def prepare_meshfft(case: Case, data: Data, place: Place) -> Prepared:
    mesh = mesh_of(case.mesh, place.devices)
    return ready(partial(compile_plan(plan_of(case, mesh), mesh), data.on(mesh, case)), data, read=gather)


def prepare_jnp(case: Case, data: Data, place: Place) -> Prepared:
    """`jnp.fft` on the first device, or of the sharded array, its result where XLA leaves it."""
    x = _placed(case, data, place) if case.mesh else jax.device_put(data.x, place.devices[0])
    return ready(partial(jax.jit(JNP[case.task.kind]).lower(x).compile(), x), data)


def prepare_jaxdecomp(case: Case, data: Data, place: Place) -> Prepared:
    """jaxDecomp's pfft3d, whose result stays transposed: the array (Y, Z, X), or only its layout."""
    if len(case.task.shape) != 3:
        raise ValueError(f"it does three dimensions, not {len(case.task.shape)}")
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


def prepare_swirl(case: Case, data: Data, place: Place) -> Prepared:
    if place.program is None:
        raise ValueError("is not part of meshfft: give its file, --program FILE (benchmarks/README.md)")
    if case.task.dtype != "complex64" or len(case.task.shape) > 3:
        raise ValueError("does complex64, and at most three dimensions")
    shape, parts = ((*sizes, 1, 1)[:3] for sizes in (case.task.shape, case.mesh))
    if max(n // p for n, p in zip(shape, parts, strict=True)) > LONGEST:
        raise ValueError(f"reorders by matrices: give at most {LONGEST} points of a dimension to a device")
    mesh = mesh_of(parts, place.devices)
    x = jax.device_put(data.x.reshape(shape), NamedSharding(mesh, BLOCKS))
    compiled = swirl(place.program, mesh, len(case.task.shape)).lower(x).compile()
    facts = {"program": f"sha256 {hashlib.sha256(place.program.read_bytes()).hexdigest()}"}
    return ready(partial(compiled, x), data, facts, lambda y: np.asarray(y).reshape(case.task.shape))


def swirl(program: Path, mesh: Mesh, ndim: int = 3) -> jax.stages.Wrapped:
    """The authors' FFT along the first dimensions of an array in blocks (X, Y, Z), by their function for one block.

    Their functions for whole arrays are not called: they need einops, and a flag that `shard_map` no longer takes.
    """
    if "einops" not in sys.modules and not installed("einops"):
        sys.modules["einops"] = ModuleType("einops")
    made = runpy.run_path(str(program))["DistFFT"]
    theirs = made(AXES[:3], mesh.devices.shape, mesh.devices.flat[0].platform)

    def blocks(block: jax.Array) -> jax.Array:
        for axis in range(ndim):
            block = theirs.partitioned_fft_1d(block, axis)
        return block

    return jax.jit(jax.shard_map(blocks, mesh=mesh, in_specs=BLOCKS, out_specs=BLOCKS, check_vma=False))
