"""Execution of a walk on arrays, as one program per walk, mesh and type.

The logger "meshfft" reports compiling at level INFO. Invariant: padding is zero before and after.
"""

import dataclasses
import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ..collectives.processes import from_all
from ..kept import Trial, failing
from ..layout.in_flight import in_turn
from ..layout.layout import AnyMesh, Spec, axis_sizes, mapped_axes
from ..layout.padded_array import AnyStored, Transformed, padded, stored_of
from ..layout.placement import reshard, without_padding
from ..machine.chip import Chip
from ..machine.machine import Machine
from ..machine.topology import device_of
from ..numerics.dtypes import complex_dtype, dots_of, real_dtype
from ..numerics.split_complex import Planes
from ..operators.operands import operand_of
from ..steps.problem import BY_XLA, Problem
from ..walks.choice import find_walk, moves, recut
from ..walks.walk import Walk
from .primitive import Operands, bind
from .request import formed, on_host, read

PROGRAMS = 256  # cached programs
LOG = logging.getLogger("meshfft")
PLANES = 8  # itemsize of the complex type that kernels take
SLOW = 1.0  # seconds of compiling worth a log line
OWN_SPLIT = ("cpu",)  # platforms where this package splits bfloat16 products


def applied(
    arrays: tuple[AnyStored, ...],
    walk: Walk,
    sources: tuple[object, ...],
    mesh: AnyMesh | None,
    chip: Chip,
    dtype: np.dtype,
    planes: bool | None = None,
    home: AnyMesh | None = None,
    donate: bool = False,
) -> tuple[AnyStored, ...]:
    """Applies a walk, with operands made from `sources`, to an array or planes.

    Padded results are on `home`, the mesh outside of a caller's shard_map. `donate` reuses storage.
    """
    first, planes = arrays[0], len(arrays) == 2 if planes is None else planes
    stored = tuple([stored_of(x) for x in arrays])
    if planes and not walk.real and len(stored) == 1:  # a real array in a complex walk
        stored = (*stored, jnp.zeros_like(stored[0]))
    walk, operands = (furnish if sources else _furnished)(walk, sources, chip.name, dtype)
    leaves = jax.tree.leaves(operands) if operands else []
    traced = any([isinstance(x, jax.core.Tracer) for x in (*stored, *leaves)])
    if chip.scratch is not None and dtype.itemsize == PLANES:
        _check_kernels(walk, mesh, chip, traced)
    plain = not planes and stored[0].dtype == dtype
    program, begun = _program(walk, mesh, dtype, planes, None if traced else chip, plain, donate and not traced)
    results = program(stored, operands)
    if (planes or mesh is None) and any(map(on_host, stored)):  # the program reads memory that the caller may write to
        results[0].block_until_ready()
    for start in begun[:1]:  # other threads may empty the list meanwhile
        begun.clear()
        if (seconds := time.perf_counter() - start) >= SLOW:
            LOG.info("compiled in %.1f s; further calls on such arrays use the same program", seconds)
    return tuple([padded(y, walk.end, home or mesh, first) for y in results])


def tried(walk: Walk, machine: Machine, itemsize: int) -> Machine:
    """The machine, without kernel families that fail in trials of the walk's kernels, or of its transpose's."""
    if machine.device is None or itemsize != PLANES:
        return machine
    failed = tuple(name for name in failing(_trials(walk), machine.device) if name not in machine.failed)
    return dataclasses.replace(machine, failed=(*machine.failed, *failed)) if failed else machine


def sound_walk(problem: Problem) -> Walk:
    """`find_walk` with kernels that passed their trials."""
    walk = find_walk(problem)
    sound = tried(walk, problem.machine, problem.itemsize)
    return walk if sound is problem.machine else sound_walk(dataclasses.replace(problem, machine=sound))


@functools.lru_cache(maxsize=PROGRAMS)
def _trials(walk: Walk) -> tuple[Trial, ...]:
    return tuple(dict.fromkeys((*walk.trials(), *walk.transpose().trials())))


@functools.lru_cache(maxsize=PROGRAMS)
def _check_kernels(walk: Walk, mesh: AnyMesh | None, chip: Chip, traced: bool) -> None:
    device = device_of(chip, mesh, jax.default_backend())
    failed = failing(walk.trials(), device) if device else ()
    if failed:
        remedy = "plan on a Mesh of these devices, to use other kernels, or with " + BY_XLA
        what = f"the plan has kernels that failed their trials on {chip.name}"
        raise RuntimeError(f"{what}: {', '.join(failed)}: {remedy}")
    if isinstance(mesh, Mesh) and not traced:
        check_steps(walk.name, mesh.devices.flat)


def check_steps(steps: str, devices: Iterable[jax.Device]) -> None:
    """Raises RuntimeError in every process of these devices unless all take the same steps."""
    said = from_all(steps, devices)
    first = min(said)
    if others := [process for process, taken in said.items() if taken != said[first]]:
        what = f"processes {others} take other steps than process {first}, because trials of kernels ended differently"
        raise RuntimeError(f"{what}: call mf.cache(folder) with one folder for all, or give {BY_XLA}")


