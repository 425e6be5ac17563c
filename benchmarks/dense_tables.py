"""Accuracy, inverses and times of meshfft's dense transform along one dimension: all tables, or those that are named.

One device. Errors are relative, in L2, against sums in np.longdouble with phases reduced exactly. Inputs are Gaussian
noise from a fixed seed, rounded to the type that is tested. Without finufft its columns are empty.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

import meshfft as mf
from meshfft.extras import installed

from .common import noise, powers, relative, table
from .rows import append
from .timing import Call, timed

OUTPUTS = 64  # samples of a transform with fewer samples than inputs
BATCH, ROUNDS = 4096, 15  # columns and rounds of `speed`
MOST = 65536  # points of the longest line
SIZES = [(n, n) for n in (64, 128, 256, 512, 1024)] + [(1024, m) for m in (64, 256)]
PI = np.longdouble("3.14159265358979323846264338327950288")
Row = dict[str, Any]


def main(
    tables: Annotated[list[str] | None, typer.Argument()] = None, most: int = MOST, rows: Path | None = None
) -> None:
    if unknown := [name for name in tables or () if name not in TABLES]:
        raise SystemExit(f"unknown: {' '.join(unknown)}; tables: {' '.join(TABLES)}")
    for name in tables or TABLES:
        found = list(TABLES[name](most))
        print(f"\n**{name}.** {' '.join((TABLES[name].__doc__ or '').split())}\n")
        table(list(found[0]), ([_shown(value) for value in row.values()] for row in found))
        append(rows, [{"table": name} | row for row in found], "finufft")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1e}" if value < 1e-2 or value >= 1e4 else f"{value:.3g}"
    return "" if value is None else str(value)


def exact(turns: Any, logs: Any, columns: int) -> np.ndarray:
    """z_k^-n in longdouble."""
    decay = 1 if logs is None else np.exp(-np.outer(np.asarray(logs, np.longdouble), np.arange(columns)))
    return powers(turns, columns) * decay


def matrix_of(points: mf.Points, columns: int) -> np.ndarray:
    turns = points.in_turns if points.unit == "turns" else np.asarray(points.angle, np.longdouble) / (2 * PI)
    return exact(turns, points.log_radius, columns)


def kdft(x: np.ndarray, points: mf.Points | None, **how: Any) -> np.ndarray:
    with jax.enable_x64(x.dtype == np.complex128):
        return np.asarray(mf.kdftn(x, [points], axes=(0,), **how))


def capped(sizes: tuple[int, ...], most: int) -> list[int]:
    return list(dict.fromkeys(min(n, most) for n in sizes))


def phases(most: int) -> Iterator[Row]:
    """Relative L2 error of one dimension at 64 random fractions t, 4 columns: KDFT, numpy.vander, and exp(-2 pi i n
    t)."""
    for n in capped((64, 1024, 4096, 16384, 65536), most):
        row: Row = {"N": n}
        for dtype in ("complex64", "complex128"):
            rng = np.random.default_rng(n)
            t, x = rng.random(OUTPUTS), noise((n, 4), dtype, n + 1)
            truth, real = exact(t, None, n) @ x, x.real.dtype
            powers = np.vander(np.exp(-2j * np.pi * t).astype(dtype), n, increasing=True)
            turns = np.outer(t.astype(real), np.arange(n, dtype=real))
            unreduced = np.exp(real.type(-2 * np.pi) * turns * np.array(1j, dtype))
            row[f"KDFT, {dtype}"] = relative(kdft(x, mf.Points.turns(t)), truth)
            row["`numpy.vander`, " + dtype] = relative(powers @ x, truth)
            row[f"n t in {real}"] = relative(unreduced @ x, truth)
        yield row


def families(n: int) -> dict[str, mf.Points]:
    rng, cells = np.random.default_rng(n), np.arange(n)
    jittered = {j: (cells + j * rng.uniform(-1, 1, n)) / n for j in (0.25, 0.5)}
    return {
        "uniform": mf.Points.uniform(n),
        **{f"jitter {j} cells": mf.Points.turns(turns) for j, turns in jittered.items()},
        "random angles": mf.Points.turns(rng.random(n)),
        "2 N random angles": mf.Points.turns(rng.random(2 * n)),
        "half circle": mf.Points.turns(cells / (2 * n)),
        "radius 0.9, equal angles": mf.Points.z(0.9 * np.exp(2j * np.pi * cells / n)),
        "spiral from 1 to 1.1": mf.Points.chirp(1.0, 1.1 ** (-1 / n) * np.exp(-2j * np.pi / n), n),
    }


def solved(points: mf.Points, n: int, dtype: str, **weights: Any) -> Row:
    """Answer of `ikdftn` to exact samples rounded to the type, for 4 columns, or its refusal."""
    truth = noise((n, 4), "complex128", n + 1)
    samples = (matrix_of(points, n) @ truth).astype(dtype)
    logs = 0.0 if points.log_radius is None else float(np.mean(points.log_radius))
    scale = np.exp(-logs * np.arange(n))[:, None]
    with jax.enable_x64(dtype == "complex128"):
        try:
            found = mf.ikdftn(samples, [points], s=(n,), axes=(0,), **weights)
        except ValueError as refusal:
            said = re.search(r"condition number is ([\d.e+]+)", str(refusal))
            condition = float(said[1]) if said else np.inf
            return {"condition": condition, "by": "", "residual": "", "x": "refused", "scaled x": ""}
        x, residual = np.asarray(found.value), float(found.residual)
    row = {"condition": found.conditions[0], "by": found.methods[0], "residual": residual}
    return row | {"x": relative(x, truth), "scaled x": relative(scale * x, scale * truth)}


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
    """Points that complex64 refuses at N = 64, with tikhonov= or truncation=, in complex128; the condition is that of
    the regularised problem."""
    n = min(64, most)
    for name in ("random angles", "half circle"):
        points = families(n)[name]
        for key, value in (("tikhonov", 1e-6), ("tikhonov", 1e-12), ("truncation", 1e-6), ("truncation", 1e-12)):
            found = solved(points, n, "complex128", **{key: value})
            columns = {key: found[key] for key in ("condition", "residual", "x")}
            yield {"points": name, "asked": f"{key}={value:.0e}"} | columns


def speed(most: int) -> Iterator[Row]:
    """Milliseconds for a complex64 block of N x 4096 along N, one device: medians of 15 interleaved calls. M samples;
    the FFT makes all N. Errors: relative L2 at random points."""
    for n, m in SIZES if most >= MOST else [(most, most)]:
        calls, errors = prepared(n, m)
        middle: Row = {name: 1e3 * one.median for name, one in timed(calls, ROUNDS).items()}
        middle.setdefault("finufft", None)
        ratios = {"dense / FFT": middle["dense, uniform"] / middle["FFT"]}
        ratios["dense / finufft"] = middle["dense, random"] / middle["finufft"] if middle["finufft"] else None
        yield {"N": n, "M": m, **middle, **ratios, **errors}


def prepared(n: int, m: int) -> tuple[dict[str, Call], Row]:
    """The calls to time, and errors of the first samples. finufft gets its data in rows, as it requires.

    finufft's modes are centred: its samples lack the phase of n // 2 modes.
    """
    rng = np.random.default_rng(n)
    turns, x = rng.random(m), noise((n, BATCH), seed=n + 1)
    points, block = mf.Points.turns(turns), jax.device_put(x)
    uniform = None if m == n else mf.Points.zoom(0.0, m / n, m)

    def dense(points: mf.Points | None) -> Call:
        how: Row = {"axes": (0,), "precision": "float32", "multiplications": 4}
        run = jax.jit(lambda x: mf.kdftn(x, [points], **how))
        return lambda: run(block)

    fft = jax.jit(lambda x: mf.fft(x, axis=0))
    calls = {"dense, uniform": dense(uniform), "dense, random": dense(points)}
    calls["FFT"] = lambda: fft(block)
    truth = exact(turns[:OUTPUTS], None, n) @ x[:, :4]
    errors: Row = {"error, dense": relative(calls["dense, random"]()[:OUTPUTS, :4], truth), "error, finufft": None}
    if installed("finufft"):
        plan = import_module("finufft").Plan(2, (n,), n_trans=BATCH, eps=1e-6, isign=-1, dtype="complex64")
        plan.setpts((2 * np.pi * turns).astype(np.float32))
        rows, out = np.ascontiguousarray(x.T), np.empty((BATCH, m), np.complex64)
        calls["finufft"] = lambda: plan.execute(rows, out=out)
        phase = np.exp(-2j * np.pi * (n // 2) * turns[:OUTPUTS])[:, None]
        errors["error, finufft"] = relative(phase * calls["finufft"]()[:4, :OUTPUTS].T, truth)
    return calls, errors


TABLES: dict[str, Callable[[int], Iterator[Row]]] = {one.__name__: one for one in (phases, inverse, regularised, speed)}
