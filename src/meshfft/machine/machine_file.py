"""Machine files in TOML: the rates that `meshfft measure` found.

    platform, kind, devices, domains, torus    the measured machine
    [rates]                                    fields of a Chip, for one device while all work
    [products]                                 operations per second by tier
    [[timings]]                                each collective: kind, mesh axes, bytes of a block, seconds

Invariant: missing rates are those of the data sheet.
"""

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .chip import HERE, Chip, Figure
from .chips import chip_for

RATES = ("vector", "memory", "link", "hop", "outer", "start")
FACTS = {"platform": str, "kind": str, "devices": int, "domains": int, "torus": list, "rates": dict, "products": dict}


def measured_chip(chip: Chip, rates: Mapping[str, float], products: Mapping[str, float], source: str) -> Chip:
    figures = {name: Figure(float(value), HERE, source) for name, value in rates.items()}
    tiers = dict(chip.products) | {tier: Figure(float(rate), HERE, source) for tier, rate in products.items()}
    changed: dict[str, Any] = {**figures, "products": tuple(tiers.items()), "rough": False}
    return dataclasses.replace(chip, **changed)


def read_machine_file(path: Path) -> tuple[Chip, int, int, tuple[int, ...]]:
    """The chip, devices, domains, and chips of a domain along each axis of its torus, if it has one.

    Raises OSError if it cannot be read, ValueError if it is no machine file.
    """
    remedy = "give a file that meshfft measure wrote"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file: {remedy}")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no TOML, or no text
        raise ValueError(f"{path} is no TOML ({error}): {remedy}") from None
    for name, kind in FACTS.items():
        if type(found.get(name)) is not kind:
            raise ValueError(f"{path} has {name} {found.get(name)!r}: {remedy}")
    for name, counts in (("devices", [found["devices"]]), ("domains", [found["domains"]]), ("torus", found["torus"])):
        if any(type(count) is not int or count < 1 for count in counts):
            raise ValueError(f"{path} has {name} {found[name]!r}, which is no count: {remedy}")
    chip, rates, products = chip_for(found["platform"], found["kind"]), found["rates"], found["products"]
    devices, domains, torus = found["devices"], found["domains"], tuple(found["torus"])
    whole = len(torus) == len(chip.torus) and math.prod(torus) * chip.devices * domains == devices
    if torus and not whole:
        raise ValueError(f"{path} has torus {[*torus]}, which is not one of {devices} {chip.name} devices: {remedy}")
    if devices % domains:
        raise ValueError(f"{path} has {domains} domains, which {devices} devices do not fill equally: {remedy}")
    if unknown := sorted({*rates} - {*RATES} | {*products} - {*dict(chip.products)}):
        raise ValueError(f"{path} has rates of {', '.join(unknown)}, which no plan takes: {remedy}")
    for name, value in (rates | products).items():
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise ValueError(f"{path} has {name} {value!r}, which is no rate: {remedy}")
    chip = measured_chip(chip, rates, products, f"meshfft measure, {found.get('made', 'date unknown')}")
    return chip, devices, domains, torus


def machine_text(record: Mapping[str, Any]) -> str:
    """The record as TOML: plain values, then tables, then lists of tables."""
    tables = {name: value for name, value in record.items() if isinstance(value, dict)}
    lists = {name: one for name, one in record.items() if isinstance(one, list) and one and isinstance(one[0], dict)}
    lines = ["# One device while all are at work: operations and bytes per second, and seconds."]
    lines += [f"{name} = {_value(value)}" for name, value in record.items() if name not in tables | lists]
    for name, values in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]
    for name, rows in lists.items():
        for row in rows:
            lines += ["", f"[[{name}]]", *(f"{key} = {_value(value)}" for key, value in row.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Text, numbers and lists are the same in TOML and JSON, apart from DEL."""
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")
