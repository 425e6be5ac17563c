"""The names of NumPy, SciPy and the array API in one table, and their argument spaces, drawn and by rows.

Every function is called by `mf`, through SciPy's backend and, where the standard has it, through the array API, on
arrays that are cut over up to eight devices, and held against NumPy's and SciPy's results in float64.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.functions.protocols import TRANSFORMS

# By name: its arguments, and the libraries besides SciPy that have it.
TABLE = {
    **{name: ("numbers", "NumPy, array API") for name in ("fft", "ifft", "fftn", "ifftn")},
    **{name: ("numbers", "NumPy") for name in ("fft2", "ifft2")},
    **{name: ("reals", "NumPy, array API") for name in ("rfft", "rfftn", "ihfft")},
    **{name: ("reals", "NumPy") for name in ("rfft2",)},
    **{name: ("reals", "") for name in ("ihfft2", "ihfftn")},
    **{name: ("halves", "NumPy, array API") for name in ("irfft", "irfftn", "hfft")},
    **{name: ("halves", "NumPy") for name in ("irfft2",)},
    **{name: ("halves", "") for name in ("hfft2", "hfftn")},
    **{name: ("cosines", "") for name in ("dct", "idct", "dctn", "idctn", "dst", "idst", "dstn", "idstn")},
}
TYPES = {
    "numbers": ("complex64", "float32", "int16"),
    "reals": ("float32", "float16", "int32", "uint8", "bool"),
    "halves": ("complex64", "float32", "int16"),
    "cosines": ("float32", "int32", "complex64"),
}
NORMS = (None, "backward", "ortho", "forward")
TWICE = ((0, 0), (1, 2, 1), (2, 2, 0))  # axes that are transformed twice


def test_the_table_has_every_name() -> None:
    """Catches a function that SciPy hands to backends, or meshfft offers, and nobody compares."""
    dispatched = {name for name in scipy.fft.__all__ if type(getattr(scipy.fft, name)) is type(scipy.fft.fft)}
    assert TABLE.keys() == TRANSFORMS.keys() == dispatched - {"fht", "ifht"}
    assert all(getattr(mf, name) is transform for name, transform in TRANSFORMS.items())
    assert {name for name, (_, also) in TABLE.items() if "NumPy" in also} == TABLE.keys() & {*np.fft.__all__}
    assert {name for name, (_, also) in TABLE.items() if "array" in also} == TABLE.keys() & {*dir(mf.array_api.fft)}


@pytest.mark.quick(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 25)
@pytest.mark.parametrize("name", TABLE)
def test_every_name(name: str) -> None:
    """Catches a name wired to another's transform, whatever is drawn."""
    x = noise((3, 4, 5), "complex64" if TABLE[name][0] in ("numbers", "halves") else "float32")
    assert (
        error(getattr(mf, name)(x), getattr(scipy.fft, name)(x.astype("c16" if x.dtype.kind == "c" else "f8"))) <= 5e-7
    )


@settings(max_examples=4 * settings().max_examples)
@given(st.data(), cases(power=1), st.sampled_from(list(TABLE)), st.integers(0, 2**31))
def test_drawn_calls(data: st.DataObject, case: Case, name: str, seed: int) -> None:
    """Catches lengths, axes, norms, parity, types, `orthogonalize` or shapes read otherwise than NumPy and SciPy do.

    And in the backend or the array API an argument lost or exchanged, and a sharding other than that of `mf`.
    """
    takes, also = TABLE[name]
    kind = data.draw(st.sampled_from(TYPES[takes]))
    x, arguments = _noise(case, kind, seed), _arguments(data, case, name, takes)
    stored = jax.device_put(x, NamedSharding(mesh(case.mesh), case.spec))
    if takes == "halves" and not arguments.get("n") and not arguments.get("s") and _last(case, arguments) == 1:
        with pytest.raises(ValueError, match="half a spectrum of 1 numbers"):  # which represents 2 (1 - 1) points
            getattr(mf, name)(stored, **arguments)
        return
    wide = x.astype("complex128" if kind == "complex64" else "float64")
    truth = _truth(name, wide, arguments)
    if "NumPy" in also:
        assert error(getattr(np.fft, name)(wide, **arguments), truth) <= 1e-12
    comes_home = takes == "halves" and _stepping_back(case)
    y = _held(case, stored, truth, lambda a: getattr(mf, name)(a, **arguments), comes_home)
    for entrance in (_by_scipy, *([_by_array_api] if "array API" in also else [])):
        if y is None:
            with pytest.raises(ValueError, match=r"evenly: use mf.plan"):
                entrance(name, stored, arguments)
            continue
        again = entrance(name, stored, arguments)
        assert type(again) is type(y) and again.dtype == y.dtype and np.array_equal(again, y), entrance
        assert again.sharding.is_equivalent_to(y.sharding, y.ndim), entrance


SHAPE, SPEC, AXES = (16, 24, 32), P("x", "y", "z"), (AxisType.Auto, AxisType.Explicit)
COMPLEX = [name for name, (takes, _) in TABLE.items() if takes == "numbers"]


@pytest.mark.quick(14, 33, 41)
@pytest.mark.parametrize(
    ("kind", "name", "norm"),
    slow_rows(lambda kind, name, norm: (kind == AXES[0]) == (norm in ("ortho", "forward")), AXES, COMPLEX, NORMS),
)
def test_norms_under_auto_and_explicit_axes(kind: AxisType, name: str, norm: str | None) -> None:
    """Catches a function wired to the wrong axes, sign or norm, and a result that lost its sharding."""
    x = noise(SHAPE)
    y = getattr(mf, name)(jax.device_put(x, NamedSharding(mesh((2, 2, 2), kind), SPEC)), norm=norm)
    assert error(y, getattr(np.fft, name)(x.astype(complex), norm=norm)) <= 4e-7
    assert y.dtype == np.complex64 and isinstance(y.sharding, NamedSharding) and y.sharding.spec == SPEC


