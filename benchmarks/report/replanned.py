"""Plans of rows: what a row was measured or modelled by, planned anew, for the kind of device that it tells.

A row that tells its steps vouches for the plan: one with other steps is not taken, but for how a step computes, in
brackets, which moves nothing. A measured case does not tell them;
its walk is the one that meshfft finds today on such devices.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from meshfft.layout.layout import axis_sizes
from meshfft.layout.meshes import AXES
from meshfft.machine.chips import CHIPS
from meshfft.plans.plan import Plan
from meshfft.plans.planning import plan

from ..measure.on_devices import plan_of
from ..measure.peers import MESHFFT
from ..measure.rows import Row
from ..paper.rows import Row as PaperRow
from .blocks import count_of
from .breakdowns import profiles
from .kinds import Rows, Values

MOST_DEVICES, MOST_DIMS, MOST_SAMPLES, MOST_LENGTH = 2048, 6, 10**6, 2**40  # of a row whose plan is made
TRIES = 12  # rows that are planned until one has a walk to show
OPTIONS = ("method", "precision", "multiplications", "order")  # of the evaluation, those that `plan` takes


def plan_of_rows(rows: Rows) -> Plan | None:
    """The plan of the first row that tells one on several devices; None where none does."""
    found = (made() for made in itertools.islice(_plans(rows), TRIES))
    return next((one for one in found if one is not None and count_of(axis_sizes(one.mesh)) > 1), None)


def plan_of_case(row: Row) -> Plan | None:
    """The plan of a case of meshfft; None where there is none, or it is too large to be made in passing."""
    case = row.case
    few = case.devices <= MOST_DEVICES and len(case.shape) <= MOST_DIMS and len(case.mesh) <= len(AXES)
    if case.peer != MESHFFT or not few or sum(case.samples) > MOST_SAMPLES or max(case.shape) > MOST_LENGTH:
        return None
    mesh = described(dict(zip(AXES, case.mesh, strict=False)), str(row.facts.get("device", "")))
    return _made(lambda: plan_of(case, mesh))  # type: ignore[arg-type]  # planned for, never run on


def described(sizes: dict[str, int], kind: str) -> AbstractMesh:
    """A mesh of devices of a kind, as JAX names it, that need not be there."""
    known = [chip.platform for chip in CHIPS.values() if any(kind.startswith(name) for name in chip.kinds)]
    platform = kind if kind == "cpu" else known[0] if known else None
    device = None if platform is None else AbstractDevice(device_kind=kind, num_cores=None, platform=platform)
    types = (AxisType.Auto,) * len(sizes)
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=types, abstract_device=device)


def _plans(rows: Rows) -> Iterator[Callable[[], Plan | None]]:
    """How to plan rows, in the order of the page's sections."""
    for row in rows.cases:
        if row.case.peer == MESHFFT and row.case.devices > 1 and row.seconds:
            yield functools.partial(plan_of_case, row)
    for parts in profiles(rows.profiles):
        yield functools.partial(_of_profile, parts[0])
    for choice in rows.choices:
        yield functools.partial(_of_choice, choice)
    for one in rows.evaluation:
        if one.mesh and one.steps:
            yield functools.partial(_of_evaluation, one)


def _of_profile(values: Values) -> Plan | None:
    """The plan of a profile, of a run or for a machine by name."""
    device, steps = values["device"], "; ".join(values["steps"])
    options = {name: values[name] for name in ("dtype", "method", "order")}
    named = {"topology": device} if ":" in device else {}
    return _same(values["shape"], values["mesh"], "" if named else device, steps, {**options, **named})


def _of_choice(values: Values) -> Plan | None:
    """The plan of a walk beside its model."""
    options = {"method": values["methods"][0], "order": values.get("order", "natural")}
    return _same(values["shape"], values["mesh"], str(values.get("device", "")), str(values.get("walk")), options)


def _of_evaluation(row: PaperRow) -> Plan | None:
    """The plan of a number of the paper's evaluation."""
    options = {name: row.options[name] for name in OPTIONS if name in row.options}
    return _same(row.shape, row.mesh, "", row.steps, {**options, "topology": row.topology})


def _same(shape: Any, mesh: dict[str, int], kind: str, steps: str, options: dict[str, Any]) -> Plan | None:
    """The plan with these options, if it has these steps."""
    if len(shape) > MOST_DIMS or max(shape) > MOST_LENGTH or count_of(mesh) > MOST_DEVICES:
        return None
    found = _made(lambda: plan(shape, mesh=described(mesh, kind), **options))
    return found if found is not None and moves(found.name) == moves(steps) else None


def moves(steps: str) -> str:
    """Steps in words, without how they compute."""
    return re.sub(r" \([^)]*\)", "", steps)


def _made(make: Callable[[], Plan]) -> Plan | None:
    """A plan, if there is one: what a row asks for may be nothing that meshfft does."""
    try:
        return make()
    except (ValueError, TypeError):
        return None
