"""Plans as text, one row a step, in at most 80 columns; as HTML for notebooks; and as values for JSON.

A plan is taken as Any here, for plans are made of this.
"""

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

from ..layout.layout import axis_sizes
from ..machine.chip import Chip
from ..machine.machine import Machine, Seconds
from ..machine.work import Work
from ..numerics.units import bound, plain, quantity
from ..walks.walk import Walk

WIDTH = 80
HEADS = ("step", "layout after", "sent", "hops", "flops", "peak")
INDENT = "    "


def plan_text(plan: Any) -> str:
    """The plan as it prints."""
    head = "\n".join(textwrap.fill(line, WIDTH) for line in (title(plan), _choice(plan)))
    return f"{head}\n\n{ruled(_rows_of(plan))}\n{textwrap.fill(_account(plan), WIDTH)}"


def plan_html(plan: Any, pictures: Sequence[str]) -> str:
    """The plan as a table for notebooks, with a picture of each layout."""
    heads, *steps, sums = _rows_of(plan)
    body = "".join(_html_row("td", row, picture) for row, picture in zip(steps, pictures, strict=True))
    table = f"<table>{_html_row('th', heads)}{body}{_html_row('th', sums)}</table>"
    return f"<p>{escape(title(plan))}; {escape(_choice(plan))}</p>{table}<p>{escape(_account(plan))}</p>"


def plan_values(plan: Any) -> dict[str, object]:
    """The plan as plain values."""
    steps = zip(plan.walk.pairs, plan.walk.layouts[1:], _works(plan), strict=True)
    return {
        "shape": list(plan.shape),
        "out_shape": list(plan.out_shape),
        "kind": plan.transform.name,
        "margin": list(plan.margin),
        "dtype": plan.in_dtype.name,
        "out_dtype": plan.out_dtype.name,
        "mesh": axis_sizes(plan.mesh),
        "method": plan.method,
        "order": plan.order,
        "wire": plan.wire.name,
        "precision": plan.dots[0].tier,
        "in_layout": plan.in_layout.label(),
        "out_layout": plan.out_layout.label(frozenset(plan.transform.dims)),
        "steps": [
            {"step": step.name(before), "layout": after.label(), **work_values(work)}
            for (step, before), after, work in steps
        ],
        **work_values(plan.work, "_per_device"),
        "error_expected": plan.error,
        "seconds": plan.seconds,
        "seconds_by_resource": None if plan.seconds is None else plan.seconds_by_resource._asdict(),
        "fits": plan.fits,
        "chip": plan.machine.chip.name,
        "device_order": None if plan.machine.network is None else plan.machine.network.kind,
    }


def title(plan: Any) -> str:
    """What is transformed, to what, and where."""
    mesh = ", ".join(f"{k}={v}" for k, v in axis_sizes(plan.mesh).items()) or "none"
    retyped = plan.in_dtype != plan.out_dtype
    there = " x ".join(map(str, plan.shape)) + f" {plan.in_dtype.name}" * retyped
    back = " to " + " x ".join(map(str, plan.out_shape)) if retyped or plan.shape != plan.out_shape else ""
    cells = f" with margins of {' x '.join(map(str, plan.margin))}" if any(plan.margin) else ""
    return f"{plan.transform.name} of {there}{back} {plan.out_dtype.name}{cells}, mesh {mesh}"


def walk_rows(walk: Walk, itemsize: int, chip: Chip) -> list[tuple[str, ...]]:
    """The steps of a walk with the layout each leaves, and per device: bytes sent, hops, flops, peak memory.

    Under hops, "all" is one all-to-all and a number counts hops to a neighbour. Heads first, sums last.
    """
    done: frozenset[int] = frozenset()
    rows: list[tuple[str, ...]] = [HEADS, ("start", walk.start.label(), "", "", "", "")]
    for (step, before), after, work in zip(walk.pairs, walk.layouts[1:], walk.works(itemsize, chip), strict=True):
        done = done.union(step.dims) if after.ndim == before.ndim else frozenset()  # points have no dimensions of it
        rows.append((step.name(before), after.label(done), *_counts(work)))
    return [*rows, ("per device", "", *_counts(walk.work(itemsize, chip)))]


