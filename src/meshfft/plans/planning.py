"""Planning: a cached Plan from a setting and a transform, or from shapes and names."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Unpack

from jax.sharding import AbstractMesh, PartitionSpec

from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes, from_spec, mapped_axes, meshes
from ..layout.memory import check_blocks, check_held, room_of
from ..layout.reading import mesh_here
from ..machine.machine import Machine
from ..machine.topology import Named, machine_of, placements
from ..machine.topology import topology as named
from ..numerics.dtypes import check_reached, real_dtype
from ..numerics.units import quantity
from ..operators.lowest import lowest
from ..operators.operands import entries, sampled
from ..operators.transform import Transform, check_once, integers, is_integer, resolve, transform_of
from ..steps import Margin
from ..steps.kept_dense import KeptRows, kept_rows
from ..steps.problem import Options, Problem
from ..walks.choice import find_walk, followed, framed, goal_of, moves, natural_end
from .execute import tried
from .measured import fastest
from .options import Definition, PlanHow, check_options, records_of, spelled, widths_of
from .plan import Plan
from .request import Setting
from .table import memory_words

MOST_TRIALS = 10  # of walks by effort="measure"
STAYING = ("kdft", "cooley-tukey")  # that leave the cuts of dimensions unchanged
_kept = functools.lru_cache(maxsize=1024)(Plan)


class Placement(NamedTuple):
    """An array's place, as in `plan`."""

    shape: Sequence[int]
    mesh: AnyMesh | None = None
    spec: Spec | None = None
    topology: Named | None = None


def plan_for(setting: Setting, transform: Transform, options: Options, evades: bool = True) -> Plan:
    """The cached plan for an array; `evades`: mesh axes that do not divide the result may move."""
    check_options(options)
    start, mesh, machine, sizes = setting.start, setting.mesh, setting.machine, axis_sizes(setting.mesh)
    dtype, dots = options.dtype(setting.dtype), options.dots(setting.dtype, machine.chip)
    after, stays = natural_end(start, transform), options.method in STAYING and options.out_spec is not None
    check_blocks(after, real_dtype(dtype).itemsize, setting.room, "the result")
    fixed = bool(mapped_axes(mesh) & start.mesh_axes)  # by a caller's shard_map
    if evades and fixed and options.order == "any":
        what = "order 'any' inside shard_map ends in a layout that your out_specs do not know"
        raise ValueError(f"{what}: call a plan inside, and take out_specs=plan.out_layout.spec, or give out_spec=")
    there, how = None if stays else options.out_spec, (machine, dtype.itemsize, dots)
    may_move = evades and not fixed
    goal = goal_of(start, transform, options.order, there, sizes) if may_move or there is not None else None
    even = may_move and start.even and goal is None and not (after.even and options.order == "natural")
    problem = Problem(start, transform, *how, options.planned, goal, even, transform.takes_real(setting.real))
    walk = find_walk(problem)
    if stays:  # exchanges follow
        last = goal_of(start, transform, "natural", options.out_spec, sizes)
        walk = followed(walk, moves(walk.end, last, *how, real=walk.reals[-1], options=problem.options))
    if (sound := tried(walk, machine, dtype.itemsize)) is not machine:
        return plan_for(dataclasses.replace(setting, machine=sound), transform, options, evades)
    mesh_here(mesh, walk.end)
    check_reached(options.precision, walk.error(dtype.itemsize, machine.chip.rounding), problem.wires.remedy)
    return _kept(walk, transform, mesh, dtype, problem.options, machine, dots)


