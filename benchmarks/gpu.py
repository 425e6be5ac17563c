"""One GPU, made for an NVIDIA H200: fftn beside cuFFT, 64 GiB in place, and dense products beside the matrix peak.

    python -m benchmarks gpu --rows benchmarks/results/gpu-h200.jsonl    # exit code 1 where a goal is missed
    python -m benchmarks gpu --small    # toy sizes on any device: shows that it runs, measures nothing

    2048^3 complex64   donated: milliseconds, and bytes at the peak
    1024^3 complex64   meshfft's program and cuFFT's 3-D plan (jnp.fft.fftn) in turns: ratio and milliseconds
    1024^3             the dense transform in every tier, in turns with one large product of that tier: its share of it

Operations are those of the plan: 8 or 6 for a complex multiplication and addition, passes not counted. Errors are
relative, of a few outputs, against direct float64 sums in NumPy. A case that does not fit is absent, and says why.
"""

import argparse
import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")  # else JAX takes three quarters of a GPU

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.made import circumstances
from benchmarks.measure.baselines import MESHFFT
from benchmarks.measure.cases import Case, Task, case_of, layout_of
from benchmarks.measure.data import mesh_of
from benchmarks.measure.on_devices import plan_of
from benchmarks.measure.prepared import Prepared
from benchmarks.measure.rows import Row, write_rows
from benchmarks.measure.running import reason_of
from benchmarks.measure.timing import interleaved, timer, timer_of_fresh
from meshfft.cli.flags import check_rows
from meshfft.inspect.aot import compile_plan
from meshfft.machine.chip import chip_for
from meshfft.numerics import dtypes
from meshfft.numerics.dtypes import Dot
from meshfft.numerics.products import PRESETS, RealProduct, terms_of

TIERS = tuple(tier for tier, row in dtypes.TIERS.items() if not row.slices)  # a GPU has float64
CUFFT, PRODUCT = "jnp", "product"
GIB, FEW, SLAB = 2**30, 6, 2**26  # bytes; outputs checked along each dimension; numbers on the host at a time
FULL, SMALL = (2048, 1024, 8192), (32, 16, 64)  # points along each dimension, and the side of the large product
RATIO, MS, LARGE_MS, LARGE_GIB = 1.15, 14.8, 118.0, 139.0  # goals; milliseconds: of the paper's whole pod
Goal = tuple[str, float, float]  # at most the first number is wanted, the second was found: infinity where it is absent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", action="store_true", help="toy sizes, no measurement")
    given = parser.parse_args()
    check_rows(given.rows)
    judged = jax.devices()[0].platform == "gpu" and not given.small
    if not judged and not given.small:
        parser.error(f"JAX finds no GPU but {jax.devices()[0].device_kind}: --small tries the script at toy sizes")
    rows = measured(SMALL if given.small else FULL, given.rounds)
    goals = goals_of(rows)
    report(rows, goals, judged)
    if given.rows is not None:
        write_rows(given.rows, rows)
    sys.exit(not all(found <= limit for _, limit, found in goals) if judged else any(row.absent for row in rows))


def measured(sizes: tuple[int, int, int], rounds: int) -> list[Row]:
    """All rows, the largest array first: what the device held at its peak is then its own."""
    layout = layout_of((1,), 3)
    mesh, facts = mesh_of(layout, jax.devices()), circumstances(("meshfft", "jax", "jaxlib", "numpy"))
    facts |= {"platform": jax.devices()[0].client.platform_version, "bytes_limit": room()}
    large, usual = (Task((n,) * 3) for n in sizes[:2])
    first, second = (case_of(task, MESHFFT, layout, method="auto", order="natural") for task in (large, usual))
    cufft = case_of(usual, CUFFT, layout)
    rows = in_turns({first: lambda: transform(first, mesh, donate=True)}, rounds, facts)
    rows += in_turns({second: lambda: transform(second, mesh), cufft: lambda: of_cufft(cufft, mesh)}, rounds, facts)
    for tier in TIERS:
        wide = tier == "float64"
        with jax.enable_x64(wide):
            task = usual._replace(dtype="complex128" if wide else "complex64")
            dense = case_of(task, MESHFFT, layout, method="kdft", order="natural", precision=tier)
            product = Case(PRODUCT, sizes[2:] * 2, "float64" if wide else "float32", precision=tier)
            jobs = {dense: functools.partial(transform, dense, mesh), product: functools.partial(of_product, product)}
            rows += in_turns(jobs, rounds, facts)
    return rows


