"""Out of core: a transform in passes over the disk, each of some dimensions, one tile at a time.

    pass 1   fft Y, Z   of tiles of A[X_p, Y, Z]     read from the source, written to a file
    pass 2   fft X      of tiles of A[X, Y'_p, Z']   read from there, written to the result

A tile has its own plan for the available devices. Tiles act as devices, one at a time: a layout over a mesh of tiles
has their positions, and a file written in one layout and read in another redistributes. Invariant: the devices' peak
for a tile, plus the host's copies of incoming and outgoing tiles, are within the budget.
"""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from ..layout.layout import AnyMesh, Cut, Layout, axis_sizes
from ..numerics.dtypes import Precision
from ..numerics.split_complex import Shape
from ..operators.transform import FOURIER, becomes, integer, integers, natural_dtype, resolve, transform_of
from ..plans.plan import Plan
from ..plans.planning import plan
from .tiles import Pass, Passes, budget_for, buffer_bytes, covered, held_bytes, runs

AXES = "pqrstuvw"  # of a mesh of tiles; no more dimensions can be cut
Steps = tuple[Pass, ...]


def passes(
    shape: Sequence[int],
    *,
    budget: int,
    device_budget: int | None = None,
    mesh: AnyMesh | None = None,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    norm: str | None = None,
    kind: str = "fft",
    method: str = "auto",
    inverse: bool = False,
    precision: Precision = None,
    chunk: Sequence[int] | None = None,
    fortran: bool = False,
) -> Passes:
    """Plans a transform of an array of any size in passes whose tiles fit and
    which move the fewest bytes.

        peak of a process = a tile that is read + one that is written
                            + devices x Plan.peak_bytes + buffers   <= budget

    Args:
        shape: logical shape of the array.
        budget: the limit of that peak, in bytes; JAX, Python and compiled
            programs are not counted.
        device_budget: bytes that each device may hold, if devices have
            separate memories; `budget` is then the host's.
        mesh: mesh of the devices of one process, concrete or abstract; it cuts
            the longest dimension that a pass does not transform.
        s, axes, dtype, norm, kind, method, inverse, precision: as `plan`;
            dtype is that of the source.
        chunk: the chunks of the source, each read once if the budget allows.
        fortran: whether the first dimension of the source is contiguous
            (`Source.fortran`), as in NIfTI files; tiles then cut the last.

    Returns:
        Passes: print them; `meshfft.out_of_core.run_passes` runs them.

    Raises:
        ValueError, TypeError: as `plan`; a single line that does not fit,
            with the budget that it needs.

    >>> made = mf.passes((4096, 4096, 4096), budget=2**34)
    >>> len(made.steps)
    2
    """
    sizes, unit = _checked(shape, chunk, budget=budget, device_budget=device_budget)
    dims, lengths = resolve(sizes, s, axes, kind, inverse)
    transform = transform_of(dims, lengths, norm, inverse, kind)
    points, onto = dict(zip(dims, lengths, strict=True)), becomes(kind, inverse)
    how = {"norm": norm, "inverse": inverse, "method": method, "precision": precision, "mesh": mesh}
    steps = _Search(points, kind, onto, how, budget, device_budget, unit, fortran).steps(sizes, dtype)
    return Passes(steps, transform, budget, device_budget)


def _checked(shape: Sequence[int], chunk: Sequence[int] | None, **budgets: int | None) -> tuple[Shape, Shape]:
    sizes = integers(shape, "shape")
    if min(sizes, default=0) <= 0:
        raise ValueError(f"shape {sizes} holds nothing: give sizes of at least 1")
    for name, value in budgets.items():
        if (value is not None or name == "budget") and integer(value, name) <= 0:
            raise ValueError(f"{name} is {value!r}: give a positive number of bytes")
    unit = (1,) * len(sizes) if chunk is None else integers(chunk, "chunk")
    if len(unit) != len(sizes) or min(unit) <= 0:
        raise ValueError(f"chunk {unit} is none of an array of shape {sizes}: give a positive size for each dimension")
    return sizes, tuple(map(min, unit, sizes))