def check_donated(arrays: tuple[AnyStored, ...], walk: Walk, dtype: np.dtype, planes: bool) -> None:
    """Raises ValueError unless results can have these arrays' storage."""
    start, end, real = walk.start, walk.end, walk.reals[-1]
    given, result = arrays[0].dtype, real_dtype(dtype) if planes or real else dtype
    if len(arrays) == 2 and stored_of(arrays[0]) is stored_of(arrays[1]):
        raise ValueError("donate=True, but both planes are one array: give two, or leave donate out")
    alike = start.storage == end.storage and math.prod(start.block) == math.prod(end.block)
    if not alike or given != result or (len(arrays) == 2 and real):
        raise ValueError(
            f"donate=True, but the array is {given} of {start.label()} stored as {start.storage} and the result "
            f"{result} of {end.label()} stored as {end.storage}: storage can be shared where type, shape and the size "
            f"of blocks are the same; leave donate out"
        )


def furnish(walk: Walk, sources: tuple[object, ...], platform: str, dtype: np.dtype) -> tuple[Walk, Operands]:
    operands, steps = [operand_of(source, real_dtype(dtype)) for source in sources], []
    for step in walk.steps:
        if platform in OWN_SPLIT and step.takes and (tabled := step.takes.tabled(sources, len(operands))) is not None:
            step, table = tabled
            operands.append(table)
        steps.append(step)
    return dataclasses.replace(walk, steps=tuple(steps)), tuple(operands)


_furnished = functools.lru_cache(maxsize=PROGRAMS)(furnish)


@functools.lru_cache(maxsize=PROGRAMS)
def _program(
    walk: Walk, mesh: AnyMesh | None, dtype: np.dtype, planes: bool, chip: Chip | None, plain: bool, donate: bool
) -> tuple[Callable[[Planes, Operands], Planes], list[float]]:
    """`run` compiled with a chip's options, and the start time of an unfinished compilation."""
    options = () if chip is None else walk.compiler_options(dtype.itemsize, chip, plain)
    begun = list[float]()

    def run(arrays: Planes, operands: Operands) -> Planes:
        if chip is not None:  # traced, and so compiled, once
            LOG.info("compiling for %s: %s", walk.start, walk.name)
            begun[:] = [time.perf_counter()]
        arrays = tuple(x.astype(real_dtype(dtype) if planes or walk.real else dtype) for x in arrays)
        return walked(arrays, walk, mesh, planes, operands)

    program = jax.jit(run, donate_argnums=(0,) if donate else (), compiler_options=dict(options) or None)
    alone = mesh.size == 1 if mesh is not None else chip is not None  # chip is None in a caller's shard_map, too
    return program if alone else functools.partial(in_turn, program), begun


def walked(arrays: Planes, walk: Walk, mesh: AnyMesh | None, planes: bool, operands: Operands = ()) -> Planes:
    """The walk on stored arrays; step by step for traced samples, whose gradient costs a ring each."""
    if isinstance(mesh, Mesh) and set(mesh.axis_types) == {AxisType.Auto}:
        # Shows JAX the mesh, which our primitive hides if x is a constant.
        arrays = jax.lax.with_sharding_constraint(arrays, NamedSharding(mesh, walk.start.spec))
    mapped = mapped_axes(mesh)
    arrays = tuple(without_padding(x, walk.start, mapped) for x in arrays)  # also in gradients
    linear = all(step.linear for _, step, _ in walk.taking)
    for part in (walk,) if linear else walk.stages():
        stored: list[object] = [None] * len(operands)  # as this walk's steps take them
        for slot, step, layout in part.taking:
            stored[slot] = step.operand(_on_mesh(operands[slot], mesh), layout, mapped)
        arrays = tuple(bind(arrays, part, mesh, planes, tuple(stored)))
    return tuple(without_padding(y, walk.end, mapped) for y in arrays)


def _on_mesh(operand: object, mesh: AnyMesh | None) -> object:
    """Traced numbers replicated on this mesh, as JAX's transpose of row selection needs."""

    def replicated(leaf: Array) -> Array:
        hidden = isinstance(leaf, jax.core.Tracer) and jax.typeof(leaf).sharding.mesh.empty
        return reshard(leaf, mesh, PartitionSpec()) if hidden else leaf

    return jax.tree.map(replicated, operand)


_walked = jax.jit(walked, static_argnums=(1, 2, 3))


def in_own_type(arrays: Sequence[AnyStored], walk: Walk, mesh: AnyMesh | None) -> Transformed:
    """A walk of each array, in the array's type."""
    results = (in_turn(_walked, (stored_of(x),), walk, mesh, False)[0] for x in arrays)
    return formed(tuple(padded(y, walk.end, mesh, x) for y, x in zip(results, arrays, strict=True)))


@overload
def moved(y: AnyStored, out_spec: Spec | None, spec: Spec | None = None) -> AnyStored: ...
@overload
def moved(y: Transformed, out_spec: Spec | None, spec: Spec | None = None) -> Transformed: ...
def moved(y: Transformed, out_spec: Spec | None, spec: Spec | None = None) -> Transformed:
    """A result resharded to `out_spec` in its own type; `spec` if JAX hides its sharding."""
    if out_spec is None:
        return y
    arrays, setting, _ = read(y, spec)
    start, mesh, machine = setting.start, setting.mesh, setting.machine
    goal = recut(start, out_spec, axis_sizes(mesh), start)
    itemsize, dots = complex_dtype(setting.dtype, None).itemsize, dots_of(setting.dtype, None, None)
    walk = moves(start, goal, machine, itemsize, dots)
    walk = dataclasses.replace(walk, planes=False)  # any type is sent unchanged
    return in_own_type(arrays, walk, mesh)
