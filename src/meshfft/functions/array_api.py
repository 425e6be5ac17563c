"""The `fft` extension of the array API standard, 2024.12: its functions, signatures and types, no more.

    y = meshfft.array_api.fft.fftn(x, axes=(0, 1))          # x positional, the rest by name

Real input to complex transforms, integers, and `s` without `axes` are accepted, as in NumPy. Source:
https://data-apis.org/array-api/2024.12/extensions/fourier_transform_functions.html
"""

from typing import Literal, TypeAlias

from jax import Array
from jax.typing import ArrayLike, DTypeLike

from . import fourier, helpers
from .calls import Ints

Norm = Literal["backward", "ortho", "forward"]
Device: TypeAlias = helpers.Place


class fft:
    """The functions of the extension, on sharded arrays. `device` may be a sharding."""

    @staticmethod
    def fft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return fourier.fft(x, n, axis, norm)

    @staticmethod
    def ifft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return fourier.ifft(x, n, axis, norm)

    @staticmethod
    def fftn(x: ArrayLike, /, *, s: Ints = None, axes: Ints = None, norm: Norm = "backward") -> Array:
        return fourier.fftn(x, s, axes, norm)

    @staticmethod
    def ifftn(x: ArrayLike, /, *, s: Ints = None, axes: Ints = None, norm: Norm = "backward") -> Array:
        return fourier.ifftn(x, s, axes, norm)

    @staticmethod
    def rfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return fourier.rfft(x, n, axis, norm)

    @staticmethod
    def irfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return fourier.irfft(x, n, axis, norm)

    @staticmethod
    def rfftn(x: ArrayLike, /, *, s: Ints = None, axes: Ints = None, norm: Norm = "backward") -> Array:
        return fourier.rfftn(x, s, axes, norm)

    @staticmethod
    def irfftn(x: ArrayLike, /, *, s: Ints = None, axes: Ints = None, norm: Norm = "backward") -> Array:
        return fourier.irfftn(x, s, axes, norm)

    @staticmethod
    def hfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return fourier.hfft(x, n, axis, norm)

    @staticmethod
    def ihfft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
        return fourier.ihfft(x, n, axis, norm)

    @staticmethod
    def fftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device = None) -> Array:
        return helpers.fftfreq(n, d, dtype=dtype, device=device)

    @staticmethod
    def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Device = None) -> Array:
        return helpers.rfftfreq(n, d, dtype=dtype, device=device)

    @staticmethod
    def fftshift(x: ArrayLike, /, *, axes: int | Ints = None) -> Array:
        return helpers.fftshift(x, axes)

    @staticmethod
    def ifftshift(x: ArrayLike, /, *, axes: int | Ints = None) -> Array:
        return helpers.ifftshift(x, axes)


class array_api:  # a namespace, as in the standard
    """A namespace with the array API's `fft` extension, for code of the standard.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> mf.array_api.fft.fftn(jnp.arange(4.0), axes=(0,))
    Array([ 6.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], dtype=complex64)
    """

    fft = fft
