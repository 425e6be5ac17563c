"""Truth: direct sums in float64 and a plain Dijkstra search, with noise and meshes for tests."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from meshfft.machine import chips, topology
from meshfft.plans import request
from meshfft.steps import Problem
from meshfft.walks.search import offered

AXES = "xyzw"
TWO_PI = Fraction(6_28318530717958647692528676655900576839433879875021164194989, 10**59)


def dft(x: np.ndarray, axes: Sequence[int], s: Sequence[int] | None = None, sign: int = -1) -> np.ndarray:
    """sum_n x[n] exp(sign 2 pi i k n / N) along each axis, term by term, phases reduced in integers."""
    y = x.astype(np.complex128)
    for axis, length in zip(axes, s or [x.shape[a] for a in axes], strict=True):
        kept = min(length, y.shape[axis])
        turns = np.outer(np.arange(length), np.arange(kept)) % length / length
        cropped = np.take(y, np.arange(kept), axis)
        y = np.moveaxis(np.tensordot(np.exp(sign * 2j * np.pi * turns), cropped, (1, axis)), 0, axis)
    return y


def powers(turns: Any, log_radius: Any, n: int) -> np.ndarray:
    """V[k, n] = exp(-n (log_radius_k + 2 pi i turns_k)), with angles kept to 2^-64 and exact multiples."""
    fixed = np.array([int(Fraction(t) % 1 * 2**64) for t in np.asarray(turns).tolist()], np.uint64)
    phase = (fixed[:, None] * np.arange(n, dtype=np.uint64)).view(np.int64) * 2.0**-64
    matrix = np.exp(-2j * np.pi * phase)
    if log_radius is not None:
        matrix *= np.exp(-np.arange(n) * np.asarray(log_radius, np.longdouble)[:, None]).astype(float)
    return matrix


def in_turns(radians: Any) -> list[Fraction]:
    """Exact angles in cycles, from radians."""
    return [Fraction(float(w)) / TWO_PI for w in radians]


def separable(x: np.ndarray, matrices: Sequence[np.ndarray | None], axes: Sequence[int] | None = None) -> np.ndarray:
    """A matrix along each axis, None for the identity."""
    for axis, matrix in zip(range(x.ndim) if axes is None else axes, matrices, strict=True):
        x = x if matrix is None else np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    return x


def noise(shape: Sequence[int], dtype: str = "complex64", seed: int = 0) -> np.ndarray:
    """Gaussian noise, complex if the type is."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def error(y: object, truth: np.ndarray) -> float:
    """Relative L2 error."""
    norm = float(np.linalg.norm(truth))
    return float(np.linalg.norm(np.asarray(y) - truth)) / (norm or 1.0)


def mesh(sizes: Sequence[int], kind: AxisType = AxisType.Auto) -> Mesh:
    """A mesh with axes x, y, z, w over the first devices."""
    count = int(np.prod(sizes))
    return jax.make_mesh(tuple(sizes), tuple(AXES[: len(sizes)]), (kind,) * len(sizes), devices=jax.devices()[:count])


@contextlib.contextmanager
def chips_without_caches(wanted: bool = True) -> Iterator[None]:
    """Plans for CPUs take dense products by planes, as those for TPUs and GPUs do."""
    row = dataclasses.replace(chips.CPU, cached=not wanted)
    seen = (topology.machine_of, request._by_sharding)
    with mock.patch.object(topology, "chip_for", lambda *of: row):
        for cache in seen:
            cache.cache_clear()
        try:
            yield
        finally:
            for cache in seen:
                cache.cache_clear()


def at_points(x: np.ndarray, turns: Any, axes: Sequence[int] | None = None, centred: bool = False) -> np.ndarray:
    """sum_n x[n] exp(-2 pi i k_j . n) at points (M, d), term by term, with the points as the last axis."""
    turns = np.asarray(turns, float)
    axes = range(x.ndim - turns.shape[1], x.ndim) if axes is None else axes
    y = np.moveaxis(x.astype(np.complex128), axes, range(-len(axes), 0))
    for j, n in reversed(list(enumerate(y.shape[y.ndim - len(axes) :]))):
        matrix = powers(turns[:, j], None, n)
        if centred:
            matrix = matrix / powers(turns[:, j], None, n // 2 + 1)[:, -1:]
        first = j == len(axes) - 1
        y = np.einsum("...n,mn->...m", y, matrix) if first else np.einsum("...nm,mn->...m", y, matrix)
    return y


def cheapest(problem: Problem) -> float:
    """Price of the cheapest walk by plain Dijkstra, to compare with the search with bounds."""
    best = {(problem.start, frozenset[int]()): 0.0}
    todo = set(best)
    goals = []
    while todo:
        node = min(todo, key=best.__getitem__)
        todo.remove(node)
        layout, done = node
        if not problem.todo(done) and (layout == problem.goal if problem.goal else layout.tail):
            goals.append(best[node])
            break
        for step in offered(problem, layout, problem.todo(done)):
            after = (step.after(layout), done.union(step.dims))
            work = step.work(layout, problem.bytes_at(problem.todo(done)), problem.machine.chip)
            price = best[node] + problem.machine.price(work)
            if price < best.get(after, np.inf):
                best[after] = price
                todo.add(after)
    return min(goals)