@dataclasses.dataclass(frozen=True)
class _Search:
    """Arguments of `passes`. A pass's dimensions are a tuple; None is a pass that only copies."""

    points: dict[int, int]
    kind: str
    onto: str | None
    how: dict[str, Any]
    budget: int
    device_budget: int | None
    chunk: Shape
    fortran: bool
    known: dict[object, Layout | None] = dataclasses.field(default_factory=dict)

    def steps(self, shape: Shape, given: DTypeLike | None) -> Steps:
        """The passes that move the fewest bytes, then in the fewest contiguous runs. More passes pay if fewer would
        read chunks of the source several times."""
        dtype = np.dtype(
            given or {"complex": "float32", "real": "complex64"}.get(self.onto or "", natural_dtype(self.kind))
        )
        if self.onto == "complex" and dtype.kind == "c":
            raise TypeError(f"kind {self.kind!r} transforms real numbers, the array is {dtype}: use kind='fft'")
        ways = list[Steps]()
        for many in range(min(1, len(self.points)), len(self.points) + 1):
            orders = itertools.chain(*map(self._orders, partitions(tuple(self.points), many) if many else [((),)]))
            ways += [steps for order in orders if (steps := self._passes(order, shape, dtype))]
            if any(covered(steps[0].before, self.chunk) == math.prod(shape) for steps in ways):
                break
        else:
            copied = [(None, *(step.dims for step in steps)) for steps in ways]
            ways += [steps for order in copied if (steps := self._passes(order, shape, dtype))]
        if not ways:
            raise ValueError(self._too_long(shape, dtype))
        return tuple(self._with_plans(step) for step in min(ways, key=self._cost))

    def _with_plans(self, step: Pass) -> Pass:
        if not step.plans:
            return step
        sides = ({int(count) for count in step.before.counts(dim)} for dim in range(step.before.ndim))
        blocks = sorted(itertools.product(*sides), reverse=True)
        return dataclasses.replace(step, plans=tuple(self._plan(step.dims, step.dtype, block) for block in blocks))

    def _orders(self, sets: Sequence[Shape]) -> list[tuple[Shape, ...]]:
        """The usual order, or all if the source has chunks or Fortran order; real lines keep their place."""
        usual = self._ordered(sets)
        fixed = {None: slice(0), "complex": slice(0, 1), "real": slice(-1, None)}[self.onto]
        orders = itertools.permutations(usual) if self.fortran or math.prod(self.chunk) > 1 else [usual]
        return [order for order in orders if order[fixed] == usual[fixed]]

    def _ordered(self, sets: Sequence[Shape]) -> tuple[Shape, ...]:
        """Inner dimensions first, so that outer ones are cut; real lines become complex first, real last."""
        last, rank = tuple(self.points)[-1:], {None: 0, "complex": -1, "real": 1}[self.onto]
        ordered = sorted(sets, key=lambda dims: (rank * (last[0] in dims), -max(dims))) if last else sets
        return tuple(tuple(sorted(dims, key=lambda dim: (dim in last, dim))) for dims in ordered)

    def _passes(self, order: Sequence[Shape | None], shape: Shape, dtype: np.dtype) -> Steps:
        steps, chunk = list[Pass](), self.chunk
        for dims in order:
            before = self._cut(dims, shape, dtype, chunk, self.fortran and not steps)
            if before is None:
                return ()
            plans = () if dims is None else (self._plan(dims, dtype, before.block),)
            steps.append(Pass(dims or (), before, dtype, plans, chunk))
            shape, dtype, chunk = steps[-1].after.shape, steps[-1].out_dtype, (1,) * len(shape)
        free = 1 if math.prod(self.chunk) > 1 else 0  # the first pass keeps its multiples of chunks
        layouts = alike([step.before for step in steps[free:]])  # successive passes overlap in large boxes
        rest = zip(steps[free:], layouts, strict=True)
        return (*steps[:free], *(dataclasses.replace(step, before=before) for step, before in rest))

    def _cut(self, dims: Shape | None, shape: Shape, dtype: np.dtype, chunk: Shape, fortran: bool) -> Layout | None:
        buffers = buffer_bytes(self.budget, math.prod(chunk) * dtype.itemsize)

        def fits(block: Shape) -> bool:
            if dims is None:
                return 2 * math.prod(block) * dtype.itemsize + buffers <= self.budget
            made = self._plan(dims, dtype, block)
            fits = self.device_budget is None or made.peak_bytes <= self.device_budget
            return fits and held_bytes(made, dtype, self.device_budget is None) + buffers <= self.budget

        key = (dims, shape, dtype, chunk, fortran)
        if key not in self.known:
            layout = cut(shape, dims or (), fits, chunk, strict=True, fortran=fortran)
            self.known[key] = layout or (None if dims is None else cut(shape, dims, fits, chunk, fortran=fortran))
        return self.known[key]

    def _cost(self, steps: Steps) -> tuple[int, int, int]:
        """Bytes read and written; runs of source and result (in C order); runs of the source."""
        first = runs(steps[0].before, fortran=self.fortran)
        return sum(step.read_bytes + step.written_bytes for step in steps), first + runs(steps[-1].after), first

    def _plan(self, dims: Shape, dtype: np.dtype, block: Shape) -> Plan:
        """In a real transform, dimensions other than the real one are complex. All mesh axes cut the longest other
        dimension, if it is long enough."""
        half, mesh = self.kind in FOURIER and tuple(self.points)[-1:] != dims[-1:], axis_sizes(self.how["mesh"])
        devices = math.prod(mesh.values())
        longest = max(range(len(block)), key=lambda dim: (dim not in dims and block[dim] >= devices, block[dim]))
        spec = tuple(tuple(mesh) if dim == longest else None for dim in range(len(block))) if mesh else None
        kind, lengths = "fft" if half else self.kind, [self.points[dim] for dim in dims]
        return plan(block, spec=spec, s=lengths, axes=dims, kind=kind, dtype=dtype, order="any", **self.how)

    def _too_long(self, shape: Shape, dtype: np.dtype) -> str:
        plans, held, chunk_bytes = dict[int, Plan](), dict[int, int](), math.prod(self.chunk) * dtype.itemsize
        for (dim,) in self._ordered([(dim,) for dim in self.points]):
            plans[dim] = self._plan((dim,), dtype, tuple(n if d == dim else 1 for d, n in enumerate(shape)))
            held[dim], dtype = held_bytes(plans[dim], dtype, self.device_budget is None), plans[dim].out_dtype
        name, given, taken = "budget", self.budget, held
        if self.device_budget is not None and max(one.peak_bytes for one in plans.values()) > self.device_budget:
            name, given, taken = "device_budget", self.device_budget, {d: one.peak_bytes for d, one in plans.items()}
        dim = max(taken, key=taken.__getitem__)
        takes = taken[dim]
        needs = budget_for(takes, chunk_bytes) if name == "budget" else takes
        what = f"a line of {self.points[dim]} points along dimension {dim} takes {takes} bytes with its copies"
        what += f", and the source has chunks of {chunk_bytes} bytes" * (math.prod(self.chunk) > 1)
        narrower = ", or precision='float32'" if plans[dim].dtype == np.complex128 else ""
        return f"{what}, {name} is {given}: give at least {needs}{narrower}"