def in_turns(jobs: dict[Case, Callable[[], Prepared]], rounds: int, facts: dict[str, Any]) -> list[Row]:
    """A row for each case; those that can run take turns."""
    ready: dict[Case, Prepared] = {}
    absent: dict[Case, str] = {}
    for case, prepare in jobs.items():
        try:
            one = prepare()
            one.timer()
            ready[case] = one
        except Exception as reason:  # too large, or whatever a compiler raises: the others go on
            absent[case] = reason_of(reason)
    times = dict(zip(ready, interleaved([one.timer for one in ready.values()], rounds), strict=True))
    peak = {"peak_bytes_in_use": (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")}
    there = [
        Row(case, tuple(times[case]), one.error or None, "", {**facts, **one.versions, **peak})
        for case, one in ready.items()
    ]
    return there + [Row(case, (), None, reason, facts) for case, reason in absent.items()]


def transform(case: Case, mesh: Mesh, donate: bool = False) -> Prepared:
    """The program of meshfft's plan."""
    plan = plan_of(case, mesh)
    facts = {"plan": plan.name, "expected_error": plan.error, "operations": plan.work.matrix_flops, "donated": donate}
    return checked(case, mesh, compile_plan(plan, mesh, donate=donate), facts)


def of_cufft(case: Case, mesh: Mesh) -> Prepared:
    """cuFFT's 3-D plan, which is what XLA makes of three dimensions."""
    x = jax.ShapeDtypeStruct(case.shape, case.dtype, sharding=NamedSharding(mesh, PartitionSpec()))
    return checked(case, mesh, jax.jit(jnp.fft.fftn).lower(x).compile(), {"donated": False})


def checked(case: Case, mesh: Mesh, compiled: Any, facts: dict[str, Any]) -> Prepared:
    """A transform that fits, with its error and its calls."""
    make, facts = noise(case.shape, case.dtype, mesh), {**facts, "compiled_bytes": fitting(compiled)}
    error = few_error(case, mesh, compiled)
    calls = timer_of_fresh(compiled, make) if facts["donated"] else timer(functools.partial(compiled, make()))
    return Prepared(calls, error, facts)


def of_product(case: Case) -> Prepared:
    """One large real product as its tier makes it: by the GPU's own algorithm, elsewhere of terms."""
    terms = Dot(case.precision, 4).terms
    precision = lax.Precision.HIGHEST
    exact, preset = RealProduct(precision, terms), RealProduct(PRESETS.get(case.precision, precision), 0)

    def run(a: Array, b: Array) -> Array:
        split = terms_of(a, terms) if terms else (a,)
        return lax.platform_dependent(cuda=lambda: preset.along((a,), b, 0), default=lambda: exact.along(split, b, 0))

    a, b = (jax.random.normal(jax.random.key(seed), case.shape, case.dtype) for seed in (0, 1))
    compiled = jax.jit(run).lower(a, b).compile()
    facts = {"operations": 2 * case.shape[0] ** 3, "compiled_bytes": fitting(compiled)}
    return Prepared(timer(lambda: compiled(a, b)), 0.0, facts)


def room() -> float | None:
    """Bytes that JAX may take of the device, where it tells."""
    return (jax.devices()[0].memory_stats() or {}).get("bytes_limit")


def fitting(compiled: Any) -> int:
    """Bytes that a program takes, cuFFT's workspace not counted.

    Raises:
        ValueError: they are more than there are.
    """
    found, there = compiled.memory_analysis(), room()
    needed = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
    needed -= found.alias_size_in_bytes
    if there is not None and needed > there:
        raise ValueError(f"needs {needed / GIB:.1f} GiB, JAX has {there / GIB:.1f} of the device: take a larger one")
    return int(needed)


@functools.cache
def noise(shape: tuple[int, ...], dtype: str, mesh: Mesh) -> Any:
    """A program that makes Gaussian noise, always the same, a slab at a time: random bits take memory too."""

    def slab(i: Array, x: Array) -> Array:
        part = jax.random.normal(jax.random.fold_in(jax.random.key(0), i), (1, *shape[1:]), dtype)
        return lax.dynamic_update_slice_in_dim(x, part, i, 0)

    made = functools.partial(lax.fori_loop, 0, shape[0], slab)
    return jax.jit(lambda: made(jnp.zeros(shape, dtype)), out_shardings=NamedSharding(mesh, PartitionSpec()))


def few_error(case: Case, mesh: Mesh, compiled: Any) -> float:
    """Relative L2 error of FEW outputs along each dimension, other ones in each run."""
    places, truth = few(case.shape, case.dtype, mesh)
    y = compiled(noise(case.shape, case.dtype, mesh)())
    planes = [np.asarray(lax.dynamic_index_in_dim(y, int(k), keepdims=False))[np.ix_(*places[1:])] for k in places[0]]
    return float(np.linalg.norm(np.stack(planes) - truth) / np.linalg.norm(truth))


@functools.cache
def few(shape: tuple[int, ...], dtype: str, mesh: Mesh) -> tuple[list[np.ndarray], np.ndarray]:
    """Places in the spectrum of the noise, and its direct sums there in float64, of a slab after the other."""
    random, high = np.random.default_rng(), math.gcd(shape[0], max(1, SLAB // (shape[1] * shape[2])))
    places = [random.choice(n, min(FEW, n), replace=False) for n in shape]
    turns = [np.outer(k, np.arange(n)) % n / n for k, n in zip(places, shape, strict=True)]
    first, *rest = (np.exp(-2j * np.pi * t) for t in turns)
    x, truth = noise(shape, dtype, mesh)(), np.zeros([len(k) for k in places], np.complex128)
    for start in range(0, shape[0], high):
        slab = np.asarray(lax.dynamic_slice_in_dim(x, start, high)).astype(np.complex128)
        truth += np.tensordot(first[:, start : start + high], rest[0] @ (slab @ rest[1].T), 1)
    return places, truth


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """What is wanted, beside what was found."""
    ours = [row for row in rows if row.case.library == MESHFFT]
    (large, usual), cufft = ours[:2], next(row for row in rows if row.case.library == CUFFT)
    held = large.facts.get("peak_bytes_in_use") or large.facts.get("compiled_bytes", math.inf)
    errors = {name_of(row): (row.facts.get("expected_error", 0.0), row.error or math.inf) for row in ours}
    seconds, others, most = (row.median or math.inf for row in (usual, cufft, large))
    return [
        (f"{name_of(usual)}, over cuFFT's 3-D plan", RATIO, seconds / others if cufft.median else math.inf),
        (f"{name_of(usual)}, ms", MS, 1e3 * seconds),
        (f"{name_of(large)}, ms", LARGE_MS, 1e3 * most),
        (f"{name_of(large)}, GiB", LARGE_GIB, held / GIB),
        *((f"{name}, error", *pair) for name, pair in errors.items()),
    ]


def name_of(row: Row) -> str:
    """Who, what, and which way."""
    words = row.case.library, "x".join(map(str, row.case.shape)), row.case.dtype, row.case.method, row.case.precision
    return " ".join(filter(None, (*words, "donated" * row.facts.get("donated", False))))


def shares(rows: Sequence[Row]) -> Iterator[str]:
    """The rate of each dense transform, and its share of the large product's and of the data sheet's in its tier."""
    chip = chip_for(jax.devices()[0].platform, jax.devices()[0].device_kind)
    found = {(row.case.library, row.case.precision): row for row in rows if row.median}
    yield "\n| tier | kdftn, TFLOP/s | of one product | of the data sheet |\n|---|---|---|---|"
    for tier in TIERS:
        if all((baseline, tier) in found for baseline in (MESHFFT, PRODUCT)):
            rate, peak = (row.facts["operations"] / row.median for row in (found[MESHFFT, tier], found[PRODUCT, tier]))
            yield f"| {tier} | {rate / 1e12:.3g} | {rate / peak:.2f} | {rate / chip.product_rate(tier):.2f} |"


def report(rows: Sequence[Row], goals: Sequence[Goal], judged: bool) -> None:
    """The tables."""
    print("" if judged else "NO MEASUREMENT: toy sizes; the numbers only show that the script runs.\n")
    print("| case | ms, median | quartiles | error |\n|---|---|---|---|")
    for row in rows:
        low, median, high = (1e3 * part for part in row.spread or (0.0, 0.0, 0.0))
        error = "" if row.error is None else f"{row.error:.1e}"
        numbers = f"absent: {row.absent} | | |" if row.absent else f"{median:.3g} | {low:.3g}-{high:.3g} | {error} |"
        print(f"| {name_of(row)} | {numbers}")
    print(*shares(rows), sep="\n")
    print("\n| goal | at most | found | met |\n|---|---|---|---|")
    for name, limit, found in goals:
        print(f"| {name} | {limit:.3g} | {found:.3g} | {('NO', 'yes')[found <= limit] if judged else 'not judged'} |")


if __name__ == "__main__":
    main()
