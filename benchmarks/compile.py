"""CPU seconds of compiling a plan, for 8 virtual devices or for a described pod.

CPU time depends less than wall time on other work. It includes tracing and lowering. For a described pod
(`--topology`) a row also has modelled seconds: of the plan, and of its compute, both by the cost model; compute by the
compiler's cycles, and the program played in the compiler's order from these and the modelled links. `--program FILE`
adds a row for the program of the paper's authors, in blocks of the same mesh: of its compute alone.
"""

from pathlib import Path

import jax
from jax.sharding import NamedSharding

import meshfft as mf
from meshfft.cli import flags
from meshfft.cli.cluster import describe_mesh, use_tpu_compiler
from meshfft.inspect.aot import compile_plan, mesh_for, play, timeline
from meshfft.inspect.hlo import program_of

from .common import cpu_devices, mesh_of, numbers, print_rows
from .measure.on_devices import BLOCKS, swirl
from .rows import Values, kept
from .timing import clocked


@flags.with_flags
def main(
    shape: str,
    *,
    topology: str | None = None,
    mesh: str = "8",
    how: flags.PlanFlags,
    program: Path | None = None,
    rows: Path | None = None,
) -> None:
    if topology is None:
        cpu_devices()
    else:
        use_tpu_compiler()
    whose = dict.fromkeys((None, program))
    found = (compiled(numbers(shape), flags.read_mesh(mesh), topology, how, theirs) for theirs in whose)
    print_rows(kept(rows, found, "libtpu"))


def compiled(
    shape: tuple[int, ...], axes: dict[str, int], topology: str | None, how: flags.PlanFlags, program: Path | None
) -> Values:
    sizes, spec = tuple(axes.values()), flags.read_spec(how.spec, axes, len(shape))
    mesh = describe_mesh(axes) if topology else mesh_of(sizes)
    plan = mf.plan(shape, mesh=mesh, spec=spec, topology=topology, **how.read())
    chip, devices = plan.machine.chip, mesh_for(plan, topology) if topology else mesh_of(sizes)

    def build() -> jax.stages.Compiled:
        if program is None:
            return compile_plan(plan, devices, planes=chip.planes)
        block = jax.ShapeDtypeStruct(shape, "complex64", sharding=NamedSharding(devices, BLOCKS))
        return swirl(program, devices).lower(block).compile()

    made, wall, spent = clocked(build)
    row: Values = {"by": "swirl-lm" if program else "meshfft", "topology": topology, "shape": shape, "mesh": sizes}
    row |= {name: getattr(how, name) for name in ("method", "order", "kind", "engine", "ring", "precision", "wire")}
    row |= {"cpu_seconds": round(spent, 2), "wall_seconds": round(wall, 2)}
    if chip.clock and program:
        row["modelled_compute"] = play(program_of(made, chip), 1 / chip.clock.value, {}).compute
    elif chip.clock:
        played = timeline(made, plan)
        row |= {"steps": len(plan.walk.pairs), "sent_bytes": plan.work.sent_bytes}
        row |= {"modelled_plan": plan.seconds, "modelled_plan_compute": sum(plan.seconds_by_resource[:3])}
        row |= {"modelled_compute": played.compute, "modelled_links": played.links, "modelled_played": played.total}
    return row