def partitions(items: Shape, many: int) -> Iterator[tuple[Shape, ...]]:
    if not items:
        if many == 0:
            yield ()
        return
    first, rest = items[0], items[1:]
    for sets in partitions(rest, many):
        for j, one in enumerate(sets):
            yield (*sets[:j], (first, *one), *sets[j + 1 :])
    if many > 0:
        for sets in partitions(rest, many - 1):
            yield ((first,), *sets)


def cut(
    shape: Shape,
    uncut: Sequence[int],
    fits: Callable[[Shape], bool],
    unit: Shape,
    *,
    strict: bool = False,
    fortran: bool = False,
) -> Layout | None:
    """The layout with blocks that fit and fewest cut dimensions, none of `uncut`; None if none fits.

    Several dimensions are cut into similar numbers of parts, so that successive passes overlap in large boxes. Ties go
    to the longest runs, then to fewest parts. Block sides are multiples of `unit`, or shorter unless `strict`.
    """
    free = [d for d in range(len(shape)) if d not in uncut and shape[d] > 1]
    for many in range(min(len(free), len(AXES)) + 1):
        ways = (_cut(shape, dims, fits, unit, strict) for dims in itertools.combinations(free, many))
        if layouts := [layout for layout in ways if layout is not None]:
            return min(layouts, key=lambda layout: (runs(layout, fortran=fortran), math.prod(layout.parts)))
    return None


def alike(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """All layouts, recut to the smallest block along each cut dimension."""
    blocks = [{d: one.block[d] for d in range(one.ndim) if one.parts[d] > 1} for one in layouts]
    smallest = {d: min(block[d] for block in blocks if d in block) for d in itertools.chain(*blocks)}
    return tuple(_of_blocks(one.shape, {d: smallest[d] for d in of}) for one, of in zip(layouts, blocks, strict=True))


def least(most: int, right: Callable[[int], bool]) -> int:
    """The smallest number for which `right`, monotonic and true for `most`, holds."""
    return bisect.bisect_left(range(1, most), True, key=right) + 1


def _cut(shape: Shape, dims: Shape, fits: Callable[[Shape], bool], unit: Shape, strict: bool) -> Layout | None:
    def fitting(parts: Sequence[int]) -> Layout | None:
        sides = {d: -(-shape[d] // min(p, shape[d])) for d, p in zip(dims, parts, strict=True)}
        units = {d: n // unit[d] * unit[d] or (unit[d] if strict else n) for d, n in sides.items()}
        layout = _of_blocks(shape, units)
        return layout if fits(layout.block) else None

    longest = max((shape[d] for d in dims), default=1)
    if fitting([longest] * len(dims)) is None:
        return None
    parts = [least(longest, lambda p: fitting([p] * len(dims)) is not None)] * len(dims)
    for j in range(len(dims)):
        parts[j] = least(parts[j], lambda p, j=j: fitting([*parts[:j], p, *parts[j + 1 :]]) is not None)  # type: ignore[misc]
    return fitting(parts)


def _of_blocks(shape: Shape, blocks: dict[int, int]) -> Layout:
    counts = {dim: -(-shape[dim] // block) for dim, block in blocks.items() if block < shape[dim]}
    cuts = {dim: (Cut(name, counts[dim], blocks[dim]),) for dim, name in zip(counts, AXES, strict=False)}
    return Layout(shape, tuple(cuts.get(dim, ()) for dim in range(len(shape))))
