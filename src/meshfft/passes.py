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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import DTypeLike

from .arguments import FOURIER, integer, integers, natural_dtype, resolve, transform_of, turns
from .cutting import Shape, alike, cut, partitions, runs
from .errors import check
from .layout import AnyMesh, Layout, Spec, axis_sizes
from .pieces import Pass, Passes, host_bytes, peak_bytes
from .plan import Plan
from .planning import plan


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
) -> Passes:
    """Plans a transform of an array of any size in the fewest passes whose pieces fit, without an array or a device.

        peak of a process = a piece as it comes + 2 as they go + devices x Plan.peak_bytes   <= budget

    Args:
        shape: logical shape of the array.
        budget: bytes that a process may hold of the array; what JAX and Python themselves take is not counted.
        device_budget: bytes that each device may hold, where devices have memory of their own; the budget is then that
            of the host, for the copies alone.
        mesh: a mesh of the devices of one process, concrete or abstract; None for one device.
        spec: how each piece is cut on the mesh; by default along the longest dimension that the pass leaves alone.
        s, axes, dtype, norm, kind, method, inverse, precision: as `plan`; dtype is the one that the source has.

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
    check(turns(kind, inverse) != "complex" or number.kind != "c", real, TypeError)
    rows = dict(zip(dims, transform.lengths, strict=True))
    how = {"norm": norm, "inverse": inverse, "method": method, "precision": precision}
    task = _Task(dict(zip(dims, lengths, strict=True)), rows, kind, how, mesh, spec, budget, device_budget, {})
    return Passes(task.steps(shape, number), transform, budget, device_budget)


def _checked(shape: Sequence[int], **budgets: int | None) -> Shape:
    sizes = integers(shape, "shape")
    check(min(sizes, default=0) > 0, f"shape {sizes} holds nothing: give sizes of at least 1")
    for name, value in budgets.items():
        check(value is None or integer(value, name) > 0, f"{name} is {value!r}: give a positive number of bytes")
    return sizes


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
    known: dict[tuple[Shape, Shape, np.dtype], Layout | None]

    def steps(self, shape: Shape, dtype: np.dtype) -> tuple[Pass, ...]:
        """The fewest passes; of those, the ones whose pieces lie in the fewest places."""
        dims, found = tuple(self.lengths), list[tuple[Pass, ...]]()
        for many in range(min(1, len(dims)), len(dims) + 1):
            ways = partitions(dims, many) if dims else [((),)]
            found = [steps for groups in ways if (steps := self._passes(self._ordered(groups), shape, dtype))]
            if found:
                break
        if not found:
            raise ValueError(self._too_long(shape, dtype))
        best = min(found, key=_places)
        layouts = alike([step.before for step in best])
        return tuple(self._complete(step, before) for step, before in zip(best, layouts, strict=True))

    def _ordered(self, groups: Sequence[Shape]) -> list[Shape]:
        """Inner dimensions first, as outer ones are cut then; but real lines become complex first, and real last."""
        last, turn = tuple(self.lengths)[-1:], turns(self.kind, self.how["inverse"])
        rank = {None: 0, "complex": -1, "real": 1}[turn]
        ordered = sorted(groups, key=lambda group: (rank * (last[0] in group), -max(group))) if last else groups
        return [tuple(sorted(group, key=lambda dim: (dim in last, dim))) for group in ordered]

    def _passes(self, groups: Sequence[Shape], shape: Shape, dtype: np.dtype) -> tuple[Pass, ...]:
        """A pass for each group of dimensions; none where the pieces of one cannot be made to fit."""
        steps: list[Pass] = []
        for group in groups:
            before = self._cut(group, shape, dtype)
            if before is None:
                return ()
            steps.append(
                Pass(group, before, self._after(group, before), dtype, (self._plan(group, dtype, before.block),))
            )
            shape, dtype = steps[-1].after.shape, steps[-1].out_dtype
        return tuple(steps)

    def _cut(self, group: Shape, shape: Shape, dtype: np.dtype) -> Layout | None:
        """The layout for a group of dimensions, sought once."""
        key = (group, shape, dtype)
        if key not in self.known:
            self.known[key] = cut(shape, group, functools.partial(self._fits, group, dtype))
        return self.known[key]

    def _fits(self, group: Shape, dtype: np.dtype, block: Shape) -> bool:
        made = self._plan(group, dtype, block)
        fits = self.device_budget is None or made.peak_bytes <= self.device_budget
        return fits and self._host_bytes(made, dtype) <= self.budget

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

    def _complete(self, step: Pass, before: Layout) -> Pass:
        """The pass in that layout, with a plan for each shape of its pieces: the last of a dimension may be smaller."""
        sides = ({int(count) for count in before.counts(dim)} for dim in range(before.ndim))
        shapes = sorted(itertools.product(*sides), reverse=True)
        plans = tuple(self._plan(step.dims, step.dtype, shape) for shape in shapes)
        return dataclasses.replace(step, before=before, after=self._after(step.dims, before), plans=plans)

    def _after(self, group: Shape, layout: Layout) -> Layout:
        for dim in group:
            layout = layout.resize(dim, self.rows[dim])
        return layout

    def _too_long(self, shape: Shape, dtype: np.dtype) -> str:
        """Which line is too long for which budget."""
        plans: dict[int, Plan] = {}
        host: dict[int, int] = {}
        for (dim,) in self._ordered([(dim,) for dim in self.lengths]):
            line = tuple(n if d == dim else 1 for d, n in enumerate(shape))
            plans[dim] = self._plan((dim,), dtype, line)
            host[dim], dtype = self._host_bytes(plans[dim], dtype), plans[dim].out_dtype
        device = {dim: made.peak_bytes for dim, made in plans.items()}
        over = self.device_budget is not None and max(device.values()) > self.device_budget
        needs, given, name = (device, self.device_budget, "device_budget") if over else (host, self.budget, "budget")
        dim = max(needs, key=needs.__getitem__)
        what = f"a line of {self.lengths[dim]} points along dimension {dim} takes {needs[dim]} bytes with its copies"
        return f"{what}, {name} is {given}: give at least {needs[dim]}, or precision='float32' if it is not"

    def _host_bytes(self, made: Plan, dtype: np.dtype) -> int:
        """What the budget is for: all that a process holds, or its copies where devices have a budget of their own."""
        return peak_bytes(made, dtype) if self.device_budget is None else host_bytes(made, dtype)

    @property
    def devices(self) -> int:
        return math.prod(axis_sizes(self.mesh).values())


def _places(steps: tuple[Pass, ...]) -> tuple[int, int]:
    """In how many places of the disk the pieces lie, all of them and those of the source."""
    return sum(runs(step.before) + runs(step.after) for step in steps), runs(steps[0].before)
