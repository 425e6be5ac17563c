"""meshfft as a backend of scipy.fft, by SciPy's protocol for backends.

    with scipy.fft.set_backend(meshfft.scipy_backend):
        y = scipy.fft.fftn(x)        # x sharded: y sharded; x of NumPy: y of NumPy

Invariant: no call loses digits that SciPy would keep. A NumPy array is computed in SciPy's precision; if JAX does not
have that, SciPy computes it.
"""

import contextlib
import inspect
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import ArrayLike

from ..layout.padded_array import PaddedArray
from . import cosine, fourier

COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")
HALVED = tuple(name.replace("fft", kind) for kind in ("rfft", "hfft") for name in COMPLEX)
COSINES = ("dct", "idct", "dctn", "idctn", "dst", "idst", "dstn", "idstn")
TRANSFORMS: dict[str, Callable[..., jax.Array]] = {
    **{name: getattr(fourier, name) for name in COMPLEX + HALVED},
    **{name: getattr(cosine, name) for name in COSINES},
}
# The type in which SciPy transforms a NumPy array, for types that JAX may have.
WORKING = {np.dtype(a): np.dtype(b) for a, b in zip("efdFD?bhilqBHILQ", "ffdFD" + 11 * "d", strict=True)}
Arguments = dict[str, Any]


class ScipyBackend:
    """meshfft as a backend of scipy.fft, for `scipy.fft.set_backend` and its
    kin.

    It computes every transform of TRANSFORMS, with SciPy's arguments. A
    jax.Array comes back as one, sharded as meshfft leaves it; anything else
    that SciPy takes comes back as a NumPy array. `workers` and `overwrite_x`
    have no effect, but numbers of workers that SciPy refuses are refused.

    SciPy's own functions compute what JAX does not have: long doubles,
    objects, 64 bits while `jax_enable_x64` is off or on a TPU (integers count
    as 64, for SciPy makes float64 of them), a `plan`, `fht` and `ifht`. They
    copy a jax.Array to the host for the last three. SciPy asks no backend for
    fftshift, fftfreq or next_fast_len.

    Costs what the transform of that name does, and for NumPy arrays a copy to
    JAX's first device and back.

    >>> import numpy as np, scipy.fft, meshfft as mf
    >>> with scipy.fft.set_backend(mf.scipy_backend, only=True):
    ...     scipy.fft.fft(np.ones(4, np.float32)).real.tolist()
    [4.0, 0.0, 0.0, 0.0]
    """

    __ua_domain__: ClassVar[str] = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Runs a call of scipy.fft by meshfft or by SciPy's functions. Raises what SciPy raises, and as `fftn`."""
        found = _computed(method, args, kwargs)
        if found is not NotImplemented:
            return found
        from scipy import fft

        with fft.set_backend("scipy", only=True):  # no nested call of `fht` returns here
            return method(*args, **kwargs)

    def __reduce__(self) -> str:
        """Pickles by name, because SciPy stores on it what it cannot pickle."""
        return "scipy_backend"


scipy_backend = ScipyBackend()


def _computed(method: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """The result of a call; NotImplemented if SciPy has to compute it."""
    if (transform := TRANSFORMS.get(method.__name__)) is None:
        return NotImplemented
    call = inspect.signature(method).bind(*args, **kwargs).arguments
    x, plan = call.pop("x"), call.pop("plan", None)
    ours = isinstance(x, jax.Array | PaddedArray)
    foreign = not ours and hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | np.generic)
    if plan is not None or foreign:  # SciPy may know how to return another library's array
        return NotImplemented
    x = x if ours else np.asarray(x)
    call = _resolved(call, x.ndim)
    if call.get("axes") == () and method.__name__ not in HALVED:
        return x
    return transform(x, **call) if ours else _on_host(transform, x, call)


def _on_host(transform: Callable[..., jax.Array], x: np.ndarray, call: Arguments) -> object:
    """The transform of a NumPy array, as a writable one; NotImplemented if it would lose digits."""
    working = WORKING.get(x.dtype.newbyteorder("="))
    if working is None or jax.dtypes.canonicalize_dtype(working) != working:
        return NotImplemented
    if working.name in ("float64", "complex128") and jax.default_backend() == "tpu":
        return NotImplemented
    # Inside `jit` too, a NumPy array is a constant, and so is its transform.
    with jax.ensure_compile_time_eval():
        return np.array(transform(x.astype(working, copy=False), **call))


def _resolved(call: Arguments, ndim: int) -> Arguments:
    """Arguments in meshfft's form; refuses what SciPy refuses and meshfft accepts."""
    if call.get("workers") is not None:
        from scipy import fft

        with fft.set_workers(call["workers"]):  # refuses what SciPy's functions refuse
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
