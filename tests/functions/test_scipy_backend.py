"""SciPy's own functions, run by meshfft, against SciPy's own functions run by SciPy."""

import contextlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
import scipy.signal
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.functions.protocols import COSINES, TRANSFORMS
from meshfft.inspect.hlo import collectives

NAMES = list(TRANSFORMS)
TO_HALVES = ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")
SEEDS = st.integers(0, 2**31)
SIZES = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 12))


def _ours(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A call that only meshfft may answer."""
    with scipy.fft.set_backend(mf.scipy_backend, only=True):
        return function(*args, **options)


def _bound(dtype: Any) -> float:
    return 1e-6 if np.finfo(dtype).bits == 32 else 2e-15


def _same(ours: Any, theirs: np.ndarray) -> None:
    """Equal in kind, type, shape and value."""
    assert type(ours) is np.ndarray and ours.flags.writeable
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert error(ours, theirs.astype(complex)) <= _bound(theirs.dtype)


def _by_scipy(name: str, x: np.ndarray, **call: Any) -> Any:
    """SciPy's own result; of cosines by planes, for it forgets `orthogonalize` where an array is complex."""
    function = getattr(scipy.fft, name)
    if name in COSINES and x.dtype.kind == "c":
        return (function(x.real, **call) + 1j * function(x.imag, **call)).astype(x.dtype.newbyteorder("="))
    return function(x, **call)


def _one_number(name: str, shape: tuple[int, ...], call: dict[str, Any]) -> bool:
    """Half a spectrum of one number is of no points or of one: only SciPy's functions of many axes guess."""
    last = (call.get("axes") or [-1])[-1]
    return name in ("irfft2", "irfftn", "hfft2", "hfftn") and "s" not in call and shape[last] == 1


@st.composite
def calls(draw: st.DrawFn, name: str, shape: tuple[int, ...], lengths: bool = True) -> dict[str, Any]:
    """Arguments of a function of scipy.fft that fit an array of this shape."""
    call: dict[str, Any] = {"norm": draw(st.sampled_from([None, "backward", "ortho", "forward"]))}
    if name in COSINES:
        call["type"] = draw(st.integers(1, 4))
        call["orthogonalize"] = draw(st.sampled_from([None, True, False]))
    dims = st.integers(-len(shape), len(shape) - 1)
    if not name.endswith(("n", "2")):
        call["axis"] = draw(dims)
        return call | ({"n": draw(SIZES.filter(lambda n: n > 1))} if lengths and draw(st.booleans()) else {})
    many = st.lists(dims, min_size=1, max_size=len(shape), unique_by=lambda axis: axis % len(shape))
    axes = draw(many if name.endswith("2") or draw(st.booleans()) else st.none())
    ndim = len(shape) if axes is None else len(axes)
    if lengths and draw(st.booleans()):
        sizes = st.one_of(st.just(-1), SIZES.filter(lambda n: n > 1))
        call["s"] = draw(st.lists(sizes, min_size=ndim, max_size=ndim).map(tuple))
    return call | {"axes": axes}


def _attempt(function: Callable[[], Any]) -> Any:
    """A result, or the word for a refusal."""
    try:
        return function()
    except (ValueError, TypeError, RuntimeError):
        return "refused"


@given(st.data(), st.sampled_from(NAMES), st.sampled_from("?bHlefdFD"), SEEDS)
def test_numpy_arrays_as_scipy_has_them(data: st.DataObject, name: str, kind: str, seed: int) -> None:
    """Catches a value, shape, type or refusal that is not SciPy's, a lost argument, an array one cannot write to."""
    shape = tuple(data.draw(st.lists(SIZES, min_size=2, max_size=3)))
    x = (8 * noise(shape, "complex128", seed)).real.astype(kind) if kind in "?bHlefd" else noise(shape, kind, seed)
    swapped = kind != "e" and data.draw(st.booleans())  # SciPy knows float16 in the machine's own order only
    x = x.astype(x.dtype.newbyteorder()) if swapped else x
    call, function = data.draw(calls(name, shape)), getattr(scipy.fft, name)
    theirs = _attempt(lambda: _by_scipy(name, x, **call))
    with jax.enable_x64(True):
        ours = _attempt(lambda: _ours(function, x, **call, workers=2, overwrite_x=True))
    if isinstance(ours, str):
        assert isinstance(theirs, str) or _one_number(name, shape, call), (theirs, call)
    else:
        _same(ours, theirs)


@pytest.mark.parametrize("name", ["fftn", "ifft2", "rfftn", "hfftn", "dctn", "idstn"])
def test_compiled_without_gathers(name: str) -> None:
    """Catches a sharded array that is gathered, or copied to the host, on the way through SciPy."""
    devices = mesh((2, 4), AxisType.Explicit)
    x = jax.device_put(noise((16, 16, 16), "float32"), NamedSharding(devices, P("x", "y", None)))
    with scipy.fft.set_backend(mf.scipy_backend, only=True):
        compiled = jax.jit(lambda a: getattr(scipy.fft, name)(a, axes=(2, 0))).lower(x).compile()
    assert set(collectives(compiled)) == {"all-to-all"}


@pytest.mark.parametrize("kind", ["float64", "complex128", "int32", "bool", "longdouble", "clongdouble", "object"])
@pytest.mark.parametrize("wide", [False, True])
def test_no_digit_is_lost(kind: str, wide: bool) -> None:
    """Catches float64 rounded to float32, as JAX does on its own, and types that SciPy has and JAX has not."""
    x = noise((6, 5), "float64").astype(kind)
    with jax.enable_x64(wide):
        if wide and kind in ("float64", "complex128", "int32", "bool"):
            _same(_ours(scipy.fft.fftn, x), scipy.fft.fftn(x))
            return
        y = _ours(scipy.fft.fftn, x)
        assert np.array_equal(y, scipy.fft.fftn(x)) and y.dtype == scipy.fft.fftn(x).dtype


def test_double_precision_on_a_tpu_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches 64-bit numbers passed to a machine without them, although JAX does not complain."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    x = noise((8,), "complex128")
    with jax.enable_x64(True):
        assert np.array_equal(_ours(scipy.fft.fft, x), scipy.fft.fft(x))


def test_what_is_not_ours_goes_back() -> None:
    """Catches a plan taken for nothing, a function that meshfft lacks, and another library's array made JAX's."""

    class Foreign:
        def __dlpack__(self) -> None: ...

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return x

    x = noise((8,), "float32")
    assert np.array_equal(_ours(scipy.fft.fht, x, 0.1, 0), scipy.fft.fht(x, 0.1, 0))
    assert np.array_equal(_ours(scipy.fft.fft, Foreign()), scipy.fft.fft(x))
    with pytest.raises(NotImplementedError, match="plan"):
        _ours(scipy.fft.fft, x, plan=object())


@pytest.mark.parametrize("put", [lambda x: x, np.ndarray.tolist, jnp.asarray], ids=["numpy", "list", "jax"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("fft", {"n": -1}),
        ("fft", {"n": 0}),
        ("irfft", {"n": -1}),
        ("fft", {"norm": "unitary"}),
        ("fftn", {"axes": (0, -2)}),
        ("fftn", {"axes": 2}),
        ("fftn", {"axes": 1.5}),
        ("fftn", {"s": (2, 3), "axes": (0,)}),
        ("rfftn", {"s": (2, 3, 4)}),
        ("irfftn", {"axes": ()}),
        ("ifft2", {"s": "ab"}),
        ("dctn", {"workers": 0}),
    ],
)
def test_refusals_are_scipys(name: str, call: dict[str, Any], put: Callable[[np.ndarray], Any]) -> None:
    """Catches arguments that SciPy refuses and meshfft alone would take, and another exception than SciPy's."""
    x = noise((4, 6), "float32")
    with pytest.raises(ValueError):
        getattr(scipy.fft, name)(x, **call)
    with jax.enable_x64(True), pytest.raises(ValueError):
        _ours(getattr(scipy.fft, name), put(x), **call)


def test_complex_input_to_a_real_transform() -> None:
    """Catches an imaginary part that is dropped, or an error of another kind than SciPy's TypeError."""
    with pytest.raises(TypeError):
        _ours(scipy.fft.rfft, noise((4,)))


@pytest.mark.parametrize("call", [{"s": 3, "axes": 0}, {"s": np.array([3])}, {"axes": np.array([1, 0])}, {"axes": ()}])
def test_arguments_in_scipys_other_forms(call: dict[str, Any]) -> None:
    """Catches a refusal of integers and arrays for s and axes, and of no axes, which change nothing in SciPy."""
    x = noise((4, 6), "float32")
    y, theirs = _ours(scipy.fft.fftn, x, **call), scipy.fft.fftn(x, **call)
    assert y.dtype == theirs.dtype and error(y, theirs) <= 1e-6
    stored = jnp.asarray(x)
    assert isinstance(_ours(scipy.fft.fftn, stored, **call), jax.Array)


@pytest.mark.parametrize("kind", ["bool", "float16", "float64", "longdouble"])
def test_no_axes_leave_an_array_as_it_is(kind: str) -> None:
    """Catches an array that is converted where SciPy's functions have nothing to do."""
    x = np.ones((2, 3), kind)
    assert _ours(scipy.fft.ifftn, x, axes=()) is x


def test_an_empty_batch() -> None:
    """Catches no lines taken for no points."""
    y = _ours(scipy.fft.fft, np.ones((0, 3), np.float32))
    assert y.shape == (0, 3) and y.dtype == np.complex64


def test_constants_inside_jit() -> None:
    """Catches a NumPy array that becomes a tracer inside `jit`, although SciPy code expects NumPy."""
    x = noise((8,), "float32")

    def scaled(a: jax.Array) -> jax.Array:
        y = _ours(scipy.fft.fft, x)
        assert type(y) is np.ndarray
        return a * y

    assert error(jax.jit(scaled)(2.0), 2 * scipy.fft.fft(x)) <= 1e-6


def test_backend_is_set_globally_and_pickled() -> None:
    """Catches a backend that only the context manager takes, or that cannot follow to another process once used."""
    scipy.fft.set_global_backend(mf.scipy_backend, only=True)
    try:
        assert isinstance(scipy.fft.fft(jnp.ones(4)), jax.Array)
    finally:
        scipy.fft.set_global_backend("scipy", try_last=True)
    assert pickle.loads(pickle.dumps(mf.scipy_backend)) is mf.scipy_backend


def test_scipy_code_that_calls_scipy_fft() -> None:
    """Catches what real callers need: fast lengths, cropping by s, arrays one may write to."""
    a, b = noise((33, 20), "float32", 1), noise((7, 9), "float32", 2)
    theirs = scipy.signal.fftconvolve(a, b, mode="same")
    ours = _ours(scipy.signal.fftconvolve, a, b, mode="same")
    assert ours.dtype == theirs.dtype and error(ours, theirs) <= 1e-6
    full, c = _ours(scipy.signal.fftconvolve, a + 1j * a, b), scipy.signal.convolve2d(a + 1j * a, b)
    assert error(full, c) <= 1e-6


def _poisson(f: Any) -> Any:
    """u with zero mean and -Laplace u = f, periodic: a solver that knows SciPy only."""
    k = np.meshgrid(*(2 * np.pi * scipy.fft.fftfreq(n, 1 / n) for n in f.shape), indexing="ij")
    square = sum(axis**2 for axis in k)
    square[0, 0] = np.inf
    return scipy.fft.ifftn(scipy.fft.fftn(f) * (1 / square).astype(np.complex64)).real


def test_a_poisson_solver_unchanged_on_sharded_arrays() -> None:
    """Catches a layout or a frequency order that is not NumPy's, where SciPy code multiplies spectra."""
    n = 32
    x, y = np.meshgrid(*2 * (2 * np.pi * np.arange(n) / n,), indexing="ij")
    u = np.cos(x) * np.sin(3 * y)
    f = (4 * np.pi**2 * 10 * u).astype(np.float32)
    stored = jax.device_put(f, NamedSharding(mesh((2, 4)), P("x", "y")))
    solved = _ours(_poisson, stored)
    assert isinstance(solved, jax.Array) and solved.sharding.is_equivalent_to(stored.sharding, 2)
    assert error(solved, u) <= 1e-6 and error(_ours(_poisson, f), u) <= 1e-6


@contextlib.contextmanager
def _globally() -> Iterator[None]:
    """meshfft in the place of SciPy's own backend, as `set_global_backend` leaves it."""
    scipy.fft.set_global_backend(mf.scipy_backend)
    try:
        yield
    finally:
        scipy.fft.set_global_backend("scipy", try_last=True)


HANKEL = {"dln": 0.1, "mu": 0.5}
WHOLE: dict[str, Callable[[np.ndarray], Any]] = {
    "fft": lambda x: scipy.fft.fft(x),
    "rfftn": lambda x: scipy.fft.rfftn(x.real),
    "irfft": lambda x: scipy.fft.irfft(x),
    "hfft2": lambda x: scipy.fft.hfft2(x),
    "dctn": lambda x: scipy.fft.dctn(x.real),
    "fht": lambda x: scipy.fft.fht(x.real, **HANKEL),
    "ifht": lambda x: scipy.fft.ifht(x.real, **HANKEL),
    "plan": lambda x: scipy.fft.ifft(x, plan=None),
    "workers": lambda x: scipy.fft.fftn(x, workers=2),
    "overwrite": lambda x: scipy.fft.ifftn(x.copy(), overwrite_x=True),
    "arrays": lambda x: scipy.fft.fftn(x, s=np.array([5, 3]), axes=np.array([1, 0])),
    "list": lambda x: scipy.fft.fft(x.real.tolist()),
    "integers": lambda x: scipy.fft.dst((8 * x.real).astype(int)),
    "fftconvolve": lambda x: scipy.signal.fftconvolve(x, x[:3, :2], mode="same"),
    "oaconvolve": lambda x: scipy.signal.oaconvolve(x, x[:3, :1], axes=0),
    "hilbert": lambda x: scipy.signal.hilbert(x.real),
    "czt": lambda x: scipy.signal.zoom_fft(x, [0.1, 0.4]),
    "resample": lambda x: scipy.signal.resample(x, 7),
    "correlate": lambda x: scipy.signal.correlate(x, x[:2], method="fft"),
    "spectrogram": lambda x: scipy.signal.welch(np.tile(x.real.ravel(), 8), nperseg=32)[1],
}


@pytest.mark.quick(0, 3, 6, 21, 24, 27, 30, 45)
@pytest.mark.parametrize("kind", ["complex64", "complex128", "clongdouble"])
@pytest.mark.parametrize("name", WHOLE)
def test_all_of_scipy_works_where_this_is_the_global_backend(name: str, kind: str) -> None:
    """Catches BackendNotImplementedError: the global backend replaces SciPy, so no other backend follows it."""
    x = noise((8, 6), "complex128").astype(kind)
    theirs = _attempt(lambda: WHOLE[name](x))
    with _globally():
        ours = _attempt(lambda: WHOLE[name](x))
    assert isinstance(ours, np.ndarray) == isinstance(theirs, np.ndarray)
    if isinstance(ours, np.ndarray):
        _same(ours, theirs)


def test_a_plan_is_refused_as_scipy_refuses_it() -> None:
    """Catches another error than SciPy's for the plan that it reserves, and endless calls between the two."""
    with _globally(), pytest.raises(NotImplementedError, match="precomputed plan"):
        scipy.fft.fft(np.ones(4), plan=object())


def test_a_sharded_array_stays_sharded_under_the_global_backend() -> None:
    """Catches a call that meshfft can do handed to SciPy, which would gather the array."""
    x = jax.device_put(noise((16, 8)), NamedSharding(mesh((2, 4)), P("x", "y")))
    with _globally():
        y = scipy.fft.fftn(x, axes=np.array([0, 1]))
    assert y.sharding.is_equivalent_to(x.sharding, 2) and error(y, np.fft.fft2(np.asarray(x))) <= 1e-6
