"""The evaluation by the TPU compiler's cycles, which are estimates: modelled too, nothing runs.

compute = cycles / clock      links = torus model, placed as scheduled      ratio = the model's compute / this
"""

from collections import Counter
from typing import Any

import jax

from meshfft.inspect.aot import Report, compile_plan, mesh_for, report, timeline
from meshfft.inspect.hlo import counts

from .cases import Case
from .modelled import about
from .rows import Row

CYCLES = "compiler's cycles and torus model"


def compiled_row(case: Case) -> Row:
    """What the compiler makes of a case; without seconds where it finds no room for it."""
    made = case.plan
    try:
        program = compile_plan(made, mesh_for(made, case.topology), planes=True)
    except jax.errors.JaxRuntimeError as error:
        reason = f"{CYCLES}: refused, {str(error).splitlines()[0]}"
        return Row(**about(case), quantity="total", seconds=None, known="modelled", how=reason, fits=False)
    found, spent = report(program), timeline(program, made)
    total = spent.compute + spent.links if case.algorithm.apart else spent.total
    waits = ", one after the other" if case.algorithm.apart else ", as scheduled"
    capacity = made.machine.chip.capacity
    return Row(
        **about(case),
        quantity="total",
        seconds=total,
        known="modelled",
        how=CYCLES + waits,
        parts={"compute": spent.compute, "links": spent.links},
        binds="compute" if spent.compute >= spent.links else "links",
        bytes_per_core=found.memory["peak"],
        fits=None if capacity is None else found.memory["peak"] <= capacity.value,
        compiled=_against(case, found, spent.compute),
    )


def _against(case: Case, found: Report, compute: float) -> dict[str, Any]:
    made = case.plan
    clock, model = made.machine.chip.clock, sum(case.seconds[:3])
    cycle = 1 / clock.value if clock is not None else 0.0
    units: Counter[str] = Counter()
    for one in found.cycles:
        units[one.unit] += one.cycles
    works = made.walk.works(made.dtype.itemsize, made.machine.chip)
    return {
        "seconds_by_unit": {unit: many * cycle for unit, many in units.items()},
        "seconds_by_step": [[one.step, one.unit, one.cycles * cycle] for one in found.cycles],
        "model_by_step": [list(made.machine.seconds(work)[:3]) for work in works],
        "model_compute": model,
        "ratio": model / compute if compute else None,
        "collectives": counts(found.collectives),
        "hidden": sum(one.times for one in found.collectives if one.asynchronous and one.covered),
    }
