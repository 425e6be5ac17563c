"""scipy.fft's calls handed to meshfft, by the protocol with which SciPy changes backends.

    with scipy.fft.set_backend(meshfft.scipy_backend):
        y = scipy.fft.fftn(x)        # x sharded: y sharded; x of NumPy: y of NumPy

Invariant: no call loses digits that SciPy would keep. A NumPy array is computed in SciPy's own precision, and where JAX
does not have that, by SciPy's own functions: whoever sets this backend, even as the only one, has all of scipy.fft.
"""

import contextlib
import inspect
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import numpy as np

from ..layout.padded_array import PaddedArray
from .cosine import dct, dctn, dst, dstn, idct, idctn, idst, idstn
from .numpy_fft import fft, fft2, fftn, ifft, ifft2, ifftn
from .real import hfft, hfft2, hfftn, ihfft, ihfft2, ihfftn, irfft, irfft2, irfftn, rfft, rfft2, rfftn

Transform = Callable[..., Any]


def _by_name(*transforms: Transform) -> dict[str, Transform]:
    return {transform.__name__: transform for transform in transforms}


COMPLEX = _by_name(fft, ifft, fft2, ifft2, fftn, ifftn)
HALVED = _by_name(rfft, irfft, rfft2, irfft2, rfftn, irfftn, hfft, ihfft, hfft2, ihfft2, hfftn, ihfftn)
COSINES = _by_name(dct, idct, dctn, idctn, dst, idst, dstn, idstn)
TRANSFORMS = COMPLEX | HALVED | COSINES
# What SciPy makes of a NumPy array before it transforms it; of those that JAX may have.
WORKING = {np.dtype(a): np.dtype(b) for a, b in zip("efdFD?bhilqBHILQ", "ffdFD" + 11 * "d", strict=True)}


class ScipyBackend:
    """meshfft as a backend of scipy.fft, for `scipy.fft.set_backend` and its kin.

    It computes every transform of TRANSFORMS, with SciPy's arguments. A jax.Array comes back as one, sharded as meshfft
    leaves it; anything else that SciPy takes comes back as a NumPy array. `workers` and `overwrite_x` have no effect.

    SciPy's own functions compute what JAX does not have: long doubles, objects, 64 bits while `jax_enable_x64` is off
    or on a TPU (integers count as 64, for SciPy makes float64 of them), a `plan`, `fht` and `ifht`. They copy a
    jax.Array to the host for the last three. SciPy asks no backend for fftshift, fftfreq or next_fast_len.

    Costs what the transform of that name does, and for NumPy arrays a copy to JAX's first device and back.

    >>> import numpy as np, scipy.fft, meshfft as mf
    >>> with scipy.fft.set_backend(mf.scipy_backend, only=True):
    ...     scipy.fft.fft(np.ones(4, np.float32)).real.tolist()
    [4.0, 0.0, 0.0, 0.0]
    """

    __ua_domain__: ClassVar[str] = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method: Transform, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of scipy.fft, by meshfft or by SciPy's own functions.

        Raises:
            ValueError, TypeError, NotImplementedError: where SciPy raises them, and as `fftn`.
        """
        found = _computed(method, args, kwargs)
        return _by_scipy(method, args, kwargs) if found is NotImplemented else found

    def __reduce__(self) -> str:
        """Pickled by name: SciPy keeps on it what it cannot pickle."""
        return "scipy_backend"


scipy_backend = ScipyBackend()


def _computed(method: Transform, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What meshfft makes of a call; NotImplemented where it is SciPy's to answer."""
    if (transform := TRANSFORMS.get(method.__name__)) is None:
        return NotImplemented
    call = inspect.signature(method).bind(*args, **kwargs).arguments
    x, plan = call.pop("x"), call.pop("plan", None)
    if plan is not None or _foreign(x):
        return NotImplemented
    ours = isinstance(x, jax.Array | PaddedArray)
    x = x if ours else np.asarray(x)
    call = _resolved(call, x.ndim)
    if call.get("axes") == () and method.__name__ not in HALVED:
        return x  # as it is, of whatever type
    return transform(x, **call) if ours else _on_host(transform, x, call)


def _by_scipy(method: Transform, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call by SciPy's own functions, and by nobody else: no call comes back here, however deep `fht` calls."""
    from scipy import fft

    with fft.set_backend("scipy", only=True):
        return method(*args, **kwargs)


def _foreign(x: Any) -> bool:
    """True for another library's array, which SciPy may know how to return."""
    return hasattr(x, "__dlpack__") and not isinstance(x, jax.Array | np.ndarray | np.generic)


def _on_host(transform: Transform, x: np.ndarray, call: dict[str, Any]) -> Any:
    """The transform of a NumPy array as one, which may be written to."""
    working = WORKING.get(x.dtype.newbyteorder("="))
    if working is None or not _has(working):
        return NotImplemented
    # Inside `jit` too a NumPy array is a constant, and its transform one.
    with jax.ensure_compile_time_eval():
        return np.array(transform(x.astype(working, copy=False), **call))


def _has(dtype: np.dtype) -> bool:
    """Whether a transform of this type keeps all of its digits here."""
    wide = dtype in (np.float64, np.complex128)
    return not wide or (jax.dtypes.canonicalize_dtype(dtype) == dtype and jax.default_backend() != "tpu")


def _resolved(call: dict[str, Any], ndim: int) -> dict[str, Any]:
    """The arguments that meshfft takes, as it takes them; refused where SciPy refuses and meshfft does not."""
    call = {name: value for name, value in call.items() if name not in ("workers", "overwrite_x")}
    call |= {name: _integers(call[name], name) for name in ("s", "axes") if name in call}
    axes, n = call.get("axes") or (), call.get("n")
    dims = [axis % ndim for axis in axes if -ndim <= axis < ndim]
    if len({*dims}) != len(dims):
        raise ValueError(f"axes is {axes}: SciPy's functions transform a dimension once, name each once")
    if n is not None and not n > 0:
        raise ValueError(f"n is {n}: a transform needs at least one point")
    return call


def _integers(values: Any, name: str) -> tuple[int, ...] | None:
    """One integer or several as a tuple."""
    if values is None:
        return None
    with contextlib.suppress(TypeError):
        return (operator.index(values),) if np.ndim(values) == 0 else tuple(operator.index(v) for v in values)
    raise ValueError(f"{name} is {values!r}: give an integer or a sequence of integers, such as (0, 1)")
