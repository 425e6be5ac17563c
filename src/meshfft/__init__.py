"""meshfft: the discrete Fourier transform of arrays sharded over a JAX device mesh."""

from .api import fft as fft
from .api import fft2 as fft2
from .api import fftn as fftn
from .api import ifft as ifft
from .api import ifft2 as ifft2
from .api import ifftn as ifftn
from .array_api import array_api as array_api
from .convolution import convolve as convolve
from .convolution import correlate as correlate
from .cosine import dct as dct
from .cosine import dctn as dctn
from .cosine import dst as dst
from .cosine import dstn as dstn
from .cosine import idct as idct
from .cosine import idctn as idctn
from .cosine import idst as idst
from .cosine import idstn as idstn
from .frequencies import fftfreq as fftfreq
from .frequencies import next_fast_len as next_fast_len
from .frequencies import rfftfreq as rfftfreq
from .hermitian import hfft as hfft
from .hermitian import hfft2 as hfft2
from .hermitian import hfftn as hfftn
from .hermitian import ihfft as ihfft
from .hermitian import ihfft2 as ihfft2
from .hermitian import ihfftn as ihfftn
from .hermitian import irfft as irfft
from .hermitian import irfft2 as irfft2
from .hermitian import irfftn as irfftn
from .hermitian import rfft as rfft
from .hermitian import rfft2 as rfft2
from .hermitian import rfftn as rfftn
from .modes import pad_spectrum as pad_spectrum
from .modes import truncate_spectrum as truncate_spectrum
from .multiplier import multiply_spectrum as multiply_spectrum
from .padded import PaddedArray as PaddedArray
from .padded import gather as gather
from .passes import passes as passes
from .pieces import Passes as Passes
from .plan import Plan as Plan
from .planning import out_spec as out_spec
from .planning import plan as plan
from .points import Points as Points
from .power import PowerSpectrum as PowerSpectrum
from .power import cross_spectrum as cross_spectrum
from .power import power_spectrum as power_spectrum
from .release import __version__ as __version__
from .resharding import shard as shard
from .ring import ring_sum as ring_sum
from .sampling import ikdftn as ikdftn
from .sampling import kdftn as kdftn
from .scipy_backend import scipy_backend as scipy_backend
from .separable import BlockMatrix as BlockMatrix
from .separable import apply_separable as apply_separable
from .shifts import fftshift as fftshift
from .shifts import ifftshift as ifftshift
from .solving import Solution as Solution
from .spectral import derivative as derivative
from .spectral import poisson as poisson
from .wavenumbers import wavenumbers as wavenumbers

# What people may use: modules, which importing them puts here as well, are not among it.
__all__ = sorted(name for name, value in vars().items() if not name.startswith("_") and not hasattr(value, "__spec__"))


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"]
