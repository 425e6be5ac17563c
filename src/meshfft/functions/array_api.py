"""meshfft as the `fft` extension of the array API standard, 2024.12: its functions, signatures and types, no more.

    from meshfft.array_api import fft
    y = fft.fftn(x, axes=(0, 1))          # x positional, the rest by name

The types are the standard's: a complex array keeps its own, a real one gets the complex one of its precision, and back.
Real input to complex transforms, integers and `s` without `axes` are taken too, as NumPy takes them.

Source: https://data-apis.org/array-api/2024.12/extensions/fourier_transform_functions.html
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import jax
from jax import Array
from jax.sharding import NamedSharding
from jax.typing import ArrayLike, DTypeLike

from .frequencies import fftfreq as _fftfreq
from .frequencies import rfftfreq as _rfftfreq
from .numpy_fft import fft as _fft
from .numpy_fft import fftn as _fftn
from .numpy_fft import ifft as _ifft
from .numpy_fft import ifftn as _ifftn
from .real import hfft as _hfft
from .real import ihfft as _ihfft
from .real import irfft as _irfft
from .real import irfftn as _irfftn
from .real import rfft as _rfft
from .real import rfftn as _rfftn
from .shifts import fftshift as _fftshift
from .shifts import ifftshift as _ifftshift

Norm = Literal["backward", "ortho", "forward"]
Sizes = Sequence[int] | None
Place = Any  # a jax.Device or a Sharding, which JAX takes for one


class fft:
    """The functions of the extension, on sharded arrays; each is meshfft's function of that name."""

    @staticmethod
    def fft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        """The discrete Fourier transform along one dimension."""
        return _fft(x, n, axis, norm)

    @staticmethod
    def ifft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        """The inverse of `fft`."""
        return _ifft(x, n, axis, norm)

    @staticmethod
    def fftn(x: ArrayLike, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
        """The discrete Fourier transform along several dimensions."""
        return _fftn(x, s, axes, norm)

    @staticmethod
    def ifftn(x: ArrayLike, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
        """The inverse of `fftn`."""
        return _ifftn(x, s, axes, norm)

    @staticmethod
    def rfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        """Half of the spectrum of a real array along one dimension."""
        return _rfft(x, n, axis, norm)

    @staticmethod
    def irfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        """The inverse of `rfft`; n is the length of the result."""
        return _irfft(x, n, axis, norm)

    @staticmethod
    def rfftn(x: ArrayLike, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
        """Half of the spectrum of a real array along several dimensions."""
        return _rfftn(x, s, axes, norm)

    @staticmethod
    def irfftn(x: ArrayLike, /, *, s: Sizes = None, axes: Sizes = None, norm: Norm = "backward") -> Array:
        """The inverse of `rfftn`; s are the lengths of the result."""
        return _irfftn(x, s, axes, norm)

    @staticmethod
    def hfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        """The real spectrum of an array given by half; n is the length of the result."""
        return _hfft(x, n, axis, norm)

    @staticmethod
    def ihfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        """The inverse of `hfft`."""
        return _ihfft(x, n, axis, norm)

    @staticmethod
    def fftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Place | None = None) -> Array:
        """The frequency of each output of a transform of n samples; device may be a sharding, as JAX has it."""
        return _placed(_fftfreq, n, d, dtype, device)

    @staticmethod
    def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Place | None = None) -> Array:
        """The frequency of each output of `rfft` of n samples; device may be a sharding, as JAX has it."""
        return _placed(_rfftfreq, n, d, dtype, device)

    @staticmethod
    def fftshift(x: ArrayLike, /, *, axes: int | Sizes = None) -> Array:
        """Zero frequency moved to the middle; no axes means all."""
        return _fftshift(x, axes)

    @staticmethod
    def ifftshift(x: ArrayLike, /, *, axes: int | Sizes = None) -> Array:
        """The inverse of `fftshift`."""
        return _ifftshift(x, axes)


array_api = SimpleNamespace(fft=fft)


def _placed(grid: Callable[..., Array], n: int, d: float, dtype: Any, device: Place | None) -> Array:
    """Frequencies where they are wanted, made shard by shard where that is on a mesh."""
    if isinstance(device, NamedSharding):
        return grid(n, d, dtype=dtype, sharding=device)
    return grid(n, d, dtype=dtype) if device is None else jax.device_put(grid(n, d, dtype=dtype), device)
