"""The problem of a transform at scattered points: image, points, devices and options, checked."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh

from ..collectives.levels import Wires
from ..layout.layout import AnyMesh, Cut, Layout, Spec, axis_sizes, from_spec, mapped_axes
from ..layout.padded_array import stored_of
from ..layout.placement import varies_over
from ..layout.storage import stored_on
from ..machine.machine import Machine
from ..numerics.dtypes import Dot, real_dtype
from ..operators.operands import OperandSource
from ..operators.transform import Transform, check_known, check_once, dims_of, factor, is_integer
from ..plans.request import Request, Setting
from ..steps.problem import Options
from ..walks.choice import recut
from ..walks.walk import Walk
from .points import Scattered, known_kind

ORIGINS = ("corner", "centre")


class ScatteredProblem(NamedTuple):
    """Hashable if the points are."""

    start: Layout  # of the image, with batch dimensions
    dims: tuple[int, ...]
    points: Scattered
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    dots: tuple[Dot, ...]
    tol: float = 1e-6
    sigma: float | None = None
    options: Options = Options(order="any")
    norm: str | None = None
    origin: str = "corner"
    slack: int = 0
    balance: bool | None = None  # crowded owners lend tiles; by default with separate memories
    values: Layout | None = None  # of the caller's values, with batch dimensions
    capacity: float | None = None  # for traced points: slots of PointExchange over the mean, without the spare ones
    order: tuple[int, ...] = ()  # of dims among those given; () if they are as given

    @property
    def method(self) -> str:
        return self.options.method

    @property
    def wires(self) -> Wires:
        return self.options.wires(real_dtype(self.dtype), self.machine.chip)

    @property
    def modes(self) -> tuple[int, ...]:
        return tuple(self.start.shape[d] for d in self.dims)

    @property
    def middles(self) -> tuple[int, ...]:
        """Distance from the samples' origin to that of the phase shift, by dimension."""
        return tuple(0 if self.origin == "centre" else n // 2 for n in self.modes)

    @property
    def scale(self) -> float:
        return factor(math.prod(self.modes), self.norm, False)

    @property
    def batch(self) -> Layout:
        return self.start.without(self.dims)

    @property
    def at_points(self) -> Layout | None:
        values = self.values
        return None if values is None else values.along(range(values.ndim - len(self.points.shape), values.ndim))

    def parts(self, walk: Walk, sources: tuple[OperandSource | None, ...]) -> tuple[Any, ...]:
        how = (self.mesh, self.dtype, self.options, self.machine, self.dots)
        return walk, Transform((), (), walk.scale), *how, sources


def products(setting: Setting, options: Options) -> tuple[np.dtype, tuple[Dot, ...]]:
    """Raises ValueError for float64 on a TPU, whose kernels have none."""
    dtype, chip = options.dtype(setting.dtype), setting.machine.chip
    if chip.unit and dtype.itemsize == 16 and options.method != "kdft":
        remedy = "sum by slices, with mf.kdftn(image, points), mf.plan(shape, points=points) or method='kdft'"
        raise ValueError(f"{chip.name} spreads no points in float64: {remedy}; or use precision='float32'")
    return dtype, options.dots(setting.dtype, chip)


def problem_of(
    setting: Setting,
    points: Scattered,
    axes: Sequence[int] | None,
    options: Options,
    sizes: tuple[int, ...] | None = None,
    **what: Any,
) -> ScatteredProblem:
    """`setting` is that of the image or, with the `sizes` of an image, that of values at the points."""
    precise, mesh, spec, points = products(setting, options), setting.mesh, options.out_spec, known_kind(points).settled
    start = setting.start if sizes is None else _image_layout(setting, points, sizes, axes, spec)
    dims = _transformed(start.ndim, axes, points)
    order = tuple(map(int, np.argsort(dims)))
    plain = {name: plain_number(value) for name, value in what.items()}
    place = (start, tuple(sorted(dims)), ordered(points, order), mesh, setting.machine)
    problem = ScatteredProblem(*place, *precise, options=options.planned, order=order, **plain)
    _check(problem)
    if sizes is not None:
        return problem._replace(values=setting.start)
    if spec is None:
        return problem
    natural = problem.batch + points_layout(points.shape, cuts_along(problem.start, problem.dims), mesh)
    return problem._replace(values=recut(natural, spec, axis_sizes(mesh), start))


def ordered(points: Scattered, order: Sequence[int]) -> Scattered:
    """The points with their coordinates in another order."""
    if list(order) == sorted(order):
        return points
    return jax.tree.map(lambda leaf: leaf[..., np.array(order)], points)


def plain_number(value: Any) -> Any:
    """A Python number for a NumPy or JAX scalar; anything else unchanged."""
    numeric = isinstance(value, np.generic | np.ndarray | Array) and not isinstance(value, Tracer)
    return value.item() if numeric and value.ndim == 0 else value


def _transformed(ndim: int, axes: Sequence[int] | None, points: Scattered) -> tuple[int, ...]:
    """The dimensions of an image that the points' coordinates belong to, in their order."""
    dims = dims_of(ndim, tuple(range(-min(points.dims, ndim), 0)) if axes is None else axes)
    check_once(dims, "name one dimension for each coordinate")
    if len(dims) != points.dims:
        turned = "; did you mean points.T?" if points.coords.shape[0] == len(dims) else ""
        other = "" if axes is None else f", or name {points.dims} axes"
        each = f"each of the {len(dims)} transformed dimensions" if len(dims) > 1 else "the transformed dimension"
        raise ValueError(
            f"points have shape {tuple(points.coords.shape)}: give (..., {len(dims)}), a coordinate for {each}"
            f"{other}{turned}"
        )
    return dims


def _check(problem: ScatteredProblem) -> None:
    check_known("origin", problem.origin, ORIGINS)
    slack, capacity, points = problem.slack, problem.capacity, problem.points
    if not is_integer(slack) or slack < 0:
        raise ValueError(f"slack is {slack!r}: give cells of the fine grid by which points may move, 0 or more")
    if capacity is not None:
        if points.known:
            raise ValueError("capacity is for points that JAX traces, and these are placed on the host: drop capacity=")
        if not isinstance(capacity, int | float) or not 0 < capacity < math.inf:
            raise ValueError(f"capacity is {capacity!r}: give slots in multiples of the mean, as 1.5")
    if problem.balance not in (None, True, False):
        raise ValueError(f"balance is {problem.balance!r}: give True, False or None")
    if 0 in problem.start.shape:
        raise ValueError(f"shape {problem.start.shape} has a size of 0: give images with samples")
    check_alike(points, problem.start)
    if points.log_radius is not None:
        if problem.method != "kdft":
            raise ValueError("points off the unit circle have no fine grid: use method='kdft', or mf.kdftn")
        points.check_range(problem.modes, real_dtype(problem.dtype))
    factor(1, problem.norm, False)


def check_alike(points: Scattered, start: Layout) -> None:
    varying = varies_over(points.coords) & start.mesh_axes if isinstance(points.coords, Tracer) else None
    if varying:
        raise ValueError(
            f"points differ along the mesh axes {sorted(varying)}, which cut the image inside shard_map: give all "
            "points to every device, by P() in in_specs"
        )


def points_layout(shape: tuple[int, ...], cuts: Sequence[Cut], mesh: AnyMesh | None, ordered: bool = False) -> Layout:
    """Points cut by mesh axes, each along the first dimension that it divides; all along the first if one divides none.

    With `ordered`, axes are in the mesh's order. Axes that a caller's shard_map maps are first.
    """
    mapped, rank = mapped_axes(mesh), list(axis_sizes(mesh))
    cuts = sorted(cuts, key=lambda cut: (cut.axis not in mapped, rank.index(cut.axis) if ordered else 0))
    uncut = layout = Layout(shape, ((),) * len(shape))
    for cut in cuts:
        dim = next((dim for dim, block in enumerate(layout.block) if block % cut.parts == 0), None)
        if dim is None:
            return uncut.cut_by(0, cuts)
        layout = layout.cut_by(dim, (*layout.cuts[dim], cut))
    return layout


def cuts_along(layout: Layout, dims: Sequence[int]) -> list[Cut]:
    return [cut for dim in dims for cut in layout.cuts[dim]]


def _image_layout(
    setting: Setting, points: Scattered, sizes: tuple[int, ...], axes: Sequence[int] | None, out_spec: Spec | None
) -> Layout:
    values = setting.start
    rest = values.ndim - len(points.shape)
    if rest < 0 or values.shape[rest:] != points.shape:
        raise ValueError(
            f"the values have shape {values.shape} and the points {points.shape}: give one for each point, with batch "
            "dimensions before them"
        )
    if len(sizes) != points.dims or min(sizes) < 1:
        raise ValueError(f"shape {sizes} is for {len(sizes)} dimensions: give {points.dims} sizes of 1 or more")
    dims = _transformed(rest + len(sizes), axes, points)
    image = values.along(range(rest))
    for dim, size in sorted(zip(dims, sizes, strict=True)):
        image = image.insert(dim, size, ())
    if out_spec is not None:
        over = axis_sizes(setting.mesh)
        return from_spec(image.shape, over, out_spec) if over else recut(image, out_spec, over, values)
    for cut in cuts_along(values, range(rest, values.ndim)):  # evenly if possible, the least cut dimension first
        *_, dim = min((image.shape[dim] % (image.parts[dim] * cut.parts) != 0, image.parts[dim], dim) for dim in dims)
        image = image.cut_by(dim, (*image.cuts[dim], cut))
    return image


def brought(request: Request, layout: Layout) -> Request:
    setting = request.setting
    if setting.start == layout:
        return request
    mesh = setting.mesh
    if not isinstance(mesh, Mesh):  # JAX puts no array on a mesh that is only described
        recut(setting.start, layout.spec, axis_sizes(mesh), setting.start)
        raise ValueError(f"the values are cut as {setting.start.spec}: give them as {layout.spec}")
    arrays = tuple(stored_on(stored_of(x), mesh, layout.spec) for x in request.arrays)
    return request._replace(arrays=arrays, setting=dataclasses.replace(setting, start=layout))
