"""Periodic fields: an array with the plan of its spectrum, its wavenumbers, and programs for both walks.

    k_j = 2 pi j / length,   j = 0, 1, ..., -2, -1 in FFT order; along a halved dimension j = 0 ... N // 2
    k_j = pi j / length      of cosines, j = 0 ... N - 1, and of sines, j = 1 ... N; of type IV both j + 1/2

The spectrum stays in the cheapest layout. Its factors are cut like it, made in float64 on the host, and 0 in the
padding. Real arrays use half spectra. Invariant: nothing is sent between the two walks.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from ..functions.calls import Ints
from ..layout.in_flight import in_turn
from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes, line_shape, mapped_axes
from ..layout.memory import check_blocks, check_held, room_of
from ..layout.padded_array import AnyArray, AnyStored, PaddedArray, PlanePair, Transformed, mapped, stored_of
from ..layout.placement import local_slice
from ..layout.reading import mesh_here
from ..layout.storage import put, stored_on
from ..machine.chip import CompilerOptions
from ..numerics.dtypes import complex_dtype, real_dtype
from ..numerics.split_complex import join
from ..operators.matrices import HalfRoots, Roots
from ..operators.transform import integers, lengths_of, reals
from ..operators.trig import Trig
from ..plans.execute import moved
from ..plans.options import Definition
from ..plans.plan import Plan
from ..plans.planning import laid_out, planned
from ..plans.request import Setting, is_planes, read
from ..steps.problem import Options

PROGRAMS = 64  # programs kept
T = TypeVar("T")
Lengths = float | Sequence[float] | None
AxisValues = tuple[Array | np.ndarray, ...]  # one for each transformed dimension; they broadcast to the spectrum
Where = Spec | None  # cuts of an array; None if JAX shows them, or they stay


def wavenumbers(plan: Plan, lengths: Lengths = None, *, odd: bool = False) -> tuple[AnyStored, ...]:
    """The angular wavenumbers of a plan's spectrum, one array for each
    transformed dimension, which broadcast against it.

        k_j = 2 pi j / length,   j = 0, 1, ..., -2, -1 in FFT order;
                                 0 ... N // 2 along the halved dimension
        k_j = pi j / length,     j = 0 ... N - 1 of cosines, 1 ... N of sines,
                                 1/2 ... N - 1/2 of both, type IV

    Args:
        plan: a forward plan of uniform samples, of any order and of any kind
            but cosines and sines of type III.
        lengths: the period along each axis of the plan, or one for all; for
            cosines and sines the length from wall to wall; None means points
            1 apart.
        odd: whether k is 0 at the Nyquist frequency, N / 2 periods for even
            N. Use odd=True in odd functions such as 1j * k, and plain k in
            even functions such as k**2. The waves of N / 2 and -N / 2 periods
            are one on the grid, so an odd function has no value there: with
            the plain k, 1j * k is not the spectrum of a real array.

    Returns:
        Real arrays in the order of the plan's axes, each of size 1 along all
        dimensions but one, and 0 in margins; sharded as the plan's result, and
        PaddedArrays if it is one. If the plan's mesh is only described, as
        inside `jit`, they are replicated.

    Raises:
        ValueError: a plan of an inverse transform or at points; lengths that
            do not fit.
        TypeError: an argument that is not a plan; lengths that are not
            numbers.

    >>> plan = mf.plan((2, 4), kind="rfft")
    >>> box = (6.283185307179586, 6.283185307179586)
    >>> [k.tolist() for k in mf.wavenumbers(plan, box)]
    [[[0.0], [-1.0]], [[0.0, 1.0, 2.0]]]
    >>> [k.tolist() for k in mf.wavenumbers(plan, box, odd=True)]
    [[[0.0], [0.0]], [[0.0, 1.0, 0.0]]]
    """
    if not isinstance(plan, Plan):
        raise TypeError(
            f"plan is a {type(plan).__name__}: give the plan of the transform, as mf.plan(shape), which says how its "
            "spectrum is cut"
        )
    dims, real = plan.transform.dims, real_dtype(plan.dtype)
    lines = zip(dims, in_radians(plan, lengths, [odd] * len(dims)), strict=True)
    return tuple(_on_mesh(along(plan, dim, line, real), plan, dim) for dim, line in lines)


def in_radians(plan: Plan, lengths: Lengths, odd: Iterable[bool]) -> list[np.ndarray]:
    """The wavenumbers by dimension in float64, 0 at the Nyquist frequency if `odd`."""
    parts = zip(harmonics(plan), periods(plan, lengths), odd, plan.transform.matrices, strict=True)
    return [
        np.where(zero & (2 * abs(j) == n) & (not isinstance(matrix.whole, Trig)), 0, j) * (2 * np.pi / period)
        for (j, n), period, zero, matrix in parts
    ]


def harmonics(plan: Plan) -> list[tuple[np.ndarray, int]]:
    """By dimension, the harmonic j of each index, and the number of points."""
    lines = list[tuple[np.ndarray, int]]()
    for one in plan.transform.matrices:
        matrix = one.whole
        if not isinstance(matrix, Roots | HalfRoots | Trig) or (isinstance(matrix, Trig) and matrix.type == 3):
            remedy = "plan without points=, and without cosines and sines of type 3"
            raise ValueError(f"the plan has no wavenumbers: {remedy}")
        if getattr(matrix, "sign", -1) > 0:
            raise ValueError("the plan is of an inverse transform: give the forward plan, and use its plan.inverse")
        check_held(3 * 8 * matrix.rows, f"{matrix.rows} wavenumbers, and what they are made from,", "plan fewer points")
        j = np.arange(one.rows)
        if isinstance(matrix, Trig):
            first = 0.5 if matrix.type == 4 else float(matrix.family == "sin")
            lines.append((j + first, int(matrix.period)))
        else:
            n = matrix.length
            lines.append((j if matrix.becomes == "complex" else np.where(2 * j < one.rows, j, j - one.rows), n))
    return lines


def periods(plan: Plan, lengths: Lengths) -> tuple[float, ...]:
    """The period by dimension; for cosines and sines twice the length from wall to wall."""
    many = len(plan.transform.dims)
    numbers = reals([n for _, n in harmonics(plan)]) if lengths is None else of_each(lengths, many)
    if numbers is None:
        remedy = f"give a period for each axis, known before tracing, such as {(1.0,) * many}"
        raise TypeError(f"lengths is {lengths!r}: {remedy}")
    if len(numbers) != many:
        raise ValueError(f"there are {len(numbers)} lengths for {many} axes: give one for each axis")
    for length in numbers:
        if not 0 < length < math.inf:
            raise ValueError(f"length {length} is no period: give a positive number")
    if lengths is None:
        return numbers
    return tuple(n * (1 + isinstance(m.whole, Trig)) for n, m in zip(numbers, plan.transform.matrices, strict=True))


def of_each(lengths: float | Sequence[float], many: int) -> tuple[float, ...] | None:
    """A length for each axis; None if these are no numbers."""
    return one * many if (one := reals([lengths])) else reals(lengths)


def along(plan: Plan, dim: int, values: np.ndarray, dtype: DTypeLike) -> Array | np.ndarray:
    layout, width = plan.out_layout, dict(zip(plan.transform.dims, plan.margin, strict=True)).get(dim, 0)
    if width:
        values = np.pad(values.reshape(layout.parts[dim], -1), [(0, 0), (width, width)]).ravel()
    return seen(layout, dim, values.astype(dtype), plan.mesh)


def _spec_along(layout: Layout, dim: int) -> PartitionSpec:
    return PartitionSpec(*(part if d == dim else None for d, part in enumerate(layout.spec)))


def _on_mesh(line: Array | np.ndarray, plan: Plan, dim: int) -> AnyStored:
    layout, mesh = plan.out_layout, plan.mesh
    if isinstance(mesh, Mesh) and isinstance(line, np.ndarray):
        line = stored_of(stored_on(line, mesh, _spec_along(layout, dim)))
    shape = tuple(n if d == dim else 1 for d, n in enumerate(layout.shape))
    cuts = tuple(by if d == dim else () for d, by in enumerate(layout.cuts))
    return jnp.asarray(line) if layout.even else PaddedArray(jnp.asarray(line), Layout(shape, cuts), mesh)


def grids(plan: Plan, lengths: Lengths, odd: bool = False) -> tuple[Array, ...]:
    """`wavenumbers` as stored, cut like the spectrum within `jit` too."""
    mesh, lines = mesh_here(plan.mesh), tuple(map(stored_of, wavenumbers(plan, lengths, odd=odd)))
    if mesh is None or isinstance(mesh, Mesh) or mapped_axes(mesh) or not isinstance(lines[0], jax.core.Tracer):
        return lines
    specs = (_spec_along(plan.out_layout, dim) for dim in plan.transform.dims)
    return tuple(placed(line, mesh, spec) for line, spec in zip(lines, specs, strict=True))


def field(
    x: AnyArray,
    axes: Ints,
    options: Options,
    spec: Where,
    *,
    s: Ints = None,
    norm: str | None = None,
    walls: Sequence[str] = (),
) -> tuple[AnyStored, Plan]:
    """An array, with the plan of its spectrum in any order: half of it if the array is real.

    `walls`: kinds of the transforms along the first axes, which are not Fourier's.
    """
    arrays, setting, _ = read(x, spec)
    start, mesh, array = setting.start, setting.mesh, joined(arrays)
    if isinstance(mesh, AbstractMesh) and start.even and jax.typeof(stored_of(array)).sharding.mesh.empty:
        if not mapped_axes(mesh):  # a constant, whose mesh only the context shows
            array = placed(stored_of(array), mesh, start.spec)
    axes = None if axes is None else integers(axes, "axes")
    if array.ndim == 0:
        raise ValueError("the array is a single number: give one with a dimension at least")
    if axes == ():
        raise ValueError("axes is empty: give one axis at least, or None for all")
    last = "fft" if array.dtype.kind == "c" else "rfft"
    kind = (*walls, *["fft"] * (len(axes) - len(walls) - 1), last)[: len(axes)] if walls and axes else last
    # If only some mesh axes are mapped, these cut first, which not every layout allows.
    order = "natural" if mapped_axes(mesh) and mapped_axes(mesh) != set(axis_sizes(mesh)) else "any"
    setting = Setting(laid_out(start.shape, mesh, start.spec), mesh, setting.machine, array.dtype)
    definition = Definition(lengths_of(s), axes, norm=norm, kind=kind)
    return array, planned(None, setting, definition, options._replace(order=order).planned)


def check_all_mapped(mesh: AnyMesh | None, layout: Layout, what: str) -> None:
    mapped = mapped_axes(mesh)
    if mapped and (others := layout.mesh_axes - mapped):
        remedy = f"map {', '.join(sorted(others))} too, or call it outside of shard_map"
        raise NotImplementedError(f"{what} need a shard_map that maps all mesh axes of the array: {remedy}")


def seen(layout: Layout, dim: int, values: np.ndarray, mesh: AnyMesh | None) -> Array | np.ndarray:
    """Values along a dimension, as a layout stores them here."""
    indices = np.minimum(layout.positions(dim), max(len(values) - 1, 0))
    line = np.where(layout.logical(dim), values[indices], 0).astype(values.dtype)
    line = line.reshape(line_shape(dim, layout.ndim))
    return local_slice(line, dim, layout.cuts[dim], mapped_axes(mesh_here(mesh)))


def placed(x: Array, mesh: AnyMesh, spec: PartitionSpec) -> Array:
    sharding = NamedSharding(mesh, spec)
    if isinstance(mesh, Mesh):  # gradients stay on the mesh: inside `jit` no array may be elsewhere
        return jax.device_put(x, sharding, src=sharding) if isinstance(x, jax.core.Tracer) else put(x, sharding)
    place = jax.reshard if AxisType.Explicit in mesh.axis_types else jax.lax.with_sharding_constraint
    y: Array = place(x, sharding)
    return y


def joined(arrays: tuple[AnyStored, ...]) -> AnyStored:
    if len(arrays) == 1:
        return arrays[0]
    real = real_dtype(complex_dtype(arrays[0].dtype, None))
    return mapped(lambda *planes: join(tuple(plane.astype(real) for plane in planes)), *arrays)


def back(plan: Plan, function: Callable[..., Array], *spectra: AnyStored) -> AnyStored:
    return plan.inverse(mapped(function, *spectra))


def returned(y: AnyStored, x: AnyArray, options: Options, spec: Where) -> Transformed:
    return moved(PlanePair(y.real, y.imag) if is_planes(x) and len(x) == 2 else y, options.out_spec, spec)


def in_one(work: Callable[..., T], plan: Plan, *values: object, beside: int = 0) -> T:
    """work(plan, *values) as one program, so that JAX finds the devices of constants, under `grad` too.

    `beside`: bytes of its largest array besides blocks of samples and of the spectrum.
    """
    leaves = jax.tree.leaves(values)
    check_blocks(plan.out_layout, real_dtype(plan.dtype).itemsize, room_of(leaves[0], plan.mesh), "the spectrum")
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, plain=False, beside=beside)
    result: T = in_turn(_program(work, () if traced else options), values, plan)
    return result


@functools.lru_cache(maxsize=PROGRAMS)
def _program(work: Callable[..., T], options: CompilerOptions) -> Callable[..., T]:
    """`work` compiled with options, which JAX takes only for the outermost program."""
    named = dict(options) or None
    return jax.jit(lambda values, plan: work(plan, *values), static_argnums=1, compiler_options=named)
