"""Every public function in programs optimised as users have them: the tests that run by default spare that effort."""

from collections.abc import Callable
from typing import Any

import everywhere
import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from reference import error, mesh

import meshfft as mf

GROUPS = [(group, AxisType.Auto) for group in everywhere.AUTO]
GROUPS += [(group, AxisType.Explicit) for group in everywhere.EXPLICIT]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "kind"), GROUPS, ids=lambda of: getattr(of, "__name__", str(of)))
def test_what_numpy_and_scipy_compute(group: Callable[..., everywhere.Rows], kind: AxisType) -> None:
    """Catches numbers that only fused or vectorised code gets wrong, such as sums whose order matters."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as users have JAX
        rows = list(group(mf, mesh((2, 2, 2), kind)))
    assert rows
    for name, found, truth in rows:
        for y, exact in zip(jax.tree.leaves(found), jax.tree.leaves(truth), strict=True):
            bound = 2e-14 if y.dtype.name in ("float64", "complex128") else 4e-6
            assert error(_wide(y), _wide(exact)) <= bound, name


def _wide(x: Any) -> np.ndarray:
    """In the double precision of its kind: norms of narrow types overflow."""
    return np.asarray(x).astype(complex if np.iscomplexobj(x) else float)
