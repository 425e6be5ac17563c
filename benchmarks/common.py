"""Shared by the benchmarks: virtual devices, meshes, noise, errors, and tables in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from meshfft.layout.layout import AXES


def cpu_devices(count: int = 8, wide: bool = False) -> None:
    """Takes virtual CPU devices; before any other use of JAX, unless it has as many already."""
    if jax.config.values["jax_num_cpu_devices"] != count:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
    if wide:
        jax.config.update("jax_enable_x64", True)


def start(platform: str, wide: bool = False) -> None:
    """Takes eight virtual CPU devices, or the accelerators of the machine."""
    if platform == "cpu":
        cpu_devices(wide=wide)
    elif wide:
        jax.config.update("jax_enable_x64", True)
    if (here := jax.devices()[0].platform) != platform:
        raise SystemExit(f"--device {platform}: the devices here are of a {here}, so give --device {here}")


def mesh_of(sizes: Sequence[int], devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh of the first devices, of all that there are or of these."""
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
    """exp(-2 pi i t n) in longdouble; the upper half of a turn times n is exact, so that it is reduced without loss."""
    t, n = np.asarray(turns, np.longdouble)[:, None], np.arange(columns, dtype=np.longdouble)
    high = np.rint(t * 2**32) / 2**32
    angle = 8 * np.arctan(np.longdouble(1)) * ((high * n) % 1 + (t - high) * n)
    found: np.ndarray = np.cos(angle) - 1j * np.sin(angle)
    return found


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table in Markdown, each row when it is there."""
    print("|", " | ".join(map(str, heads)), "|\n|" + "---|" * len(heads))
    for row in rows:
        print("|", " | ".join(map(str, row)), "|", flush=True)
