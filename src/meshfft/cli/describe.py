"""Machines that are only described: the TPU compiler made ready, and what it makes of a plan."""

import os
from typing import Any

# Read by the TPU compiler when it loads: it is to ask no metadata server, start no TPU, and share its lock file.
ENVIRONMENT = {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


def use_tpu_compiler() -> None:
    """Lets the TPU compiler be loaded where no TPU is; has to come before JAX starts."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def compiled(plan: Any, topology: str) -> dict[str, Any]:
    """What the compiler makes of a plan: memory, collectives, cycles, and the seconds of its schedule (modelled).

    Each collective has the seconds that the device waits for it, in all its executions.
    """
    from ..inspect.aot import compile_plan, mesh_for, report, timeline

    program = compile_plan(plan, mesh_for(plan, topology), planes=plan.machine.chip.planes)
    made, spent = report(program), timeline(program, plan)
    sent = [{**one._asdict(), "waited_seconds": spent.waits[one.name]} for one in made.collectives]
    seconds = {"compute": spent.compute, "links": spent.links, "total": spent.total}
    return {**made.to_dict(), "collectives": sent, "seconds_modelled": seconds}
