"""Errors over the bounds that plans print: by tier, method, line and N. None may be above 1.

    python -m benchmarks bounds [--rows FILE] [--sizes 64 1000] [--methods kdft] [--tiers float32]

Lines of N numbers on one CPU device and cut over eight: constants and spikes, some of numbers that tiers lose most of,
alternating signs, one wave, a ramp, white noise, and numbers from tiny to huge. Errors are relative, in L2, against the
FFT in np.longdouble, which has more digits than float64 on x86 alone; of dense products of more than 4096 terms at
eight frequencies, that of the wave among them, against sums that are added in pairs.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from meshfft.numerics.dtypes import TIERS
from meshfft.numerics.phases import host_roots

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")
SIZES = (64, 131, 1000, 4096, 16384, 65536, 2**20)
LINES = ("constant", "alternating", "wave", "spike", "ramp", "noise", "mixed")
METHODS = ("kdft", "transpose", "cooley-tukey", "auto")
# The 2nd and 3rd lose most in sums of 32 and of 128 in float32, the others as bfloat16 terms in four or three products.
CONSTANTS = (0.1 + 0.7j, 1.8824329, 1.96949, 0.501953125j, -1.003913 + 1.0038913j, 1.0029373, 1.0036242 - 1.0159223j)
SPIKES = (0.3 - 1.1j, *CONSTANTS[3:5], -0.50195694j, -2.0078883 + 0.50238174j)
WHOLE = 4096  # terms up to which dense products have all frequencies
DECADES = {"float32": 15, "float64": 100}  # of the mixed line, up and down
SLICED = {"kdft": 2**20, "transpose": 4096, "cooley-tukey": 4096, "auto": 0}  # terms, at most, of tiers of int8


def lines(n: int, dtype: np.dtype) -> dict[str, np.ndarray]:
    """Lines by their names, the constants first."""
    random, k = np.random.default_rng(n), np.arange(n)
    noise = random.standard_normal(n) + 1j * random.standard_normal(n)
    where = (k == n // 3).astype(float)
    decades = DECADES["float32" if dtype == np.complex64 else "float64"]
    made = {
        **{f"constant {value}": np.full(n, value) for value in CONSTANTS},
        "alternating": CONSTANTS[0] * (1 - 2.0 * (k % 2)),
        "wave": CONSTANTS[1] * host_roots(n // 3 * k % n, n, 1).astype(complex),
        **{f"spike {value}": value * where for value in SPIKES},
        "ramp": (k + 1.0) / n * (0.3 + 1j),
        "noise": noise,
        "mixed": noise * 10.0 ** random.uniform(-decades, decades, n),
    }
    return {name: line.astype(dtype) for name, line in made.items()}


def frequencies(n: int, method: str) -> np.ndarray | None:
    """Those of dense products of long lines; None are all."""
    return np.array([0, 1, 2, 5, n // 2, n // 3, n // 4, n - 1]) if method == "kdft" and n > WHOLE else None


def exact(given: np.ndarray, k: np.ndarray | None) -> np.ndarray:
    """The transform of lines in extended precision."""
    n, wide = given.shape[1], given.astype(np.clongdouble)
    if k is None:
        return np.fft.fft(wide)
    roots = host_roots(np.outer(k, np.arange(n)) % n, n, -1)
    return np.stack([[(row * line).sum() for row in roots] for line in wide])


def measured(sizes: tuple[int, ...], methods: tuple[str, ...], tiers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A row for each tier, method, N and number of devices: the bound, and the error of each line over it."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    from jax.sharding import PartitionSpec as P

    import meshfft as mf
    from benchmarks.made import circumstances

    facts = circumstances(PACKAGES)
    meshes = {many: jax.make_mesh((many,), ("x",), devices=jax.devices()[:many]) for many in (1, 8)}
    for n, method, tier, devices in ((n, m, t, d) for n in sizes for m in methods for t in tiers for d in meshes):
        if (TIERS[tier].slices and n > SLICED[method]) or (TIERS[tier].terms and method != "kdft"):
            continue
        dtype = np.dtype(np.complex128 if tier == "float64" or TIERS[tier].slices else np.complex64)
        given, k, mesh = lines(n, dtype), frequencies(n, method), meshes[devices]
        points = None if k is None else [mf.Points.turns(k / n)]
        how: dict[str, Any] = {"precision": tier, "axes": (1,), "dtype": dtype}
        how |= {"method": method} if points is None else {"points": points}
        try:
            plan = mf.plan((len(given), n), mesh=mesh, spec=P(None, "x"), **how)
        except ValueError as refused:
            print(f"{tier}, {method}, N = {n}, {devices} devices: refused: {refused}")
            continue
        rows = np.stack(list(given.values()))
        found, truth = mf.gather(plan(mf.shard(rows, mesh, P(None, "x")))), exact(rows, k)
        errors = np.linalg.norm(found - truth, axis=1) / np.linalg.norm(truth, axis=1)
        over = {name: float(one / plan.error) for name, one in zip(given, errors, strict=True)}
        row = {"n": n, "method": method, "precision": tier, "devices": devices, "error_expected": plan.error}
        yield {**row, "over": over, **facts}


def worst(rows: list[dict[str, Any]], name: str) -> float:
    """The largest error over its bound among lines of a name, or of all."""
    return max((over for row in rows for line, over in row["over"].items() if line.startswith(name)), default=0.0)


def print_table(rows: list[dict[str, Any]]) -> None:
    """For docs/accuracy.md: of each tier and method the worst of all N and both numbers of devices, line by line."""
    heads = ["tier", "method", "printed", *LINES, "worst", "at N"]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for what in dict.fromkeys((row["precision"], row["method"]) for row in rows):
        same = [row for row in rows if (row["precision"], row["method"]) == what]
        printed = max(row["error_expected"] for row in same)
        over = [f"{worst(same, name):.2f}" for name in (*LINES, "")]
        at = max(same, key=lambda row: worst([row], ""))["n"]
        print("| " + " | ".join([*what, f"{printed:.1e}", *over, str(at)]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="file of rows that is written, one JSON line each")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of a line")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--tiers", nargs="+", default=tuple(TIERS))
    given = parser.parse_args()
    rows = list[dict[str, Any]]()
    for row in measured(tuple(given.sizes), tuple(given.methods), tuple(given.tiers)):
        rows.append(row)
        if given.rows is not None:
            with given.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print_table(rows)
    print(f"\nworst error over its bound: {worst(rows, ''):.2f}")


if __name__ == "__main__":
    main()
