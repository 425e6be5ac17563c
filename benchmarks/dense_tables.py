"""Accuracy, inverses and times of meshfft's dense transform along one dimension: all tables, or those that are named.

One device. Errors are relative, in L2, against sums in np.longdouble with phases reduced exactly. Inputs are Gaussian
noise from a fixed seed, rounded to the type that is tested. Without finufft its columns are left out.
"""

import itertools
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

import meshfft as mf
from meshfft.extras import installed

from .common import noise, powers, print_rows, relative
from .rows import Values, kept
from .timing import Call, timed

OUTPUTS = 64  # samples of a transform with fewer samples than inputs
BATCH, ROUNDS = 4096, 15  # columns and rounds of `speed`
REFUSED = ("random angles", "half circle")
SIZES = [(n, n) for n in (64, 128, 256, 512, 1024)] + [(1024, m) for m in (64, 256)]
Names = Annotated[list[str] | None, typer.Argument()]
PI = np.longdouble("3.14159265358979323846264338327950288")


def main(tables: Names = None, most: int = 65536, rows: Path | None = None) -> None:
    if unknown := [name for name in tables or () if name not in TABLES]:
        raise SystemExit(f"unknown: {' '.join(unknown)}; tables: {' '.join(TABLES)}")
    for name in tables or TABLES:
        print(f"\n**{name}.** {' '.join((TABLES[name].__doc__ or '').split())}\n")
        print_rows(kept(rows, ({"table": name} | row for row in TABLES[name](most)), "finufft"))


def matrix_of(points: mf.Points, columns: int) -> np.ndarray:
    """z_k^-n in longdouble."""
    turns = points.in_turns if points.unit == "turns" else np.asarray(points.angle, np.longdouble) / (2 * PI)
    logs = np.asarray(0.0 if points.log_radius is None else points.log_radius, np.longdouble)
    return powers(turns, columns) * np.exp(-np.multiply.outer(logs, np.arange(columns)))


def phases(most: int) -> Iterator[Values]:
    """Relative L2 error of one dimension at 64 random fractions t, 4 columns: KDFT and numpy.vander."""
    for n in (size for size in (64, 1024, 4096, 16384, 65536) if size <= most):
        row: Values = {"N": n}
        for dtype in ("complex64", "complex128"):
            rng = np.random.default_rng(n)
            t, x = rng.random(OUTPUTS), noise((n, 4), dtype, n + 1)
            truth = powers(t, n) @ x
            vander = np.vander(np.exp(-2j * np.pi * t).astype(dtype), n, increasing=True)
            with jax.enable_x64(dtype == "complex128"):
                found = mf.kdftn(x, [mf.Points.turns(t)], axes=(0,))
            row[f"KDFT, {dtype}"] = relative(found, truth)
            row["`numpy.vander`, " + dtype] = relative(vander @ x, truth)
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


def solved(points: mf.Points, n: int, dtype: str, **weights: Any) -> Values:
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
            return {"condition": condition, "by": "", "x": "refused", "scaled x": ""}
        x = np.asarray(found.value)
    errors = {"x": relative(x, truth), "scaled x": relative(scale * x, scale * truth)}
    return {"condition": found.conditions[0], "by": found.methods[0], **errors}


def inverse(most: int) -> Iterator[Values]:
    """mf.ikdftn from exact samples rounded to the type: relative L2 error of x and of x_n rho^-n, rho the mean
    radius."""
    for n in (size for size in (64, 256) if size <= most):
        for name, points in families(n).items():
            row: Values = {"points": name, "N": n}
            for short, dtype in (("c64", "complex64"), ("c128", "complex128")):
                found = solved(points, n, dtype)
                row |= {"condition": found["condition"], "solved by": found["by"]}  # of complex128 in the end
                row |= {f"{key}, {short}": found[key] for key in ("x", "scaled x")}
            yield row


def regularised(most: int) -> Iterator[Values]:
    """Points that complex64 refuses at N = 64, with tikhonov= or truncation=, in complex128: relative L2 error of x."""
    for name, key, value in itertools.product(REFUSED, ("tikhonov", "truncation"), (1e-6, 1e-12)):
        found = solved(families(64)[name], 64, "complex128", **{key: value})
        yield {"points": name, "asked": f"{key}={value:.0e}", "x": found["x"]}


def speed(most: int) -> Iterator[Values]:
    """Milliseconds for a complex64 block of N x 4096 along N, one device: medians of 15 interleaved calls. M samples;
    the FFT makes all N. Errors: relative L2 at random points."""
    for n, m in (size for size in SIZES if size[0] <= most):
        calls, errors = prepared(n, m)
        middle = {name: 1e3 * one.median for name, one in timed(calls, ROUNDS).items()}
        ratios = {"dense / FFT": middle["dense, uniform"] / middle["FFT"]}
        if "finufft" in middle:
            ratios["dense / finufft"] = middle["dense, random"] / middle["finufft"]
        yield {"N": n, "M": m, **middle, **ratios, **errors}


def prepared(n: int, m: int) -> tuple[dict[str, Call], Values]:
    """The calls to time, and errors of the first samples. finufft gets its data in rows, as it requires."""
    rng = np.random.default_rng(n)
    turns, x = rng.random(m), noise((n, BATCH), seed=n + 1)
    points, block = mf.Points.turns(turns), jax.device_put(x)
    uniform = None if m == n else mf.Points.zoom(0.0, m / n, m)

    def dense(points: mf.Points | None) -> Call:
        how: Values = {"axes": (0,), "precision": "float32", "multiplications": 4}
        run = jax.jit(lambda x: mf.kdftn(x, [points], **how))
        return lambda: run(block)

    fft = jax.jit(lambda x: mf.fft(x, axis=0))
    calls = {"dense, uniform": dense(uniform), "dense, random": dense(points)}
    calls["FFT"] = lambda: fft(block)
    truth = powers(turns[:OUTPUTS], n) @ x[:, :4]
    errors = {"error, dense": relative(calls["dense, random"]()[:OUTPUTS, :4], truth)}
    if installed("finufft"):
        plan = import_module("finufft").Plan(2, (n,), n_trans=BATCH, eps=1e-6, isign=-1, dtype="complex64")
        plan.setpts((2 * np.pi * turns).astype(np.float32))
        phase = np.exp(-2j * np.pi * ((n // 2) * turns % 1)).astype(np.complex64)  # its modes are centred
        rows, out = np.ascontiguousarray(x.T), np.empty((BATCH, m), np.complex64)
        calls["finufft"] = lambda: plan.execute(rows, out=out)
        found = (phase * calls["finufft"]()[:4]).T
        errors["error, finufft"] = relative(found[:OUTPUTS], truth)
    return calls, errors


TABLES = {one.__name__: one for one in (phases, inverse, regularised, speed)}
