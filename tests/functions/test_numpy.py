"""The argument space of numpy.fft and scipy.fft, drawn: every function on arrays cut over up to eight devices."""

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec
from reference import error, mesh, noise
from strategies import Case, cases

import meshfft as mf

COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")
HALVING = ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")  # real arrays to half spectra
DOUBLING = ("irfft", "irfft2", "irfftn", "hfft", "hfft2", "hfftn")
TRIGONOMETRIC = ("dct", "idct", "dctn", "idctn", "dst", "idst", "dstn", "idstn")
REALS, NUMBERS = ("float32", "float16", "int32", "uint8", "bool"), ("complex64", "float32", "int16")
NORMS = (None, "backward", "ortho", "forward")


@given(st.data(), cases(power=1), st.sampled_from(COMPLEX + HALVING + DOUBLING), st.integers(0, 2**31))
def test_fourier_functions(data: st.DataObject, case: Case, name: str, seed: int) -> None:
    """Catches lengths, axes, norms, parity, types or shapes read otherwise than NumPy and SciPy read them."""
    kind = data.draw(st.sampled_from(REALS if name in HALVING else NUMBERS))
    x, arguments = _noise(case, kind, seed), _arguments(data, case, name[-1] in "2n")
    arguments["norm"] = data.draw(st.sampled_from(NORMS))
    if name in DOUBLING and not arguments.get("n") and not arguments.get("s"):
        last = arguments["axis"] if "axis" in arguments else arguments["axes"][-1]
        if case.shape[last] == 1:  # one number stands for 2 (1 - 1) points
            with pytest.raises(ValueError, match="half a spectrum of 1 numbers"):
                getattr(mf, name)(x, **arguments)
            return
    wide = x.astype("complex128" if kind == "complex64" else "float64")
    truth = getattr(scipy.fft, name)(wide, **arguments)
    _hold(case, x, truth, lambda a: getattr(mf, name)(a, **arguments), name in DOUBLING and _stepping_back(case))


@given(st.data(), cases(power=1), st.sampled_from(TRIGONOMETRIC), st.integers(0, 2**31))
def test_trigonometric_functions(data: st.DataObject, case: Case, name: str, seed: int) -> None:
    """Catches types, lengths, axes, norms or `orthogonalize` read otherwise than SciPy reads them."""
    x, arguments = _noise(case, data.draw(st.sampled_from(("float32", "int32"))), seed), {}
    arguments = _arguments(data, case, name.endswith("n"))
    lengths = arguments.get("s") or [arguments.get("n")]
    axes = arguments.get("axes") or [arguments.get("axis")]
    points = [case.shape[a] if n in (None, -1) else n for a, n in zip(axes, itertools.cycle(lengths), strict=False)]
    types = [2, 3, 4] if "dct" in name and min(points) < 2 else [1, 2, 3, 4]
    arguments |= {"type": data.draw(st.sampled_from(types)), "norm": data.draw(st.sampled_from(NORMS))}
    arguments["orthogonalize"] = data.draw(st.sampled_from([None, True, False]))
    truth = getattr(scipy.fft, name)(x.astype(float), **arguments)
    _hold(case, x, truth, lambda a: getattr(mf, name)(a, **arguments))


def _noise(case: Case, dtype: str, seed: int) -> np.ndarray:
    return (8 * noise(case.shape, "complex64" if dtype == "complex64" else "float32", seed)).astype(dtype)


def _arguments(data: st.DataObject, case: Case, many: bool) -> dict[str, Any]:
    """Axes from either end in any order; lengths shorter, longer, -1 for as they are, or left out."""
    rank = len(case.shape)
    length = st.integers(1, 9)
    if not many:
        return {"n": data.draw(st.none() | length), "axis": data.draw(st.integers(-rank, rank - 1))}
    axis = st.integers(-rank, rank - 1)
    axes = data.draw(st.lists(axis, min_size=1, max_size=rank, unique_by=lambda a: a % rank))
    lengths = st.lists(length | st.just(-1), min_size=len(axes), max_size=len(axes))
    return {"s": data.draw(st.none() | lengths), "axes": axes}


def _stepping_back(case: Case) -> bool:
    """Whether an array may lie as a half spectrum whose axes had to move: then the way back brings them home."""
    entries = [entry if isinstance(entry, tuple) else (entry,) for entry in case.spec if entry is not None]
    return any(list(axes) != sorted(axes, key="xyzw".index) for axes in entries)


def _hold(case: Case, x: np.ndarray, truth: np.ndarray, call: Any, may_return: bool = False) -> None:
    """Value, shape and type; a refusal only where no way of laying the axes out divides the result."""
    where = mesh(case.mesh)
    try:
        y = call(jax.device_put(x, NamedSharding(where, case.spec)))
    except ValueError as refused:
        assert "evenly: use mf.plan" in str(refused) and not _divides(truth.shape, case), refused
        return
    assert y.shape == truth.shape
    assert y.dtype == ("complex64" if truth.dtype.kind == "c" else "float32")
    assert error(y, truth) <= 5e-7
    natural = NamedSharding(where, case.spec)
    if not may_return and all(n % p == 0 for n, p in zip(truth.shape, _parts(case.spec, case), strict=True)):
        assert y.sharding.is_equivalent_to(natural, y.ndim), "the result divides as it came, and is cut otherwise"


def _parts(spec: PartitionSpec, case: Case) -> list[int]:
    """Shards of each dimension."""
    sizes = dict(zip("xyzw", case.mesh, strict=False))
    entries = [*spec, *[None] * (len(case.shape) - len(spec))]
    return [math.prod(sizes[a] for a in ((e,) if isinstance(e, str) else e or ())) for e in entries]


def _divides(shape: tuple[int, ...], case: Case) -> bool:
    """Whether the mesh axes that cut the array could cut its result, laid over dimensions in any way."""
    sizes = dict(zip("xyzw", case.mesh, strict=False))
    used = [a for e in case.spec for a in ((e,) if isinstance(e, str) else e or ())]
    for dims in itertools.product(range(len(shape)), repeat=len(used)):
        parts = [math.prod(sizes[a] for a, d in zip(used, dims, strict=True) if d == j) for j in range(len(shape))]
        if all(n % p == 0 for n, p in zip(shape, parts, strict=True)):
            return True
    return False
