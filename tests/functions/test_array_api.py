"""The array API standard's `fft` extension, walked: its names, signatures, types, and sharded values."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.functions.protocols import fft as xp

# Keyword-only arguments and defaults, from the 2024.12 text.
ALONG = {"n": None, "axis": -1, "norm": "backward"}
OVER = {"s": None, "axes": None, "norm": "backward"}
GRID = {"d": 1.0, "dtype": None, "device": None}
STANDARD: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("x", ALONG) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")},
    **{name: ("x", OVER) for name in ("fftn", "ifftn", "rfftn", "irfftn")},
    **{name: ("n", GRID) for name in ("fftfreq", "rfftfreq")},
    **{name: ("x", {"axes": None}) for name in ("fftshift", "ifftshift")},
}
REAL_IN, REAL_OUT = ("rfft", "rfftn", "ihfft"), ("irfft", "irfftn", "hfft")
TRANSFORMS = [name for name, (_, rest) in STANDARD.items() if "norm" in rest]


def test_the_namespace_has_the_standards_names_and_no_others() -> None:
    """Catches a function missing, one too many, and a namespace that only one kind of import finds."""
    assert {name for name in dir(xp) if not name.startswith("_")} == STANDARD.keys()
    assert mf.array_api.fft is xp


@pytest.mark.parametrize("name", STANDARD)
def test_signatures(name: str) -> None:
    """Catches an argument by position that the standard has by name, another default, another name."""
    (first, *rest) = inspect.signature(getattr(xp, name)).parameters.values()
    wanted, keywords = STANDARD[name]
    assert (first.name, first.kind, first.default) == (wanted, first.POSITIONAL_ONLY, first.empty)
    assert {p.name: p.default for p in rest} == keywords
    assert all(p.kind == p.KEYWORD_ONLY for p in rest)


@pytest.mark.quick(2, 3, 4, 5, 10, 11, 12, 14, 17, 18)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_types_of_transforms(name: str, bits: int) -> None:
    """Catches a result of another precision than the input's, or real where complex is due."""
    with jax.enable_x64(bits == 64):
        real, whole = np.dtype(f"float{bits}"), np.dtype(f"complex{2 * bits}")
        for dtype in (real,) if name in REAL_IN else (whole, real):
            y = getattr(xp, name)(jnp.asarray(noise((4, 6), str(dtype))))
            assert isinstance(y, jax.Array) and y.dtype == (real if name in REAL_OUT else whole)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_integers_and_lists_as_numpy_takes_them(name: str) -> None:
    """Catches input refused that the standard leaves open and NumPy takes; `s` without `axes` too."""
    x = [[1, 2, 3], [4, 5, 7]]
    assert error(getattr(xp, name)(x), getattr(np.fft, name)(x)) <= 1e-6
    if "s" in STANDARD[name][1]:
        assert getattr(xp, name)(x, s=(4,)).shape == getattr(np.fft, name)(x, s=(4,), axes=(-1,)).shape


@given(cases(power=1), st.sampled_from(["fftshift", "ifftshift"]), st.booleans())
def test_shifts(case: Case, name: str, all_axes: bool) -> None:
    """Catches axes lost, and a shift that changes the type or the sharding of its array."""
    x = noise(case.shape, "float32")
    stored = jax.device_put(x, NamedSharding(mesh(case.mesh), case.spec))
    axes = None if all_axes else case.axes
    y = getattr(xp, name)(stored, axes=axes)
    assert y.dtype == x.dtype and y.sharding.is_equivalent_to(stored.sharding, y.ndim)
    assert np.array_equal(y, getattr(np.fft, name)(x, axes))
    assert np.array_equal(getattr(xp, name)(stored, axes=-1), getattr(np.fft, name)(x, -1))


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_grids(name: str, n: int) -> None:
    """Catches the spacing or the type lost: the default is JAX's, float64 only where it is switched on."""
    truth = getattr(np.fft, name)(n, 0.3)
    y = getattr(xp, name)(n, d=0.3)
    assert y.dtype == np.float32 and np.array_equal(y, truth.astype(np.float32))
    assert getattr(xp, name)(n, dtype=jnp.float16).dtype == np.float16
    with jax.enable_x64(True):
        assert getattr(xp, name)(n, d=0.3).dtype == np.float64
        assert np.array_equal(getattr(xp, name)(n, d=0.3), truth)
        assert getattr(xp, name)(n, d=0.3, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_grids_where_they_are_wanted(name: str) -> None:
    """Catches a lost device or sharding; an array's `device` is a sharding on many devices."""
    device = jax.devices()[3]
    assert getattr(xp, name)(14, device=device).devices() == {device}
    assert getattr(xp, name)(14, device=SingleDeviceSharding(device)).devices() == {device}
    cut = NamedSharding(mesh((2,)), P("x"))
    x = jax.device_put(jnp.zeros(14 if name == "fftfreq" else 8), cut)
    assert getattr(xp, name)(14, d=2.0, device=x.sharding).sharding.is_equivalent_to(cut, 1)
    assert np.array_equal(getattr(xp, name)(14, d=2.0, device=x.sharding), getattr(xp, name)(14, d=2.0))
    with pytest.raises(ValueError, match="padded storage"):  # ours: the shards were not cut from a whole grid
        getattr(xp, name)(13, device=cut)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("dtype", [jnp.int32, jnp.complex64])
def test_grids_of_other_types_are_refused(name: str, dtype: Any) -> None:
    """Catches frequencies cast to a type that cannot hold them."""
    with pytest.raises(TypeError, match="floating"):
        getattr(xp, name)(8, dtype=dtype)


@pytest.mark.parametrize("name", REAL_IN)
def test_complex_input_to_real_transforms_is_refused(name: str) -> None:
    """Catches an imaginary part dropped although the standard demands a real array."""
    with pytest.raises(TypeError):
        getattr(xp, name)(noise((4, 4)))