@spelled
def plan(
    shape: Sequence[int],
    *,
    mesh: AnyMesh | None = None,
    spec: Spec | None = None,
    topology: Named | None = None,
    **how: Unpack[PlanHow],
) -> Plan:
    """Finds the cheapest walk for a transform, without an array and without a
    device.

        X[k] = scale sum_n x[n] exp(-2 pi i k n / N)   along every axis

    Args:
        shape: logical shape; the mesh need not divide it (see `shard`).
        mesh: concrete or abstract.
        spec, out_spec: of the array (by default mesh axis i cuts dimension i)
            and of the result.
        s, axes, norm, method, ..., ring: as `fftn`; precision and
            multiplications as `kdftn`.
        dtype: type of the input, by default complex64, or float32 for kinds of
            real arrays.
        kind, inverse: "fft", "rfft", "hfft", "dct-1" to "dct-4" or "dst-1" to
            "dst-4", or one per axis, "rfft" or "hfft" last. With `inverse`, its
            inverse.
        modes: number of lowest frequencies to keep (-1: all), for all axes or
            for each. The result has the order of `fftfreq`; a half spectrum has
            modes // 2 + 1. Higher ones are dropped before they are sent;
            `plan.inverse` puts zeros there.
        points: as `kdftn`, without `s` and `inverse`; a Scattered gives a plan
            of the direct sum.
        effort: "model", or "measure", which runs at most ten of the model's
            fastest walks on the mesh's devices, for about a minute, and takes
            the best; `plan.trials` has the seconds of all, its own first. The
            choice is kept in the folder of `cache`. All processes of a mesh
            must request it, and get the same.
        precompute: keep the matrix rows of dense products on the devices, from
            the first call on, while the plan lives. No effect in your own `jit`
            or `shard_map`, and for half spectra.
        margin: ghost cells on both sides of every block, for all `axes` or for
            each; zeros in the result. `shape` includes them, p (n / p + 2 m)
            cells for n points in p equal blocks; `s` does not.
        topology: a machine without its devices, such as "v3:32x32" (chip, and
            chips along each axis), on its best mesh unless one is given; or the
            file of `meshfft measure`, such as "here.toml".

    Returns:
        A Plan. Planning takes milliseconds, up to a minute without a mesh or
        when TPUs first try a kernel (docs/kernels.md).

    Raises:
        ValueError, TypeError: an argument that does not fit.

    >>> mf.plan((256, 256), kind="rfft").out_shape
    (256, 129)
    """
    return _plans(Placement(shape, mesh, spec, topology), *records_of(how))[0]


@spelled
def out_spec(
    shape: Sequence[int],
    *,
    mesh: AnyMesh | None = None,
    spec: Spec | None = None,
    topology: Named | None = None,
    **how: Unpack[PlanHow],
) -> PartitionSpec:
    """The PartitionSpec of a function's result, for code under Auto mesh axes,
    where JAX hides it.

    Functions move mesh axes that do not divide the result to another dimension;
    a plan does not.

    Args:
        shape: the array's shape.
        mesh, spec: the mesh, and the array's spec on it.
        topology, ..., out_spec: as `plan`: kind="rfft" is `rfftn`, with
            inverse=True `irfftn`.

    Raises:
        ValueError, TypeError: as `plan`.

    >>> mesh = jax.sharding.AbstractMesh((2, 2), ("x", "y"))
    >>> cut = ("x", None, "y")
    >>> tuple(mf.out_spec((8, 8, 8), mesh=mesh, spec=cut, kind="rfft"))
    (('y', 'x'), None, None)
    """
    definition, options = records_of(how)
    if options.effort != "model":
        raise ValueError(f"functions always take the model's choice, not effort={options.effort!r}: leave effort out")
    kept = _plans(Placement(shape, mesh, spec, topology), definition, options)[0]
    if any(kept.margin):
        raise ValueError(f"margin is {kept.margin}, and functions have none: take mf.plan(...).out_layout.spec instead")
    if not kept.transform.dims:  # nothing is transformed, or scattered points end it
        return kept.out_layout.spec
    setting = Setting(kept.in_layout, mesh, kept.machine, kept.in_dtype)
    return plan_for(setting, kept.transform, options).out_layout.spec


def ranked(shape: Sequence[int], topology: Named, **how: Unpack[PlanHow]) -> list[Plan]:
    """Plans for every mesh of a named machine, best first."""
    return _plans(Placement(shape, None, None, topology), *records_of(how))


def _plans(place: Placement, definition: Definition, options: Options) -> list[Plan]:
    shape, mesh, spec, topology = place
    if topology is None or mesh is not None:
        return [_plan(place, definition, options)]
    if options.effort == "measure":
        raise ValueError(f"effort='measure' runs plans, and {topology} names devices that are not here: give a mesh")
    axes_named = spec if options.out_spec is None else options.out_spec
    if axes_named is not None:
        raise ValueError(f"spec {axes_named} names mesh axes: give a mesh too, or leave both free")
    if not is_integer(definition.margin) or definition.margin:
        remedy = "give a mesh, which determines the number of blocks"
        raise ValueError(f"margin {definition.margin} is for each block: {remedy}")
    shape, count = laid_out(shape, None, None).shape, named(topology).devices
    alike = definition.axes is None and definition.points is None and definition.s is None

    def find(mesh: AnyMesh, spec: Spec) -> list[Plan]:
        return [_plan(Placement(shape, mesh, spec, topology), definition, options)]

    return on_meshes(shape, count, alike, find)


