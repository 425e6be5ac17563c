"""Errors over `tol` at drawn sets of scattered points, types 1, 2 and 3; exit code 1 if one exceeds 1.

    error = |found - truth| / max(|truth|, typical)       L2 norms over all results

Rows have the worst set of each type and decade of tolerances. Truth is a direct float64 sum. The typical norm of a
result is that of inputs with random phases, sqrt(number) |inputs|: where a sum cancels, no tolerance relative to it
could hold. Programs are compiled for few shapes, each for ten sets.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import meshfft as mf
from meshfft.nufft.grid.window import LEAST_TOL, WIDTHS, fitted, window

from .common import print_rows
from .rows import Values, grouped, kept

SHAPES = ((1,), (2,), (7,), (32,), (101,), (1000,), (6, 5), (8, 8), (3, 37), (4, 5, 6), (12, 12, 12), (2, 9, 3))
COUNTS = (1, 2, 5, 20, 50)  # of points, as programs are compiled
SPANS = (0.0, 0.3, 4.7, 9.2)  # of type 3: positions times frequencies along a dimension
LONG = 60.7  # in one dimension
EACH = 10  # sets of one program
PLACES = ("even", "cluster", "equal", "cells", "turns", "mixed")
VALUES = ("random", "constant", "alternating", "one", "wave")
EDGES = (0.0, 0.5, 1e-9, -1e-9, 0.25)  # of a cell
COLUMNS = ("kind", "decade", "sets", "error", "single", "dtype", "tol", "shape", "points", "places", "values")


class Program(NamedTuple):
    """Shared properties of sets, so that one compiled program serves them."""

    kind: int  # the type, 1 to 3
    dtype: str
    decade: float  # tolerances from here to ten times as much
    tol: float
    shape: tuple[int, ...]  # of the image; for type 3 only the number of dimensions counts
    held: int  # points with the copies that fill them up
    origin: str
    spans: tuple[float, ...]  # of type 3
    grid: tuple[int, ...]  # cells


def main(sets: int = 5000, seed: int = 0, rows: Path | None = None) -> None:
    jax.config.update("jax_platforms", "cpu")
    found = list(measured(sets, seed))
    show(found, rows)
    if exceeding := [row for row in found if row["error"] > 1]:
        raise SystemExit(f"{len(exceeding)} sets exceed tol, as {exceeding[0]}")


def show(found: list[Values], path: Path | None = None) -> None:
    """Prints and writes the worst set of each type and decade of tolerances."""
    alike = grouped(found, lambda row: (row["kind"], row["decade"]))
    worst = (max(same, key=lambda row: row["error"]) | {"sets": len(same)} for same in alike)
    print_rows(kept(path, worst), COLUMNS)


def measured(sets: int, seed: int, each: int = EACH) -> Iterator[Values]:
    """A row for each set, `each` of one program, over all types, precisions and decades."""
    decades = [(dtype, 10.0**-k) for dtype in LEAST_TOL for k in range(1, 13) if 10.0**-k >= LEAST_TOL[dtype] * 0.99]
    families = [(kind, *decade) for kind in (1, 2, 3) for decade in decades]
    for at in range(math.ceil(sets / each)):
        rng = np.random.default_rng((seed, at))
        kind, dtype, decade = families[at % len(families)]
        with jax.enable_x64(dtype == "complex128"):
            program = _program(rng, kind, dtype, decade)
            for _ in range(min(each, sets - at * each)):
                yield {**program._asdict(), "program": at, "dims": len(program.shape), **_set(rng, program)}


def _program(rng: np.random.Generator, kind: int, dtype: str, decade: float) -> Program:
    shape, count = SHAPES[rng.integers(len(SHAPES))], int(rng.choice(COUNTS))
    origin = str(rng.choice(["corner", "centre"]))
    tol = _tolerance(rng, kind, dtype, decade, len(shape))
    spans = tuple(float(s) for s in rng.choice((*SPANS, LONG) if len(shape) == 1 else SPANS, len(shape)))
    if kind == 3:
        wide = 2 * window(tol / 2, 2.0, len(shape), np.dtype(dtype)).width + 2
        grid = tuple(2 * mf.next_fast_len(math.ceil(2 * max(span, 4.0)) + wide) for span in spans)
    else:  # the cells do not depend on where points are
        points = mf.Scattered.lengths(np.zeros((count, len(shape))))
        grid = mf.scattered_plan(shape, points, tol=tol, origin=origin, dtype=dtype).grid
    return Program(kind, dtype, decade, tol, shape, count, origin, spans, grid)


def _tolerance(rng: np.random.Generator, kind: int, dtype: str, decade: float, dims: int) -> float:
    """The decade's least tolerance, a random one, or the least that some window reaches."""
    windows = 2 if kind == 3 else 1
    held = (fitted(width, 2.0).worst * dims * windows * (1 + 1e-6) for width in WIDTHS)
    tight = min(tol for tol in (*held, 0.5) if tol >= decade)
    tol = rng.choice([decade, decade * 10 ** rng.random(), tight])
    return float(min(max(tol, LEAST_TOL[dtype] * windows), 0.5))


