"""Accuracy, inverses and times of meshfft's dense transform along one dimension, as Markdown tables.

    python -m benchmarks dense_tables                        (every table, about a minute and a half on two quiet cores)
    python -m benchmarks dense_tables tiers phases spirals inverse regularised speed      (some of them)
    python -m benchmarks dense_tables --most 16 --rows FILE  (sizes to 16, and one JSON line a row, appended)

One device, one process. Every error is a relative L2 error against sums in NumPy's longdouble (80 bits on x86) with
phases reduced exactly. Inputs are complex Gaussian noise from a fixed seed, rounded to the type that is tested. `speed`
interleaves its cases: a round times each once, in an order shuffled every time. SciPy and finufft are optional:
without them their columns are empty.
"""

import argparse
import json
import re
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import meshfft as mf
from benchmarks.jsonl import append
from benchmarks.made import circumstances
from benchmarks.measure.timing import Spread, interleaved, spread, timer
from meshfft.numerics.dtypes import TIERS, WIDE

try:
    import scipy.signal
except ImportError:
    scipy = None
try:
    import finufft
except ImportError:
    finufft = None

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy", "scipy", "finufft")
OUTPUTS = 64  # samples of a transform, where not as many as inputs
BATCH, ROUNDS = 4096, 15  # columns and rounds of `speed`
MOST = 65536  # points of the longest line
SIZES = [(n, n) for n in (16, 31, 32, 64, 127, 128, 251, 256, 509, 512, 1024)] + [(1024, m) for m in (16, 64, 256)]
PI = np.longdouble("3.14159265358979323846264338327950288")
Row = dict[str, Any]


def noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def exact(turns: Any, logs: Any, columns: int) -> np.ndarray:
    """z_k^-n in longdouble; the upper half of a turn times n is exact, so that it is reduced without loss."""
    t, n = np.asarray(turns, np.longdouble)[:, None], np.arange(columns, dtype=np.longdouble)
    high = np.rint(t * 2**32) / 2**32
    angle = 2 * PI * ((high * n) % 1 + (t - high) * n)
    matrix = np.cos(angle) - 1j * np.sin(angle)
    return matrix if logs is None else matrix * np.exp(-n * np.asarray(logs, np.longdouble)[:, None])


def matrix_of(points: mf.Points, columns: int) -> np.ndarray:
    turns = points.in_turns if points.unit == "turns" else np.asarray(points.angle, np.longdouble) / (2 * PI)
    return exact(turns, points.log_radius, columns)


def error(found: Any, truth: np.ndarray) -> float:
    wide = np.asarray(found).astype(np.clongdouble)
    return float(np.sqrt(np.sum(np.abs(wide - truth) ** 2) / np.sum(np.abs(truth) ** 2)))


def kdft(x: np.ndarray, points: mf.Points | None, **how: Any) -> np.ndarray:
    with jax.enable_x64(x.dtype == np.complex128):
        return np.asarray(mf.kdftn(x, [points], axes=(0,), **how))


def capped(sizes: tuple[int, ...], most: int) -> list[int]:
    return list(dict.fromkeys(min(n, most) for n in sizes))


def tiers(most: int) -> Iterator[Row]:
    """Relative L2 error of one dimension by tier: 64 random samples of N, 16 columns. Stated: numerics.dtypes.TIERS."""
    for tier, facts in TIERS.items():
        for multiplications, stated in facts.error.items():
            row: Row = {"precision": tier, "multiplications": multiplications}
            for n in capped((64, 1024, 8192), most):
                rng = np.random.default_rng(n)
                points = mf.Points.turns(rng.integers(n, size=OUTPUTS) / n)
                x = noise(rng, n, 16).astype("complex128" if tier in WIDE else "complex64")
                found = kdft(x, points, precision=tier, multiplications=multiplications)
                row[f"N = {n}"] = error(found, matrix_of(points, n) @ x.astype(np.clongdouble))
            yield row | {"stated": stated}


def phases(most: int) -> Iterator[Row]:
    """Relative L2 error of one dimension at 64 random turns t, 4 columns: KDFT, numpy.vander, and exp(-2 pi i n t)."""
    for n in capped((64, 1024, 4096, 16384, 65536), most):
        row: Row = {"N": n}
        for dtype in ("complex64", "complex128"):
            rng = np.random.default_rng(n)
            t, x = rng.random(OUTPUTS), noise(rng, n, 4).astype(dtype)
            truth, real = exact(t, None, n) @ x.astype(np.clongdouble), x.real.dtype
            powers = np.vander(np.exp(-2j * np.pi * t).astype(dtype), n, increasing=True)
            turns = np.outer(t.astype(real), np.arange(n, dtype=real))
            unreduced = np.exp(real.type(-2 * np.pi) * turns * np.array(1j, dtype))
            row[f"KDFT, {dtype}"] = error(kdft(x, mf.Points.turns(t)), truth)
            row["`numpy.vander`, " + dtype] = error(powers @ x, truth)
            row[f"n t in {real}"] = error(unreduced @ x, truth)
        yield row


