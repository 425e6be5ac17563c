"""Plans as text: one row a step, in at most 80 columns."""

import math
from collections.abc import Sequence

from ..machine.chip import Chip
from ..machine.machine import Machine, Seconds
from ..machine.work import Work
from ..numerics.units import plain, quantity
from ..walks.walk import Walk

WIDTH = 80
HEADS = ("step", "layout after", "sent", "hops", "flops", "peak")
INDENT = "    "


def walk_table(walk: Walk, itemsize: int, chip: Chip) -> str:
    """The steps of a walk with the layout each leaves, and per device: bytes sent, hops, flops, peak memory.

    Under hops, "all" is one all-to-all and a number counts hops to a neighbour.
    """
    done: frozenset[int] = frozenset()
    rows: list[tuple[str, ...]] = [HEADS, ("start", walk.start.label(), "", "", "", "")]
    for (step, before), after, work in zip(walk.pairs, walk.layouts[1:], walk.works(itemsize, chip), strict=True):
        done = done.union(step.dims) if after.ndim == before.ndim else frozenset()  # points have no dimensions of it
        rows.append((step.name(before), after.label(done), *_counts(work)))
    rows.append(("per device", "", *_counts(walk.work(itemsize, chip))))
    return ruled(rows)


def ruled(rows: Sequence[Sequence[str]]) -> str:
    """Rows of two words and some numbers as a table, with rules below the first row and above the last.

    Words are to the left, numbers to the right; where that is too wide, every row has its numbers on a second line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = ["  ".join(cell.ljust(w) for cell, w in zip(row[:2], widths, strict=False)) for row in rows]
    numbers = ["  ".join(cell.rjust(w) for cell, w in zip(row[2:], widths[2:], strict=True)) for row in rows]
    between = "\n" + INDENT if len(words[0]) + 2 + len(numbers[0]) > WIDTH else "  "
    parts = [(word + between + number).split("\n") for word, number in zip(words, numbers, strict=True)]
    first, *middle, last = ["\n".join(filter(None, map(str.rstrip, row))) for row in parts]
    rule = "-" * max(len(part.rstrip()) for row in parts for part in row)
    return "\n".join([first, rule, *middle, rule, last])


def machine_words(machine: Machine) -> str:
    """The devices, and on a torus how they stand on the mesh."""
    kind, network = f"{machine.chip.name} devices", machine.network
    orders = {"ring": " in rings of neighbours", "jax": " in JAX's order"}
    return kind + (orders.get(network.kind, "") if network is not None else "")


def memory_words(peak_bytes: int, machine: Machine) -> str:
    """The peak, and where the device's memory is known whether it fits, by how much, and what would."""
    capacity, peak = machine.chip.capacity, quantity(peak_bytes, "B")
    if capacity is None:
        return f"{peak} per device at the peak"
    room = quantity(capacity.value, "B")
    if peak_bytes <= capacity.value:
        return f"fits: {peak} of {room} per device at the peak"
    over, times = quantity(peak_bytes - capacity.value, "B"), math.ceil(peak_bytes / capacity.value)
    return f"does not fit: {peak} at the peak is {over} more than the {room} of a device; {times} x the devices would"


def time_words(spent: Seconds) -> str:
    """Modelled seconds, and those of each resource."""
    parts = ", ".join(f"{name} {plain(value)}" for name, value in spent._asdict().items() if value and name != "total")
    return f"{plain(spent.total)} s modelled ({parts})"


def work_values(work: Work, per: str = "") -> dict[str, int]:
    """What work costs one device, as plain values for JSON."""
    return {
        f"bytes{per}": work.sent_bytes,
        f"flops{per}": work.flops,
        "all_to_alls": work.all_to_alls,
        "hops": work.hops,
        f"peak_bytes{per}": work.peak_bytes,
    }


def _counts(work: Work) -> tuple[str, ...]:
    exchanges = f"{work.all_to_alls} all" if work.all_to_alls > 1 else "all" * work.all_to_alls
    return (
        quantity(work.sent_bytes, "B") if work.sent_bytes else "-",
        " + ".join(filter(None, (exchanges, str(work.hops or "")))) or "-",
        quantity(work.flops) if work.flops else "-",
        quantity(work.peak_bytes, "B"),
    )
