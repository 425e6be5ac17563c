"""CPU seconds of compiling a plan, for 8 virtual devices or for a described pod.

CPU time depends less than wall time on other work. It includes tracing and lowering. For a described pod
(`--topology`) a row also has modelled seconds: of the plan, and of its compute, both by the cost model; and by the
compiler's cycles, of compute, of links, and of the program played in the compiler's order. `--program FILE` adds a row
for the program of the paper's authors, in blocks of the same mesh: of its compute alone.
"""

from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding

import meshfft as mf
from meshfft.cli.cluster import describe_mesh, use_tpu_compiler
from meshfft.inspect.aot import compile_plan, mesh_for, play, timeline
from meshfft.inspect.hlo import program_of

from .common import cpu_devices, mesh_of, numbers, table
from .measure.on_devices import BLOCKS, swirl
from .rows import kept
from .timing import clocked


def main(
    shape: str,
    topology: str | None = None,
    mesh: str = "8",
    method: str = "auto",
    order: str = "natural",
    kind: str = "fft",
    precision: str = "default",
    wire: str = "exact",
    engine: str = "auto",
    ring: str = "auto",
    program: Path | None = None,
    rows: Path | None = None,
) -> None:
    if topology is None:
        cpu_devices()
    else:
        use_tpu_compiler()
    options = {"method": method, "order": order, "kind": kind, "engine": engine, "ring": ring}
    options |= {"precision": precision, "wire": wire}
    whose = dict.fromkeys((None, program))
    found = (compiled(numbers(shape), numbers(mesh), topology, options, theirs) for theirs in whose)
    for row in kept(rows, found, "libtpu"):
        table(list(row), [list(row.values())])


def compiled(
    shape: tuple[int, ...], sizes: tuple[int, ...], topology: str | None, options: dict[str, Any], program: Path | None
) -> dict[str, Any]:
    """A row of a plan's program, or of the authors' for its devices."""
    mesh = describe_mesh(dict(zip("xyzw", sizes, strict=False))) if topology else mesh_of(sizes)
    plan = mf.plan(shape, mesh=mesh, topology=topology, **options)
    chip, devices = plan.machine.chip, mesh_for(plan, topology) if topology else mesh_of(sizes)
    block = jax.ShapeDtypeStruct(shape, "complex64", sharding=NamedSharding(devices, BLOCKS)) if program else None
    made, wall, spent = clocked(
        lambda: (
            swirl(program, devices).lower(block).compile()
            if program
            else compile_plan(plan, devices, planes=chip.planes)
        )
    )
    what = {"by": "swirl-lm" if program else "meshfft", "topology": topology, "shape": shape, "mesh": sizes}
    took: dict[str, Any] = {"steps": len(plan.walk.pairs)}
    if program is None:
        took["sent_bytes"] = plan.work.sent_bytes
    took |= {"cpu_seconds": round(spent, 2), "wall_seconds": round(wall, 2)}
    if (memory := made.memory_analysis()) is not None:
        took["peak_bytes"] = memory.peak_memory_in_bytes
    modelled: dict[str, Any] = {}
    if chip.clock and program:
        modelled = {"compute": play(program_of(made, chip), 1 / chip.clock.value, {}).compute}
    elif chip.clock:
        played = timeline(made, plan)
        modelled = {"plan": plan.seconds, "plan_compute": sum(plan.seconds_by_resource[:3]), "compute": played.compute}
        modelled |= {"links": played.links, "played": played.total}
    return {**what, **options, **took, **{f"modelled_{name}": value for name, value in modelled.items()}}
