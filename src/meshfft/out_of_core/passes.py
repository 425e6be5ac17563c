"""Out of core: a transform in passes over the store, each of some dimensions, a piece at a time.

    pass 1   fft Y, Z   of pieces of A[X_p, Y, Z]     read from the source, written to a store
    pass 2   fft X      of pieces of A[X, Y'_p, Z']   read from there, written to the result

A piece is an array of its own, and its plan one for the devices there are. Host integers only. Invariant: of every
piece, what the devices hold at their peak and the host's copies of what comes and goes are within the budget.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import DTypeLike

from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes
from ..operators.transform import FOURIER, integer, integers, natural_dtype, resolve, transform_of, turns
from ..plans.plan import Plan
from ..plans.planning import plan
from .budget import buffer_bytes, host_bytes, least_budget, peak_bytes
from .partition import Shape, alike, covered, cut, partitions, runs
from .pieces import Pass, Passes


def passes(
    shape: Sequence[int],
    *,
    budget: int,
    device_budget: int | None = None,
    mesh: AnyMesh | None = None,
    spec: Spec | None = None,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    norm: str | None = None,
    kind: str = "fft",
    method: str = "auto",
    inverse: bool = False,
    precision: str | None = None,
    chunk: Sequence[int] | None = None,
) -> Passes:
    """Plans a transform of an array of any size in the fewest passes whose pieces fit, without an array or a device.

        peak of a process = a piece as it comes + one as it goes + devices x Plan.peak_bytes + buffers   <= budget

    Args:
        shape: logical shape of the array.
        budget: bytes that a process may hold of the array, in every copy and buffer; what JAX, Python and compiled
            programs take, whatever the array, is not counted.
        device_budget: bytes that each device may hold, where devices have memory of their own; the budget is then that
            of the host, for the copies alone.
        mesh: a mesh of the devices of one process, concrete or abstract; None for one device.
        spec: how each piece is cut on the mesh; by default along the longest dimension that the pass leaves alone.
        s, axes, dtype, norm, kind, method, inverse, precision: as `plan`; dtype is the one that the source has.
        chunk: the shape of the chunks that the source is stored in, if it is: the first pass is chosen, and cut, so
            that each is read once where the budget allows.

    Returns:
        Passes: print them; `meshfft.files.run_passes` runs them.

    Raises:
        ValueError, TypeError: as `plan`; a line that does not fit by itself, with the budget that it needs.
    """
    shape = _checked(shape, budget=budget, device_budget=device_budget)
    dims, lengths = resolve(shape, s, axes, kind, inverse)
    transform = transform_of(dims, lengths, norm, inverse, kind)
    number = np.dtype(dtype or natural_dtype(kind))
    real = f"kind {kind!r} transforms real numbers, the array is {number}: use kind='fft'"
    if turns(kind, inverse) == "complex" and number.kind == "c":
        raise TypeError(real)
    rows = dict(zip(dims, transform.lengths, strict=True))
    how = {"norm": norm, "inverse": inverse, "method": method, "precision": precision}
    unit = None if chunk is None else _chunk(shape, chunk)
    task = _Task(dict(zip(dims, lengths, strict=True)), rows, kind, how, mesh, spec, budget, device_budget, unit, {})
    return Passes(task.steps(shape, number), transform, budget, device_budget)


def _checked(shape: Sequence[int], **budgets: int | None) -> Shape:
    sizes = integers(shape, "shape")
    if not min(sizes, default=0) > 0:
        raise ValueError(f"shape {sizes} holds nothing: give sizes of at least 1")
    for name, value in budgets.items():
        if value is not None and not integer(value, name) > 0:
            raise ValueError(f"{name} is {value!r}: give a positive number of bytes")
    return sizes


def _chunk(shape: Shape, chunk: Sequence[int]) -> Shape:
    sizes = integers(chunk, "chunk")
    right = len(sizes) == len(shape) and min(sizes) > 0
    if not right:
        raise ValueError(
            f"chunk {sizes} is none of an array of shape {shape}: give a size of at least 1 for each dimension"
        )
    return tuple(map(min, sizes, shape))


class _Task(NamedTuple):
    """What `passes` was asked: points and results of each dimension, and how a piece is to be planned."""

    lengths: dict[int, int]
    rows: dict[int, int]
    kind: str
    how: dict[str, Any]
    mesh: AnyMesh | None
    spec: Spec | None
    budget: int
    device_budget: int | None
    chunk: Shape | None
    known: dict[tuple[Shape, Shape, np.dtype, Shape | None], Layout | None]

    def steps(self, shape: Shape, dtype: np.dtype) -> tuple[Pass, ...]:
        """The passes that move the fewest bytes; of those, the ones whose pieces lie in the fewest places.

        A pass more is worth its bytes only where fewer would read chunks of the source several times; it may be one
        that does nothing else than to read each once.
        """
        dims, found = tuple(self.lengths), list[tuple[Pass, ...]]()
        for many in range(min(1, len(dims)), len(dims) + 1):
            ways = partitions(dims, many) if dims else [((),)]
            orders = itertools.chain(*map(self._orders, ways))
            found += [steps for groups in orders if (steps := self._passes(groups, shape, dtype))]
            if any(self._read(steps) == math.prod(shape) for steps in found):
                break
        else:
            copied: list[list[Shape]] = [[(), *(step.dims for step in steps)] for steps in found]
            found += [steps for groups in copied if (steps := self._passes(groups, shape, dtype))]
        if not found:
            raise ValueError(self._too_long(shape, dtype))
        best = min(found, key=lambda steps: (_moved(steps), *_places(steps)))
        return tuple(map(self._complete, best))

    def _orders(self, groups: Sequence[Shape]) -> Iterator[list[Shape]]:
        """The usual order; where the source has chunks all others too, a real transform's turn kept in its place."""
        usual = self._ordered(groups)
        yield usual
        turn = turns(self.kind, self.how["inverse"])
        fixed = {None: slice(0), "complex": slice(0, 1), "real": slice(-1, None)}[turn]
        others = itertools.permutations(usual) if self.chunk is not None else ()
        yield from (list(order) for order in others if list(order)[fixed] == usual[fixed] and list(order) != usual)

    def _ordered(self, groups: Sequence[Shape]) -> list[Shape]:
        """Inner dimensions first, as outer ones are cut then; but real lines become complex first, and real last."""
        last, turn = tuple(self.lengths)[-1:], turns(self.kind, self.how["inverse"])
        rank = {None: 0, "complex": -1, "real": 1}[turn]
        ordered = sorted(groups, key=lambda group: (rank * (last[0] in group), -max(group))) if last else groups
        return [tuple(sorted(group, key=lambda dim: (dim in last, dim))) for group in ordered]

    def _passes(self, groups: Sequence[Shape], shape: Shape, dtype: np.dtype) -> tuple[Pass, ...]:
        """A pass for each group of dimensions, a copy for none; no passes where the pieces of one cannot fit."""
        steps: list[Pass] = []
        for group in groups:
            chunk = None if steps else self.chunk
            before = self._cut(group, shape, dtype, chunk)
            if before is None:
                return ()
            plans = () if self._copies(group) else (self._plan(group, dtype, before.block),)
            steps.append(Pass(group, before, self._after(group, before), dtype, plans, chunk))
            shape, dtype = steps[-1].after.shape, steps[-1].out_dtype
        return self._alike(steps)

    def _alike(self, steps: list[Pass]) -> tuple[Pass, ...]:
        """The passes with blocks of one extent along each dimension, so that boxes between them are large."""
        free = 0 if self.chunk is None else 1  # the first keeps its whole chunks
        layouts = (*(step.before for step in steps[:free]), *alike([step.before for step in steps[free:]]))
        after = (self._after(step.dims, layout) for step, layout in zip(steps, layouts, strict=True))
        cuts = zip(steps, layouts, after, strict=True)
        return tuple(dataclasses.replace(step, before=before, after=after) for step, before, after in cuts)

    def _read(self, steps: tuple[Pass, ...]) -> int:
        """How many positions the first pass reads."""
        return covered(steps[0].before, self.chunk or (1,) * steps[0].before.ndim)

    def _cut(self, group: Shape, shape: Shape, dtype: np.dtype, chunk: Shape | None) -> Layout | None:
        """The layout for a group of dimensions, sought once."""
        key = (group, shape, dtype, chunk)
        if key not in self.known:
            nbytes = math.prod(chunk or ()) * dtype.itemsize
            fits = functools.partial(self._fits, group, dtype, buffer_bytes(self.budget, nbytes))
            found = cut(shape, group, fits, chunk, strict=True)
            self.known[key] = found or (None if self._copies(group) else cut(shape, group, fits, chunk))
        return self.known[key]

    def _copies(self, group: Shape) -> bool:
        """Whether a pass of these dimensions is one that only copies."""
        return not group and bool(self.lengths)

    def _fits(self, group: Shape, dtype: np.dtype, buffers: int, block: Shape) -> bool:
        if self._copies(group):
            return 2 * math.prod(block) * dtype.itemsize + buffers <= self.budget
        made = self._plan(group, dtype, block)
        fits = self.device_budget is None or made.peak_bytes <= self.device_budget
        return fits and self._host_bytes(made, dtype) + buffers <= self.budget

    def _plan(self, group: Shape, dtype: np.dtype, block: Shape) -> Plan:
        """The plan of a piece. The half dimension makes a pass real; others are complex dimensions then."""
        half = self.kind in FOURIER and tuple(self.lengths)[-1:] != group[-1:]
        lengths, spec = [self.lengths[dim] for dim in group], self._spec(group, block)
        what = {"s": lengths, "axes": group, "kind": "fft" if half else self.kind, "dtype": dtype, **self.how}
        return plan(block, mesh=self.mesh, spec=spec, order="any", **what)

    def _spec(self, group: Shape, block: Shape) -> Spec | None:
        """All mesh axes cut the longest dimension that stays as it is, if it is long enough."""
        if self.spec is not None or self.mesh is None:
            return self.spec
        axes = axis_sizes(self.mesh)
        longest = max(range(len(block)), key=lambda dim: (dim not in group and block[dim] >= self.devices, block[dim]))
        return tuple(tuple(axes) if dim == longest else None for dim in range(len(block)))

    def _complete(self, step: Pass) -> Pass:
        """The pass with a plan for each shape of its pieces: the last of a dimension may be smaller."""
        if step.copies:
            return step
        sides = ({int(count) for count in step.before.counts(dim)} for dim in range(step.before.ndim))
        shapes = sorted(itertools.product(*sides), reverse=True)
        plans = tuple(self._plan(step.dims, step.dtype, shape) for shape in shapes)
        return dataclasses.replace(step, plans=plans)

    def _after(self, group: Shape, layout: Layout) -> Layout:
        for dim in group:
            layout = layout.resize(dim, self.rows[dim])
        return layout

    def _too_long(self, shape: Shape, dtype: np.dtype) -> str:
        """Which line is too long for which budget."""
        plans: dict[int, Plan] = {}
        host: dict[int, int] = {}
        stored = math.prod(self.chunk or ()) * dtype.itemsize
        for (dim,) in self._ordered([(dim,) for dim in self.lengths]):
            line = tuple(n if d == dim else 1 for d, n in enumerate(shape))
            plans[dim] = self._plan((dim,), dtype, line)
            host[dim], dtype = self._host_bytes(plans[dim], dtype), plans[dim].out_dtype
        device = {dim: made.peak_bytes for dim, made in plans.items()}
        if self.device_budget is not None and max(device.values()) > self.device_budget:
            dim, name, given = max(device, key=device.__getitem__), "device_budget", self.device_budget
            takes, needs = device[dim], device[dim]
        else:
            dim, name, given = max(host, key=host.__getitem__), "budget", self.budget
            takes, needs = host[dim], least_budget(host[dim], stored)
        what = f"a line of {self.lengths[dim]} points along dimension {dim} takes {takes} bytes with its copies"
        what += f", and the source has chunks of {stored} bytes" * (self.chunk is not None)
        narrower = ", or precision='float32'" if plans[dim].dtype == np.complex128 else ""
        return f"{what}, {name} is {given}: give at least {needs}{narrower}"

    def _host_bytes(self, made: Plan, dtype: np.dtype) -> int:
        """What the budget is for: all that a process holds, or its copies where devices have a budget of their own."""
        return peak_bytes(made, dtype) if self.device_budget is None else host_bytes(made, dtype)

    @property
    def devices(self) -> int:
        return math.prod(axis_sizes(self.mesh).values())


def _moved(steps: tuple[Pass, ...]) -> int:
    """Bytes read and written."""
    return sum(step.read_bytes + step.written_bytes for step in steps)


def _places(steps: tuple[Pass, ...]) -> tuple[int, int]:
    """In how many places of the source and of the result, both in C order, the pieces lie; and of the source alone."""
    first = runs(steps[0].before)
    return first + runs(steps[-1].after), first