def on_meshes(
    shape: Sequence[int], count: int, alike: bool, find: Callable[[AbstractMesh, PartitionSpec], list[Plan]]
) -> list[Plan]:
    """Plans on meshes of so many devices, best first; raises the last ValueError if none is found."""
    plans, refusal = list[Plan](), f"{count} devices cannot be laid over shape {shape}: give a mesh and a spec"
    for mesh, spec in meshes(shape, count, alike):
        try:
            plans += find(mesh, spec)
        except ValueError as error:
            refusal = str(error)
    if not plans:
        raise ValueError(refusal)
    return sorted(plans, key=rank)


def _plan(place: Placement, definition: Definition, options: Options) -> Plan:
    if options.effort == "measure":
        return fastest(candidates(place, definition, options))
    start, mesh = laid_out(*place[:3]), place.mesh
    dims, _ = resolve(start.shape, definition.s, definition.axes, definition.kind, definition.inverse)
    widths = widths_of(definition.margin, start, dims)
    start = Margin(widths, onto=False).after(start) if widths else start
    settings = (Setting(start, mesh, machine, definition.in_dtype) for machine in machines(mesh, place.topology))
    best = min((planned(definition.points, setting, definition, options) for setting in settings), key=rank)
    best = dataclasses.replace(best, walk=framed(best.walk, widths)) if widths else best
    return _precomputed(best) if options.precompute else best


def candidates(place: Placement, definition: Definition, options: Options) -> list[Plan]:
    """Plans of the model's cheapest walks, best first."""
    start = laid_out(*place[:3])
    place = place._replace(shape=start.shape, spec=start.spec)  # an iterator is read once
    asked = [options._replace(effort="model", rank=number) for number in range(MOST_TRIALS)]
    return [_plan(place, definition, one) for one in asked]


def _precomputed(plan: Plan) -> Plan:
    """The plan with the rows that it keeps; ValueError or MemoryError if they do not fit."""
    given = plan.sources or (None,) * len(plan.transform.dims)
    sources = kept_rows(plan.walk.taking, given, plan.mesh, real_dtype(plan.dtype))
    nbytes = sum(source.nbytes for source in sources if isinstance(source, KeptRows))
    what, remedy = "precompute=True keeps rows that", "leave precompute out, or use more devices"
    if plan.fits is False:
        kept, words = quantity(nbytes, "B"), memory_words(plan.peak_bytes, plan.machine)
        raise ValueError(f"{what} take {kept} on each device; the plan {words}, or leave precompute out")
    if not isinstance(plan.mesh, AbstractMesh):
        check_held(nbytes, f"{what}, on each device,", remedy, room_of(None, plan.mesh))
    return dataclasses.replace(plan, sources=sources) if nbytes else plan


@functools.singledispatch
def planned(points: object, setting: Setting, definition: Definition, options: Options) -> Plan:
    """The plan at points of each axis or at uniform frequencies; `nufft/` registers the one for Scattered."""
    shape, kind, inverse = setting.start.shape, definition.kind, definition.inverse
    dims, lengths = resolve(shape, definition.s, definition.axes, kind, inverse)
    if points is None:
        transform = transform_of(dims, lengths, definition.norm, inverse, kind)
        if definition.modes is not None:
            if inverse or any(matrix.becomes == "real" for matrix in transform.matrices):
                raise ValueError("modes are for forward plans of samples: make that plan, and call its plan.inverse(X)")
            transform = lowest(transform, integers(definition.modes, "modes"))
        return plan_for(setting, transform, options, evades=False)
    if definition.s is not None or definition.modes is not None or inverse or kind != "fft":
        raise ValueError("points cannot go with s, modes, kind or inverse: leave these out; the points set the size")
    check_once(dims)
    samples = entries(points, dims)
    transform = sampled(shape, dims, samples, definition.norm, options.dtype(definition.in_dtype))
    return dataclasses.replace(plan_for(setting, transform, options, evades=False), sources=samples)


def rank(plan: Plan) -> tuple[bool, float, float]:
    """By seconds; first by memory, as it is printed, if a plan does not fit."""
    large = plan.fits is False
    return large, float(f"{plan.peak_bytes:.2e}") if large else 0.0, plan.seconds or 0.0


def laid_out(shape: Sequence[int], mesh: AnyMesh | None, spec: Spec | None) -> Layout:
    shape, sizes = integers(shape, "shape"), axis_sizes(mesh)
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has a negative size: give sizes of 0 or more")
    if spec is None and len(sizes) > len(shape):
        remedy = "say with spec= which axes cut which dimension"
        raise ValueError(f"the mesh has {len(sizes)} axes, the array {len(shape)} dimensions: {remedy}")
    return from_spec(shape, sizes, tuple(sizes) if spec is None else spec)


def machines(mesh: AnyMesh | None, topology: Named | None) -> Iterator[Machine]:
    if topology is None:
        yield machine_of(mesh)
    else:
        yield from placements(named(topology), mesh)
