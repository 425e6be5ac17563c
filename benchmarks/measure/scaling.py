"""Scaling: seconds on more and more devices, parallel efficiency, and the line that the paper calls ideal (section V).

ideal time = T_first / (P / first)        efficiency = ideal time / T_P
"""

from collections.abc import Sequence

import jax

from meshfft.layout.layout import AXES, meshes

from ..common import mesh_of
from ..rows import Values, grouped
from .baselines import MESHFFT
from .cases import Case, Task
from .measured import median_of, name_of
from .on_devices import plan_of
from .words import error_words, mesh_words, ms, shape_words

HEADS = ("devices", "array", "mesh", "median\nms", "ideal\nms", "efficiency", "error")


def best_mesh(task: Task, devices: Sequence[jax.Device], **way: str) -> tuple[int, ...]:
    """The mesh of all these devices on which meshfft's walk is modelled to be the fastest."""
    found = dict[tuple[int, ...], float]()
    refusal = f"{len(devices)} devices cannot be laid over an array of {task.shape}: give fewer --devices"
    for mesh, _ in meshes(task.shape, len(devices), alike=False):
        sizes = tuple(mesh.shape.get(name, 1) for name in AXES[: len(task.shape)])
        try:
            plan = plan_of(Case(task, MESHFFT, sizes, **way), mesh_of(sizes, devices))
            found[sizes] = plan.seconds_by_resource.total
        except ValueError as error:
            refusal = str(error)
    if not found:
        raise ValueError(refusal)
    return min(found, key=found.__getitem__)


def scaled(rows: Sequence[Values]) -> dict[str, list[tuple[Values, float]]]:
    """Rows of each variant, the fewest devices first, each on its best mesh; and their ideal seconds."""
    found: dict[str, list[tuple[Values, float]]] = {}
    there = sorted((row for row in rows if row["seconds"]), key=lambda row: row["devices"])
    for same in grouped(there, lambda row: (name_of(row), row["devices"])):
        best = min(same, key=median_of)
        line = found.setdefault(name_of(best), [])
        first = line[0][0] if line else best
        line.append((best, median_of(first) * first["devices"] / best["devices"]))
    return found


def tables(rows: Sequence[Values]) -> dict[str, list[list[str]]]:
    return {name: [_line(*one) for one in line] for name, line in scaled(rows).items()}


def _line(row: Values, ideal: float) -> list[str]:
    numbers = [ms(median_of(row)), ms(ideal), f"{ideal / median_of(row):.2f}", error_words(row)]
    return [str(row["devices"]), shape_words(row), mesh_words(row), *numbers]
