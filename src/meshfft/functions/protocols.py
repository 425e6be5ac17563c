"""meshfft under other libraries' names: the array API's `fft` extension, a backend of scipy.fft, and jnp.fft.

The extension has exactly the functions, signatures and types of the standard, 2024.12; it also accepts what NumPy does:
real input to complex transforms, integers, `s` without `axes`. Source:
https://data-apis.org/array-api/2024.12/extensions/fourier_transform_functions.html

Invariant of the backend: no call loses digits that SciPy would keep.
"""

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, ShapeDtypeStruct
from jax.typing import ArrayLike, DTypeLike

from ..layout.padded_array import PaddedArray
from ..layout.reading import is_cut
from . import cosine, fourier, helpers
from .calls import Ints
from .helpers import DeviceLike

Norm = Literal["backward", "ortho", "forward"]


class AlongOne(Protocol):
    def __call__(self, x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array: ...


class AlongSome(Protocol):
    def __call__(self, x: ArrayLike, /, *, s: Ints = None, axes: Ints = None, norm: Norm = "backward") -> Array: ...


def _along_one(function: Callable[..., Array]) -> AlongOne:
    def call(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return function(x, n, axis, norm)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _along_some(function: Callable[..., Array]) -> AlongSome:
    def call(x: ArrayLike, /, *, s: Ints = None, axes: Ints = None, norm: Norm = "backward") -> Array:
        return function(x, s, axes, norm)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


class fft:
    """The extension's functions. `device` may be a sharding."""

    fft, ifft = staticmethod(_along_one(fourier.fft)), staticmethod(_along_one(fourier.ifft))
    rfft, irfft = staticmethod(_along_one(fourier.rfft)), staticmethod(_along_one(fourier.irfft))
    hfft, ihfft = staticmethod(_along_one(fourier.hfft)), staticmethod(_along_one(fourier.ihfft))
    fftn, ifftn = staticmethod(_along_some(fourier.fftn)), staticmethod(_along_some(fourier.ifftn))
    rfftn, irfftn = staticmethod(_along_some(fourier.rfftn)), staticmethod(_along_some(fourier.irfftn))

    @staticmethod
    def fftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
        return helpers.fftfreq(n, d, dtype=dtype, device=device)

    @staticmethod
    def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
        return helpers.rfftfreq(n, d, dtype=dtype, device=device)

    @staticmethod
    def fftshift(x: ArrayLike, /, *, axes: int | Ints = None) -> Array:
        return helpers.fftshift(x, axes)

    @staticmethod
    def ifftshift(x: ArrayLike, /, *, axes: int | Ints = None) -> Array:
        return helpers.ifftshift(x, axes)


class array_api:
    """The array API's `fft` extension, on sharded arrays.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.array_api.fft.fftn(jnp.arange(4.0), axes=(0,))
    Array([ 6.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], dtype=complex64)
    """

    fft = fft


@contextlib.contextmanager
def jnp_fft() -> Iterator[None]:
    """Makes `jax.numpy.fft` transform sharded arrays as this package does,
    without a gather, in a block of code.

        with mf.jnp_fft():
            state = step(state)         # a program that calls jnp.fft.rfftn

    Also a decorator: `@mf.jnp_fft()`. While the block runs, all transforms and
    shifts are replaced, for the whole process. Programs that `jit` compiled
    before, and functions imported by name (`from jax.numpy.fft import fftn`),
    do not change.

    Arguments, types and results are those of `jax.numpy.fft`. Its own functions
    still transform blocks in a `shard_map` and, except in `jit` under Auto
    axes, arrays that are replicated, on one device, or whose result would be
    padded.

    Raises:
        ValueError, TypeError: in the block, as `jax.numpy.fft` and `fftn`.

    >>> with mf.jnp_fft():
    ...     jnp.fft.fft(jnp.ones(2)).real.tolist()
    [2.0, 0.0]
    """
    kept = {name: getattr(jnp.fft, name) for name in (*COMPLEX, *HALVED, *SHIFTS) if hasattr(jnp.fft, name)}
    for name, theirs in kept.items():
        setattr(jnp.fft, name, _where_cut(getattr(helpers if name in SHIFTS else fourier, name), theirs))
    try:
        yield
    finally:
        for name, theirs in kept.items():
            setattr(jnp.fft, name, theirs)


def _where_cut(ours: Callable[..., Any], theirs: Callable[..., Array]) -> Callable[..., Array]:
    first = next(iter(inspect.signature(theirs).parameters))

    @functools.wraps(theirs)
    def call(*args: Any, **named: Any) -> Array:
        given = inspect.signature(theirs).bind(*args, **named).arguments
        x = given.pop(first)
        if is_cut(x):
            jax.eval_shape(functools.partial(theirs, **given), ShapeDtypeStruct(x.shape, x.dtype))  # JAX's refusals
            y: Array | PaddedArray = ours(x, **given)
            if not isinstance(y, PaddedArray):
                return y
        return theirs(x, **given)

    return call


COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")
HALVED = tuple(name.replace("fft", kind) for kind in ("rfft", "hfft") for name in COMPLEX)
SHIFTS = ("fftshift", "ifftshift")
COSINES = ("dct", "idct", "dctn", "idctn", "dst", "idst", "dstn", "idstn")
TRANSFORMS: dict[str, Callable[..., Array]] = {
    **{name: getattr(fourier, name) for name in COMPLEX + HALVED},
    **{name: getattr(cosine, name) for name in COSINES},
}
# SciPy's type for a NumPy array's transform, if JAX has it.
WORKING = {np.dtype(a): np.dtype(b) for a, b in zip("efdFD?bhilqBHILQ", "ffdFD" + 11 * "d", strict=True)}
CallArguments = dict[str, Any]


class ScipyBackend:
    """meshfft as a backend of scipy.fft, for `scipy.fft.set_backend` and
    `set_global_backend`.

    It takes SciPy's arguments. A jax.Array gives a sharded jax.Array; anything
    else gives a NumPy array. `workers` and `overwrite_x` have no effect, but an
    invalid `workers` is refused.

    SciPy computes what JAX lacks: long doubles, objects, 64 bits on a TPU or
    without `jax_enable_x64` (integers count as 64 bits), and `fht` and `ifht`,
    for which a jax.Array is copied to the host. It refuses a `plan`. SciPy uses
    no backend for fftshift, fftfreq and next_fast_len.

    Costs as the function of the same name; a NumPy array is copied to JAX's
    first device and back.

    >>> import numpy as np, scipy.fft, meshfft as mf
    >>> with scipy.fft.set_backend(mf.scipy_backend, only=True):
    ...     scipy.fft.fft(np.ones(4, np.float32)).real.tolist()
    [4.0, 0.0, 0.0, 0.0]
    """

    __ua_domain__: ClassVar[str] = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs a call by meshfft or by SciPy. Raises as SciPy, and as `fftn`."""
        found = _computed(method, args, kwargs)
        if found is not NotImplemented:
            return found
        from scipy import fft

        with fft.set_backend("scipy", only=True):  # or `fht` would call back
            return method(*args, **kwargs)

    def __reduce__(self) -> str:
        """Pickles by name, because SciPy stores unpicklable attributes on it."""
        return "scipy_backend"


scipy_backend = ScipyBackend()


def _computed(method: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """The result; NotImplemented if SciPy has to compute it."""
    if (transform := TRANSFORMS.get(method.__name__)) is None:
        return NotImplemented
    call = inspect.signature(method).bind(*args, **kwargs).arguments
    x, plan = call.pop("x"), call.pop("plan", None)
    ours = isinstance(x, jax.Array | PaddedArray)
    foreign = not ours and hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | np.generic)
    if plan is not None or foreign:  # SciPy may return another library's array
        return NotImplemented
    x = x if ours else np.asarray(x)
    call = _resolved(call, x.ndim)
    if call.get("axes") == () and method.__name__ not in HALVED:
        return x
    return transform(x, **call) if ours else _on_host(transform, x, call)


def _on_host(transform: Callable[..., Array], x: np.ndarray, call: CallArguments) -> object:
    """A NumPy array's transform, writable; NotImplemented if it would lose digits."""
    working = WORKING.get(x.dtype.newbyteorder("="))
    if working is None or jax.dtypes.canonicalize_dtype(working) != working:
        return NotImplemented
    if working.name in ("float64", "complex128") and jax.default_backend() == "tpu":
        return NotImplemented
    # Inside `jit` too, a NumPy array and its transform are constants.
    with jax.ensure_compile_time_eval():
        return np.array(transform(x.astype(working, copy=False), **call))


def _resolved(call: CallArguments, ndim: int) -> CallArguments:
    if call.get("workers") is not None:
        from scipy import fft

        with fft.set_workers(call["workers"]):  # raises as SciPy's functions
            pass
    call = {name: value for name, value in call.items() if name not in ("workers", "overwrite_x")}
    call |= {name: _integers(call[name], name) for name in ("s", "axes") if name in call}
    axes, n = call.get("axes") or (), call.get("n")
    dims = [axis % ndim for axis in axes if -ndim <= axis < ndim]
    if len({*dims}) != len(dims):
        raise ValueError(f"axes is {axes}: SciPy's functions transform a dimension once, name each once")
    if n is not None and not n > 0:
        raise ValueError(f"n is {n}: a transform needs at least one point")
    return call


def _integers(values: ArrayLike | None, name: str) -> tuple[int, ...] | None:
    if values is None:
        return None
    with contextlib.suppress(TypeError):
        return tuple(map(operator.index, np.atleast_1d(values)))
    raise ValueError(f"{name} is {values!r}: give an integer or a sequence of integers, such as (0, 1)")
