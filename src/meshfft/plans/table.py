"""Plans as text of at most 80 columns, as HTML for notebooks, as values for JSON.

Wide tables have letters for mesh axes and short names of steps, with the full ones below.
"""

import math
import re
import string
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from ..layout.layout import Layout, axis_sizes
from ..machine.chip import Chip
from ..machine.machine import Machine, Seconds, Work
from ..machine.topology import mesh_call
from ..numerics.dtypes import Dot
from ..numerics.units import bound, plain, quantity

WIDTH = 80
HEADS = ("step", "layout after", "sent", "hops", "flops", "peak")


def plan_text(plan: Any) -> str:
    keys = letters_for(axis_sizes(plan.mesh))
    full, short = (_rows_of(plan, one) for one in (None, keys))
    least = [(*map(packed, row[:2]), *row[2:]) for row in short]
    rows = next((one for one in (full, short) if fits(one)), least)
    lines = [title(plan, {} if rows is full else keys), _choice(plan)]
    names = dict.fromkeys(row[0] for row in full[2:-1])  # with options and kernels
    note = [] if rows is full else [filled(f"The steps in full: {'; '.join(names)}.")]
    return "\n".join([*map(filled, lines), "", ruled(rows), *note, filled(_account(plan))])


def filled(text: str) -> str:
    return textwrap.fill(text, WIDTH)


def plan_html(plan: Any, pictures: Sequence[str]) -> str:
    heads, *steps, sums = _rows_of(plan)
    body = "".join(_html_row("td", row, picture) for row, picture in zip(steps, pictures, strict=True))
    table = f"<table>{_html_row('th', heads)}{body}{_html_row('th', sums)}</table>"
    return f"<p>{escape(title(plan))}; {escape(_choice(plan))}</p>{table}<p>{escape(_account(plan))}</p>"


def plan_values(plan: Any) -> dict[str, object]:
    works = plan.walk.works(plan.dtype.itemsize, plan.machine.chip)
    steps = zip(plan.walk.pairs, plan.walk.layouts[1:], works, strict=True)
    return {
        "shape": list(plan.shape),
        "out_shape": list(plan.out_shape),
        "kind": plan.transform.name,
        "margin": list(plan.margin),
        "dtype": plan.in_dtype.name,
        "out_dtype": plan.out_dtype.name,
        "mesh": axis_sizes(plan.mesh),
        **plan.options.asked,
        "precision": ", ".join(sorted({dot.tier for dot in _dots(plan)})) or plan.dots[0].tier,
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
        "trials_seconds": [one if math.isfinite(one) else None for one in plan.trials],
        "fits": plan.fits,
        "chip": plan.machine.chip.name,
        "rates_measured_here": plan.machine.chip.is_measured_here,
        "caveat": plan.machine.caveat,
        "failed_kernels": list(plan.machine.failed),
        "device_order": None if plan.machine.network is None else plan.machine.network.kind,
        "outer_bytes_per_device": plan.machine.outer_bytes(plan.work),
        "mesh_call": mesh_call(plan.machine, axis_sizes(plan.mesh)),
        "outer_mesh": None if plan.machine.network is None else plan.machine.network.outside,
    }


def title(plan: Any, keys: Mapping[str, str] = MappingProxyType({})) -> str:
    mesh = mesh_words(axis_sizes(plan.mesh), keys)
    retyped = plan.in_dtype != plan.out_dtype
    there = " x ".join(map(str, plan.shape)) + f" {plan.in_dtype.name}" * retyped
    back = " to " + " x ".join(map(str, plan.out_shape)) if retyped or plan.shape != plan.out_shape else ""
    cells = f" with margins of {' x '.join(map(str, plan.margin))}" if any(plan.margin) else ""
    return f"{plan.transform.name} of {there}{back} {plan.out_dtype.name}{cells}, mesh {mesh}"


def ruled(rows: Sequence[Sequence[str]]) -> str:
    """Two columns of words, then numbers, in WIDTH columns; cuts the longer words."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = WIDTH - sum(widths[2:]) - 2 * (len(widths) - 1)
    if widths[0] + widths[1] > room:
        least = min(*widths[:2], room // 2)
        widths[:2] = [least, room - least] if widths[0] <= widths[1] else [room - least, least]
    first, *middle, last = [_line(row, widths) for row in rows]
    rule = "-" * max(map(len, (first, *middle, last)))
    return "\n".join([first, rule, *middle, rule, last])


def fits(rows: Sequence[Sequence[str]]) -> bool:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1) <= WIDTH


def letters_for(names: Iterable[str]) -> dict[str, str]:
    """A letter per mesh axis: its first one if distinct, else a, b, c, ...; the name beyond z."""
    names = tuple(names)
    first = [name[:1] for name in names]
    letters = first if len({*first}) == len(names) else string.ascii_lowercase
    return dict(zip(names, letters, strict=False)) if len(names) <= 26 else {}


def mesh_words(sizes: Mapping[str, int], keys: Mapping[str, str]) -> str:
    letters = {name: f" ({keys[name]})" * (keys[name] != name) for name in sizes if name in keys}
    return ", ".join(f"{name}={size}{letters.get(name, '')}" for name, size in sizes.items()) or "none"


def relabelled(layout: Layout, keys: Mapping[str, str]) -> Layout:
    cuts = (tuple(cut._replace(axis=keys.get(cut.axis, cut.axis)) for cut in one) for one in layout.cuts)
    return Layout(layout.shape, tuple(cuts))


def packed(words: str) -> str:
    """A step or layout without brackets, one-letter dimensions joined: X_x Y' Z', fft YZ."""
    inside = re.sub(r"^A\[(.*)\]$", lambda found: found[1].replace(", ", " "), words)
    return re.sub(r"(?<=\b[A-Z]), (?=[A-Z]\b)", "", inside)


def brief(step: str) -> str:
    """A step's kinds and dimensions: "fft Y, Z, all-to-all"."""
    parts = re.split(", (?:and )?", re.sub(r" \([^()]*\)|, in (place in )?\d+ chunks of \w+$", "", step))
    kept = (re.sub(r"^all-to-all .*", "all-to-all", part) for part in parts)
    return ", ".join(part for part in kept if not re.search(r": [A-Z]\d* -> [A-Z]\d*$", part))