def spirals(most: int) -> Iterator[Row]:
    """Relative L2 error in complex128 on spirals z_k = w^-k (M = N) and on a zoom window (f = 1/8 to 1/4, M = 64)."""
    for size in (1.0, 0.9999, 0.999, 0.99):
        for n in capped((256, 1024), most):
            w = size * np.exp(-2j * np.pi / n)
            step = np.log(np.clongdouble(w))
            turns, logs = -step.imag / (2 * PI) * np.arange(n), -step.real * np.arange(n)
            x = noise(np.random.default_rng(n), n)
            row = {"points": f"spiral, abs(w) = {size}", "N": n}
            yield row | compared(x, mf.Points.chirp(1.0, w, n), turns, logs, {"czt": {"m": n, "w": w}})
    for n in capped((1024, 65536), most):
        points, x = mf.Points.zoom(0.125, 0.25, OUTPUTS), noise(np.random.default_rng(n), n)
        w, a = np.exp(-2j * np.pi * 0.125 / OUTPUTS), np.exp(2j * np.pi * 0.125)
        baselines = {"czt": {"m": OUTPUTS, "w": w, "a": a}, "zoom_fft": {"fn": [0.125, 0.25], "m": OUTPUTS, "fs": 1}}
        turns = np.longdouble(0.125) + np.arange(OUTPUTS) / np.longdouble(8 * OUTPUTS)
        yield {"points": "zoom window", "N": n} | compared(x, points, turns, None, baselines)


def compared(x: np.ndarray, points: mf.Points, turns: Any, logs: Any, baselines: dict[str, dict[str, Any]]) -> Row:
    truth, row = exact(turns, logs, len(x)) @ x.astype(np.clongdouble), {}
    row["KDFT"] = attempted(lambda: error(kdft(x, points), truth))
    for name in ("czt", "zoom_fft"):
        row[f"`scipy.signal.{name}`"] = None
        if scipy is not None and name in baselines:
            row[f"`scipy.signal.{name}`"] = attempted(
                lambda n=name: error(getattr(scipy.signal, n)(x, **baselines[n]), truth)
            )
    return row


def attempted(measure: Callable[[], float]) -> float | str:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = measure()
    except ValueError:
        return "refused"
    return found if np.isfinite(found) else "not finite"


def condition_in(refusal: ValueError) -> float:
    """The condition number that a refusal names; infinite where it names none."""
    found = re.search(r"condition number is ([\d.e+]+)", str(refusal))
    return float(found[1]) if found else np.inf


def families(n: int) -> dict[str, mf.Points]:
    rng, cells = np.random.default_rng(n), np.arange(n)
    jittered = {j: (cells + j * rng.uniform(-1, 1, n)) / n for j in (0.1, 0.25, 0.5)}
    return {
        "uniform": mf.Points.uniform(n),
        **{f"jitter {j} cells": mf.Points.turns(turns) for j, turns in jittered.items()},
        "random angles": mf.Points.turns(rng.random(n)),
        "2 N random angles": mf.Points.turns(rng.random(2 * n)),
        "half circle": mf.Points.turns(cells / (2 * n)),
        "zoom window, 1/8 circle": mf.Points.zoom(0.125, 0.25, n),
        "radius 0.9, equal angles": mf.Points.z(0.9 * np.exp(2j * np.pi * cells / n)),
        "radius 0.9, jitter 0.25": mf.Points.z(0.9 * np.exp(2j * np.pi * jittered[0.25])),
        "spiral from 1 to 1.1": mf.Points.chirp(1.0, 1.1 ** (-1 / n) * np.exp(-2j * np.pi / n), n),
    }


def solved(points: mf.Points, n: int, dtype: str, **weights: Any) -> Row:
    """What `ikdftn` answers to exact samples rounded to the type: of 4 columns, or that it refuses."""
    truth = noise(np.random.default_rng(n + 1), n, 4)
    samples = (matrix_of(points, n) @ truth.astype(np.clongdouble)).astype(dtype)
    logs = 0.0 if points.log_radius is None else float(np.mean(points.log_radius))
    scale = np.exp(-logs * np.arange(n))[:, None]
    with jax.enable_x64(dtype == "complex128"):
        try:
            found = mf.ikdftn(samples, [points], s=(n,), axes=(0,), **weights)
        except ValueError as refusal:
            return {"condition": condition_in(refusal), "by": "", "residual": "", "x": "refused", "scaled x": ""}
        x, residual = np.asarray(found.value), float(found.residual)
    row = {"condition": found.conditions[0], "by": found.methods[0], "residual": residual}
    return row | {"x": error(x, truth), "scaled x": error(scale * x, scale * truth)}


def inverse(most: int) -> Iterator[Row]:
    """mf.ikdftn from exact samples rounded to the type: residual, and relative L2 error of x and of x_n rho^-n, rho the
    mean radius."""
    for n in capped((64, 256), most):
        for name, points in families(n).items():
            found = {short: solved(points, n, dtype) for short, dtype in (("c64", "complex64"), ("c128", "complex128"))}
            row = {"points": name, "N": n, "condition": found["c128"]["condition"], "solved by": found["c128"]["by"]}
            for short, values in found.items():
                row |= {f"{key}, {short}": values[key] for key in ("residual", "x", "scaled x")}
            yield row