def ruled(rows: Sequence[Sequence[str]]) -> str:
    """Rows of two words and some numbers as a table, with rules below the first row and above the last.

    Words are to the left, numbers to the right; where that is too wide, every row has its numbers on a second line, and
    where the words alone are, the second word too, below the first one on lines of its own.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = ["  ".join(cell.ljust(w) for cell, w in zip(row[:2], widths, strict=False)) for row in rows]
    numbers = ["  ".join(cell.rjust(w) for cell, w in zip(row[2:], widths[2:], strict=True)) for row in rows]
    if len(words[0]) > WIDTH:
        words = [textwrap.fill(row[0], WIDTH, subsequent_indent=INDENT) for row in rows]
        numbers = [f"{row[1].ljust(widths[1])}  {line}" for row, line in zip(rows, numbers, strict=True)]
    wide = any(len(word) + 2 + len(number) > WIDTH for word, number in zip(words, numbers, strict=True))
    between = "\n" + INDENT if wide else "  "
    parts = [(word + between + number).split("\n") for word, number in zip(words, numbers, strict=True)]
    first, *middle, last = ["\n".join(filter(None, map(str.rstrip, row))) for row in parts]
    rule = "-" * max(len(part.rstrip()) for row in parts for part in row)
    return "\n".join([first, rule, *middle, rule, last])


def machine_words(machine: Machine) -> str:
    """The devices, and on a torus how they stand on the mesh."""
    kind, network = f"{machine.chip.name} devices", machine.network
    orders = {"ring": " ordered in rings of neighbours", "jax": " in JAX's order"}
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
    remedy = f"{times} times as many devices would do"
    return f"does not fit: {peak} at the peak is {over} more than the {room} of a device; {remedy}"


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


def _choice(plan: Any) -> str:
    dots = {dot for step in plan.walk.steps for dot in step.dots}
    tier = (
        ", ".join(f"{d.tier} with {d.multiplications} products for a complex one" for d in sorted(dots))
        or plan.dots[0].tier
    )
    wire = f", {plan.wire.name} on the wire" * plan.wire.lossy
    return f"method {plan.method}, {plan.order} order, {tier}{wire}, planned for {machine_words(plan.machine)}"


def _account(plan: Any) -> str:
    seconds = [] if plan.seconds is None else [time_words(plan.seconds_by_resource)]
    return "; ".join([memory_words(plan.peak_bytes, plan.machine), *seconds, _error(plan)])


def _error(plan: Any) -> str:
    """The error that is not exceeded; of samples where a spectrum is small it is a part of those of noise."""
    beside = "" if plan.transform.inverse_scale is not None else ", relative to samples of noise where those are larger"
    return f"relative L2 error at most {bound(plan.error)}{beside}"


def _rows_of(plan: Any) -> list[tuple[str, ...]]:
    return walk_rows(plan.walk, plan.dtype.itemsize, plan.machine.chip)


def _works(plan: Any) -> Sequence[Work]:
    works: Sequence[Work] = plan.walk.works(plan.dtype.itemsize, plan.machine.chip)
    return works


def _html_row(tag: str, cells: Sequence[str], picture: str = "") -> str:
    words = "".join(
        f'<{tag} style="text-align: {"right" if at > 1 else "left"}">{escape(cell)}</{tag}>'
        for at, cell in enumerate(cells)
    )
    return f"<tr><td>{picture}</td>{words}</tr>"


def _counts(work: Work) -> tuple[str, ...]:
    exchanges = f"{work.all_to_alls} all" if work.all_to_alls > 1 else "all" * work.all_to_alls
    return (
        quantity(work.sent_bytes, "B") if work.sent_bytes else "-",
        " + ".join(filter(None, (exchanges, str(work.hops or "")))) or "-",
        quantity(work.flops) if work.flops else "-",
        quantity(work.peak_bytes, "B"),
    )