def machine_words(machine: Machine) -> str:
    kind, network = f"{machine.chip.name} devices", machine.network
    orders = {"ring": " ordered in rings of neighbours", "jax": " in JAX's order"}
    where = orders.get(network.kind, "") if network is not None and network.torus is not None else ""
    if network is not None and network.domains is not None:
        sizes = zip(network.names, network.outside or (), strict=False)  # none if they are no grid
        along = ", ".join(f"{name}={n}" for name, n in sizes if n > 1)
        where += f" in {network.several} {machine.chip.domain_name}s" + f", {along} of the mesh" * bool(along)
    failed = f"XLA's engine, as kernels failed here: {', '.join(machine.failed)}" if machine.failed else None
    beside = f" ({'; '.join(filter(None, (machine.caveat, failed)))})" if machine.caveat or failed else ""
    return kind + where + beside


def memory_words(peak_bytes: int, machine: Machine) -> str:
    capacity, peak = machine.chip.capacity, quantity(peak_bytes, "B")
    if capacity is None:
        return f"{peak} per device at the peak"
    room = quantity(capacity.value, "B")
    if peak_bytes <= capacity.value:
        return f"fits: {peak} of {room} per device at the peak"
    over, times = quantity(peak_bytes - capacity.value, "B"), math.ceil(peak_bytes / capacity.value)
    remedy = f"{times} times as many devices would do"
    if 0 < machine.most < times * machine.devices:
        remedy += f", but the largest {machine.chip.name} has {machine.most}: plan for a chip with more memory"
    return f"does not fit: {peak} at the peak is {over} more than the {room} of a device; {remedy}"


def time_words(spent: Seconds, chip: Chip) -> str:
    parts = ", ".join(f"{name} {plain(value)}" for name, value in spent._asdict().items() if value and name != "total")
    return f"{plain(spent.total)} s modelled{' by rates measured here' * chip.is_measured_here} ({parts})"


def work_values(work: Work, per: str = "") -> dict[str, int]:
    return {
        f"bytes{per}": work.sent_bytes,
        f"flops{per}": work.flops,
        "all_to_alls": work.all_to_alls,
        "hops": work.hops,
        f"peak_bytes{per}": work.peak_bytes,
    }


def _choice(plan: Any) -> str:
    tiers = [f"{dot.tier} with {dot.multiplications} products for a complex one" for dot in sorted(_dots(plan))]
    tier, (method, order, sent) = ", ".join(tiers) or plan.dots[0].tier, plan.options.words
    if "outer" in sent and (plan.machine.network is None or plan.machine.network.several == 1):
        sent += f", but its devices are in one {plan.machine.chip.domain_name}"
    machine = f"planned for {machine_words(plan.machine)}"
    return ", ".join(filter(None, (method, order, tier, sent, machine)))


def _dots(plan: Any) -> set[Dot]:
    return {dot for step in plan.walk.steps for dot in step.numbers.dots}


def _account(plan: Any) -> str:
    seconds = [] if plan.seconds is None else [time_words(plan.seconds_by_resource, plan.machine.chip)]
    if plan.trials:
        ran = sum(map(math.isfinite, plan.trials))
        seconds.append(f"{plain(plan.trials[0])} s measured, the fastest of {ran} walks")
    if leaving := plan.machine.outer_bytes(plan.work):
        seconds.append(f"{quantity(leaving, 'B')} per device leave the {plan.machine.chip.domain_name}")
    return "; ".join([memory_words(plan.peak_bytes, plan.machine), *seconds, _error(plan)])


def _error(plan: Any) -> str:
    """The error bound; of samples of small spectra, relative to noise. Windows may lose more of a few inputs."""
    beside = "" if plan.transform.inverse_scale is not None else ", relative to samples of noise where those are larger"
    if plan.error and not plan.transform.dims:
        beside = ", more for inputs in phase with the window's error"
    return f"relative L2 error at most {bound(plan.error)}{beside}"


def _rows_of(plan: Any, keys: Mapping[str, str] | None = None) -> list[tuple[str, ...]]:
    """A walk's steps with the layout after each, and per device: bytes sent, hops, flops, peak memory.

    With `keys` mesh axes have these letters.
    """
    walk, itemsize, chip = plan.walk, plan.dtype.itemsize, plan.machine.chip
    done: frozenset[int] = frozenset()
    start = relabelled(walk.start, keys or {})
    rows: list[tuple[str, ...]] = [HEADS, ("start", start.label(), "", "", "", "")]
    for (step, before), after, work in zip(walk.pairs, walk.layouts[1:], walk.works(itemsize, chip), strict=True):
        done = done.union(step.dims) if after.ndim == before.ndim else frozenset()  # points have none of its dimensions
        name = step.name(before) if keys is None else brief(step.name(before))
        rows.append((name, relabelled(after, keys or {}).label(done), *_counts(work)))
    return [*rows, ("per device", "", *_counts(walk.work(itemsize, chip)))]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    words = (
        f"{cell[: width - 3]}..." if len(cell) > width else cell.ljust(width)
        for cell, width in zip(row[:2], widths, strict=False)
    )
    numbers = (cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True))
    return "  ".join([*words, *numbers]).rstrip()


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