def regularised(most: int) -> Iterator[Row]:
    """What complex64 refuses at N = 64, with tikhonov= or truncation=, in complex128. Condition: of what is solved
    instead."""
    n = min(64, most)
    for name, points in families(n).items():
        for weights in ({"tikhonov": 1e-6}, {"tikhonov": 1e-12}, {"truncation": 1e-6}, {"truncation": 1e-12}):
            if solved(points, n, "complex64")["x"] == "refused":
                found = solved(points, n, "complex128", **weights)
                asked = ", ".join(f"{key}={value:.0e}" for key, value in weights.items())
                yield {"points": name, "asked": asked} | {key: found[key] for key in ("condition", "residual", "x")}


def speed(most: int) -> Iterator[Row]:
    """Milliseconds for a complex64 block of N x 4096 along N, one device: medians of 15 interleaved calls. M samples;
    the FFT makes all N. Spread: the middle half of the times over their median, the median of all cases. Errors:
    relative L2, random turns."""
    for n, m in SIZES if most >= MOST else [(most, most)]:
        calls, errors = prepared(n, m)
        times = interleaved([timer(call) for call in calls.values()], ROUNDS)
        quarters = [Spread(*(1e3 * value for value in spread(seconds))) for seconds in times]
        middle = {name: q.median for name, q in zip(calls, quarters, strict=True)}
        middle |= {} if finufft else {"finufft": None}
        apart = statistics.median((q.high - q.low) / q.median for q in quarters)
        ratios = {"dense / FFT": middle["dense, uniform"] / middle["FFT"]}
        ratios["dense / finufft"] = middle["dense, random"] / middle["finufft"] if finufft else None
        yield {"N": n, "M": m, **middle, **ratios, "spread": apart, **errors}


def prepared(n: int, m: int) -> tuple[dict[str, Callable[[], Any]], Row]:
    """The calls to time, each made once, and errors of the first samples. finufft's data lie in rows, as it wants them.

    finufft's modes are centred: its samples lack the phase of n // 2 modes.
    """
    rng = np.random.default_rng(n)
    turns, x = rng.random(m), noise(rng, n, BATCH).astype(np.complex64)
    points, block = mf.Points.turns(turns), jax.device_put(x)
    uniform = None if m == n else mf.Points.zoom(0.0, m / n, m)

    def dense(points: mf.Points | None, multiplications: int) -> Callable[[], Any]:
        how = {"axes": (0,), "precision": "float32", "multiplications": multiplications}
        run = jax.jit(lambda x: mf.kdftn(x, [points], **how))
        return lambda: run(block)

    fft = jax.jit(lambda x: mf.fft(x, axis=0))
    calls = {"dense, uniform": dense(uniform, 4), "3 mult.": dense(uniform, 3), "dense, random": dense(points, 4)}
    calls["FFT"] = lambda: fft(block)
    truth = exact(turns[:OUTPUTS], None, n) @ x[:, :4].astype(np.clongdouble)
    errors = {"error, dense": error(calls["dense, random"]()[:OUTPUTS, :4], truth), "error, finufft": None}
    if finufft is not None:
        plan = finufft.Plan(2, (n,), n_trans=BATCH, eps=1e-6, isign=-1, dtype="complex64")
        plan.setpts((2 * np.pi * turns).astype(np.float32))
        rows, out = np.ascontiguousarray(x.T), np.empty((BATCH, m), np.complex64)
        calls["finufft"] = lambda: plan.execute(rows, out=out)
        phase = np.exp(-2j * np.pi * (n // 2) * turns[:OUTPUTS])[:, None]
        errors["error, finufft"] = error(phase * calls["finufft"]()[:4, :OUTPUTS].T, truth)
    for call in calls.values():
        jax.block_until_ready(call())
    return calls, errors


TABLES: dict[str, Callable[[int], Iterator[Row]]] = {
    table.__name__: table for table in (tiers, phases, spirals, inverse, regularised, speed)
}


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1e}" if value < 1e-2 or value >= 1e4 else f"{value:.3g}"
    return "" if value is None else str(value)


def markdown(rows: list[Row]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([shown(value) for value in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--most", type=int, default=MOST, help="the largest size")
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    if unknown := [name for name in given.tables if name not in TABLES]:
        parser.error(f"unknown: {' '.join(unknown)}; tables: {' '.join(TABLES)}")
    return given


def main() -> None:
    given = arguments()
    print(json.dumps(circumstances(PACKAGES)))
    for name in given.tables:
        rows = list(TABLES[name](given.most))
        title = " ".join((TABLES[name].__doc__ or "").split())
        print(f"\n**{name}.** {title}\n\n{markdown(rows)}", flush=True)
        append(given.rows, [{"table": name} | row for row in rows], PACKAGES)


if __name__ == "__main__":
    main()
