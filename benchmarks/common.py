"""Shared by the benchmarks: virtual devices, meshes, noise, errors, and tables in Markdown."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from meshfft.layout.layout import AXES

from .timing import spread


def cpu_devices(count: int = 8, wide: bool = False) -> None:
    """Takes virtual CPU devices; before any other use of JAX, unless it has as many already."""
    if jax.config.values["jax_num_cpu_devices"] != count:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
    if wide:
        jax.config.update("jax_enable_x64", True)


def start(platform: str, wide: bool = False, count: int = 8) -> None:
    """Takes so many virtual CPU devices, or the accelerators of the machine."""
    if platform == "cpu":
        cpu_devices(count, wide)
    elif wide:
        jax.config.update("jax_enable_x64", True)
    if (here := jax.devices()[0].platform) != platform:
        raise SystemExit(f"--device {platform}: the devices here are of a {here}, so give --device {here}")


def mesh_of(sizes: Sequence[int], devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of the first of all devices, or of the given ones."""
    count = int(np.prod(sizes))
    first = (jax.devices() if devices is None else devices)[:count]
    return jax.make_mesh(tuple(sizes), tuple(AXES[: len(sizes)]), (AxisType.Auto,) * len(sizes), devices=first)


def spec_of(sizes: Sequence[int]) -> PartitionSpec:
    return PartitionSpec(*AXES[: len(sizes)])


def noise(shape: Sequence[int], dtype: Any = "complex64", seed: int = 0) -> np.ndarray:
    wanted, rng = np.dtype(dtype), np.random.default_rng(seed)
    real = np.finfo(wanted).dtype.type
    if wanted.kind != "c":
        return rng.standard_normal(shape, real)
    return rng.standard_normal((*shape, 2), real).view(wanted)[..., 0]


def relative(found: Any, truth: np.ndarray) -> float:
    """The relative L2 error, in the precision of the truth."""
    apart = np.asarray(found).astype(truth.dtype) - truth
    sums = (np.sum(np.abs(values) ** 2) for values in (apart, truth))
    return float(np.sqrt(next(sums) / (next(sums) or 1.0)))


def powers(turns: Any, columns: int) -> np.ndarray:
    """exp(-2 pi i t n) in longdouble; the high 32 bits of t times n are exact, and so reduced without loss."""
    t, n = np.asarray(turns, np.longdouble)[:, None], np.arange(columns, dtype=np.longdouble)
    high = np.rint(t * 2**32) / 2**32
    angle = 8 * np.arctan(np.longdouble(1)) * ((high * n) % 1 + (t - high) * n)
    found: np.ndarray = np.cos(angle) - 1j * np.sin(angle)
    return found


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def cell(value: Any) -> str:
    """A value of a row as words: numbers to three digits, and of several the median with its quartiles."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(one)}" for name, one in value.items())
    if isinstance(value, list) and value and all(isinstance(one, float) for one in value):
        low, middle, high = spread(value)
        return f"{middle:.3g} ({low:.3g} to {high:.3g})" if len(value) > 1 else f"{middle:.3g}"
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)[:60]


def print_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Prints these columns of rows, or all that the first row has."""
    left = iter(rows)
    first: Mapping[str, Any] = next(left, {})
    heads = columns or list(first)
    table(heads, ([cell(row.get(name, "")) for name in heads] for row in itertools.chain([first], left)))


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table in Markdown, each row when it is there."""
    print("|", " | ".join(map(str, heads)), "|\n|" + "---|" * len(heads))
    for row in rows:
        print("|", " | ".join(map(str, row)), "|", flush=True)
