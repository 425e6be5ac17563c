"""Caches: every one is bounded, and what many shapes leave in them."""

import contextlib
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np

import meshfft
from meshfft.kernels import stockham
from meshfft.layout.layout import Layout
from meshfft.plans import execute
from meshfft.walks import choice
from meshfft.walks.walk import Walk

SHAPES = 300


def caches() -> Iterator[tuple[str, Any]]:
    """Every function of the package that remembers its results, by name."""
    for found in pkgutil.walk_packages(meshfft.__path__, "meshfft."):
        with contextlib.suppress(ImportError):  # of extras that are not there
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if hasattr(value, "cache_info") and value.__module__ == found.name:
                    yield f"{found.name}.{name}", value


def test_every_cache_is_bounded() -> None:
    """Catches an unbounded cache: a process that uses many shapes would grow without end."""
    kept = dict(caches())
    assert "meshfft.plans.execute._program" in kept
    assert "meshfft.spectral.fields._program" in kept
    assert [name for name, cache in kept.items() if cache.cache_info().maxsize is None] == []


def test_many_shapes_leave_no_more_than_the_bounds() -> None:
    """Catches programs and tables that are kept for each of many shapes: tables hold as many numbers as a line."""
    for n in range(1, SHAPES + 1):
        execute._program(Walk(Layout((n,), ((),)), ()), None, np.dtype(np.complex64), False, None, True, False)
        stockham.table(n, 4, 4 * n, -1, np.dtype(np.complex64))
    sizes = {cache.__name__: cache.cache_info().currsize for cache in (execute._program, stockham.table)}
    assert max(sizes.values()) <= execute.PROGRAMS < SHAPES, sizes
    assert choice.find_walk.cache_info().maxsize is not None