def _set(rng: np.random.Generator, program: Program) -> Values:
    """Errors over the tolerance of one set: of all results, and of a single one over the sum of all |inputs|."""
    kind, tol = program.kind, program.tol
    places, values = str(rng.choice(PLACES)), str(rng.choice(VALUES))
    lowest = max((count for count in COUNTS if count < program.held), default=0) + 1
    used = int(rng.integers(lowest, program.held + 1))
    points, sums = (_lengths if kind == 3 else _image)(rng, program, places)
    points[used:] = points[0]
    phases = np.exp((2j if kind == 1 else -2j) * np.pi * ((points @ sums.T) % 1))
    matrix = phases if kind == 2 else phases.T
    inputs = _values(rng, values, matrix, used if kind != 2 else matrix.shape[1]).astype(program.dtype)
    many = used if kind == 2 else len(matrix)  # of results; the rest are copies
    truth, found = (matrix @ inputs.astype(complex))[:many], _found(program, points, sums, inputs)[:many]
    miss, typical = np.abs(found - truth), math.sqrt(many) * np.linalg.norm(inputs)
    error = float(np.linalg.norm(miss) / max(np.linalg.norm(truth), typical) / tol)
    single = float(miss.max() / np.abs(inputs).sum() / tol)
    return {"places": places, "values": values, "points": used, "error": error, "single": single}


def _image(rng: np.random.Generator, program: Program, places: str) -> tuple[np.ndarray, np.ndarray]:
    size = (program.held, len(program.shape))
    points = _placed(rng, places, size, np.array(program.grid, float))
    axes = [np.arange(n) - (n // 2 if program.origin == "centre" else 0) for n in program.shape]
    modes = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes)).astype(float)
    return points, modes


def _lengths(rng: np.random.Generator, program: Program, places: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions and as many frequencies of type 3, which span the same in every set of a program."""
    spans, unit = np.array(program.spans), 10.0 ** rng.integers(-2, 3)
    positions, frequencies = 2 * np.maximum(spans, 4), np.array(program.grid) / 2  # cells of their span
    found = []
    for cells, scale in ((positions, unit), (frequencies, 1 / unit)):
        turns = (_placed(rng, places, (program.held, len(spans)), cells) + 0.5) % 1 - 0.5
        if program.held > 1:
            turns[:2] = [[-0.5], [0.5]]
        found.append((turns + rng.choice([0.0, 3.3, -0.7])) * np.sqrt(spans) * scale)
    return found[0], found[1]


def _placed(rng: np.random.Generator, places: str, size: tuple[int, int], cells: np.ndarray) -> np.ndarray:
    edges = (rng.integers(0, 1000, size) % cells + rng.choice(EDGES, size)) / cells
    if places == "cluster":
        return rng.random(size[1]) + 1e-3 * rng.standard_normal(size)
    if places == "equal":
        return np.repeat(edges[:1], size[0], 0)
    if places == "cells":
        return edges
    turns = rng.choice([0.5, -0.5, 0.0, 0.5 - 1e-12, 1e-12 - 0.5, 3.5, 1.0], size)
    if places == "turns":
        return turns
    even = rng.random(size) - 0.5
    if places == "even":
        return even
    return np.where(rng.random(size) < 0.5, edges, np.where(rng.random(size) < 0.5, turns, even))


def _values(rng: np.random.Generator, values: str, matrix: np.ndarray, used: int) -> np.ndarray:
    size, there = matrix.shape[1], np.arange(matrix.shape[1])
    if values == "one":  # a column of the matrix: half of the time that of the first or last sample
        one = int(rng.choice([0, used - 1, int(rng.integers(used))]))
        return np.where(there == one, 1.0 + 0.5j, 0)
    found = {
        "random": rng.standard_normal(size) + 1j * rng.standard_normal(size),
        "constant": np.full(size, 1.0 + 0.3j),
        "alternating": (-1.0 + 0j) ** there,
        "wave": matrix[int(rng.choice([0, -1, int(rng.integers(len(matrix)))]))].conj(),
    }[values]
    return np.where(there < used, found, 0)


def _found(program: Program, points: np.ndarray, sums: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    turns = mf.Scattered.lengths(points)  # also cycles per sample, but never read as radians
    how: Values = {"tol": program.tol, "origin": program.origin}
    if program.kind == 1:
        return np.asarray(mf.nufftn_adjoint(inputs, turns, program.shape, **how)).reshape(-1)
    if program.kind == 2:
        return np.asarray(mf.nufftn(inputs.reshape(program.shape), turns, **how))
    return np.asarray(mf.nufftn_type3(inputs, points, mf.Scattered.lengths(sums), tol=program.tol))