LENGTHS: list[dict[str, Any]] = [
    {"s": (8, 40, 32), "axes": (0, 1, 2)},
    {"s": (20, 24), "axes": (0, 2)},
    {"s": (6,), "axes": (2,)},
    {"s": (-1, 48), "axes": (1, 2)},
    {"axes": (2, 0)},
    {"axes": (-1,)},
    {"axes": (0, 0)},
    {"axes": (1, 0, 1), "s": (12, 8, 24)},
    {"axes": ()},
]
ROWS = [
    *((name, SHAPE, call) for name in ("fftn", "ifftn") for call in LENGTHS),
    *((name, (4, 6, 8), {"axes": axes, "s": (8,) * len(axes)}) for name in ("rfftn", "irfftn") for axes in TWICE),
    *((name, (4, 6, 5), {}) for name in ("irfft", "irfft2", "irfftn", "hfft")),
    ("hfft", (4, 6, 5), {"n": 9}),
]


@pytest.mark.quick(2, 9, 11)
@pytest.mark.parametrize(("name", "shape", "call"), ROWS, ids=str)
def test_rows(name: str, shape: tuple[int, ...], call: dict[str, Any]) -> None:
    """Catches a crop or pad at the wrong end, axes in the wrong order, a repeated axis transformed once, a parity."""
    x = noise(shape, "float32" if name == "rfftn" else "complex64")
    spec = SPEC if shape == SHAPE else P()
    y = getattr(mf, name)(jax.device_put(x, NamedSharding(mesh((2, 2, 2), AxisType.Explicit), spec)), **call)
    truth = getattr(np.fft, name)(x.astype(float if name == "rfftn" else complex), **call)
    assert y.shape == truth.shape and error(y, truth) <= 4e-7


def _noise(case: Case, dtype: str, seed: int) -> np.ndarray:
    return (8 * noise(case.shape, "complex64" if dtype == "complex64" else "float32", seed)).astype(dtype)


def _arguments(data: st.DataObject, case: Case, name: str, takes: str) -> dict[str, Any]:
    """Axes from either end in any order; lengths shorter, longer, -1 for as they are, or left out; and all the rest."""
    rank, length = len(case.shape), st.integers(1, 9)
    axis, call = st.integers(-rank, rank - 1), dict[str, Any]()
    if name[-1] not in "2n":
        call = {"n": data.draw(st.none() | length), "axis": data.draw(axis)}
        points = [call["n"] or case.shape[call["axis"]]]
    else:
        axes = data.draw(st.lists(axis, min_size=1, max_size=rank, unique_by=lambda a: a % rank))
        lengths = st.lists(length | st.just(-1), min_size=len(axes), max_size=len(axes))
        call = {"s": data.draw(st.none() | lengths), "axes": axes}
        points = [case.shape[a] if n == -1 else n for a, n in zip(axes, call["s"] or [-1] * len(axes), strict=True)]
    if takes == "cosines":
        types = [2, 3, 4] if "dct" in name and min(points) < 2 else [1, 2, 3, 4]
        call |= {"type": data.draw(st.sampled_from(types))}
        call |= {"orthogonalize": data.draw(st.sampled_from([None, True, False]))}
    return call | {"norm": data.draw(st.sampled_from(NORMS))}


def _last(case: Case, call: dict[str, Any]) -> int:
    """Numbers along the axis that a half spectrum halves."""
    return case.shape[call["axis"] if "axis" in call else call["axes"][-1]]


def _truth(name: str, x: np.ndarray, call: dict[str, Any]) -> np.ndarray:
    """SciPy's own result; of cosines by planes, for it forgets `orthogonalize` where an array is complex."""
    function = getattr(scipy.fft, name)
    if TABLE[name][0] == "cosines" and x.dtype.kind == "c":
        return function(x.real, **call) + 1j * function(x.imag, **call)
    return function(x, **call)


def _by_scipy(name: str, x: Array, call: dict[str, Any]) -> Any:
    with scipy.fft.set_backend(mf.scipy_backend, only=True):
        return getattr(scipy.fft, name)(x, **call)


def _by_array_api(name: str, x: Array, call: dict[str, Any]) -> Any:
    return getattr(mf.array_api.fft, name)(x, **call)


def _stepping_back(case: Case) -> bool:
    """Whether the array may be a half spectrum whose axes had to move: then the inverse moves them back."""
    entries = [entry if isinstance(entry, tuple) else (entry,) for entry in case.spec if entry is not None]
    return any(list(axes) != sorted(axes, key="xyzw".index) for axes in entries)


def _held(case: Case, x: Array, truth: np.ndarray, call: Callable[[Array], Any], may_return: bool) -> Any:
    """The result, of the right value, shape and type; None where no way of laying the axes out divides it."""
    try:
        y = call(x)
    except ValueError as refused:
        assert "evenly: use mf.plan" in str(refused) and not _divides(truth.shape, case), refused
        return None
    assert y.shape == truth.shape
    assert y.dtype == ("complex64" if truth.dtype.kind == "c" else "float32")
    assert error(y, truth) <= 5e-7
    natural = NamedSharding(mesh(case.mesh), case.spec)
    if not may_return and all(n % p == 0 for n, p in zip(truth.shape, _parts(case.spec, case), strict=True)):
        assert y.sharding.is_equivalent_to(natural, y.ndim), "the result divides as it came, and is cut otherwise"
    return y


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
