"""The discrete Fourier transform of arrays sharded over a JAX device mesh.

Fourier transforms, as in NumPy:
    fft, fft2, fftn, ifft, ifft2, ifftn, rfft, rfft2, rfftn, irfft,
    irfft2, irfftn, hfft, hfft2, hfftn, ihfft, ihfft2, ihfftn
Cosine and sine transforms, as in SciPy:
    dct, dctn, idct, idctn, dst, dstn, idst, idstn
Plans and arrays:
    plan, Plan, out_spec, shard, gather, PaddedArray, halo, add_halo
Any points along each dimension, any matrix:
    kdftn, ikdftn, apply_separable, Points, BlockMatrix, Solution,
    one_shuffle
Scattered points:
    nufftn, nufftn_adjoint, nufftn_type3, scattered_plan, ScatteredPlan,
    Scattered, reconstruct, Reconstruction
Spectral methods:
    derivative, poisson, helmholtz, convolve, correlate, multiply_spectrum,
    wavenumbers, pad_spectrum, truncate_spectrum, power_spectrum,
    cross_spectrum, PowerSpectrum
Frequencies and shifts:
    fftfreq, rfftfreq, next_fast_len, fftshift, ifftshift
Arrays larger than memory:
    passes, Passes
Under other libraries' names:
    jnp_fft, scipy_backend, array_api
Compiled programs kept on the disk:
    cache

Packages of meshfft are internal, except for the names that the reference on
the site lists.
"""

from .collectives.ring import one_shuffle as one_shuffle
from .extras import __version__ as __version__
from .functions.calls import without_types as _without_types
from .functions.cosine import dct as dct
from .functions.cosine import dctn as dctn
from .functions.cosine import dst as dst
from .functions.cosine import dstn as dstn
from .functions.cosine import idct as idct
from .functions.cosine import idctn as idctn
from .functions.cosine import idst as idst
from .functions.cosine import idstn as idstn
from .functions.dense import apply_separable as apply_separable
from .functions.dense import ikdftn as ikdftn
from .functions.dense import kdftn as kdftn
from .functions.fourier import fft as fft
from .functions.fourier import fft2 as fft2
from .functions.fourier import fftn as fftn
from .functions.fourier import hfft as hfft
from .functions.fourier import hfft2 as hfft2
from .functions.fourier import hfftn as hfftn
from .functions.fourier import ifft as ifft
from .functions.fourier import ifft2 as ifft2
from .functions.fourier import ifftn as ifftn
from .functions.fourier import ihfft as ihfft
from .functions.fourier import ihfft2 as ihfft2
from .functions.fourier import ihfftn as ihfftn
from .functions.fourier import irfft as irfft
from .functions.fourier import irfft2 as irfft2
from .functions.fourier import irfftn as irfftn
from .functions.fourier import rfft as rfft
from .functions.fourier import rfft2 as rfft2
from .functions.fourier import rfftn as rfftn
from .functions.halo import add_halo as add_halo
from .functions.halo import halo as halo
from .functions.helpers import fftfreq as fftfreq
from .functions.helpers import fftshift as fftshift
from .functions.helpers import ifftshift as ifftshift
from .functions.helpers import next_fast_len as next_fast_len
from .functions.helpers import rfftfreq as rfftfreq
from .functions.protocols import array_api as array_api
from .functions.protocols import jnp_fft as jnp_fft
from .functions.protocols import scipy_backend as scipy_backend
from .functions.reconstruct import Reconstruction as Reconstruction
from .functions.reconstruct import reconstruct as reconstruct
from .functions.shard import shard as shard
from .kept import cache as cache
from .layout.padded_array import PaddedArray as PaddedArray
from .layout.padded_array import gather as gather
from .nufft.functions import nufftn as nufftn
from .nufft.functions import nufftn_adjoint as nufftn_adjoint
from .nufft.functions import scattered_plan as scattered_plan
from .nufft.plan import ScatteredPlan as ScatteredPlan
from .nufft.points import Scattered as Scattered
from .nufft.type3.functions import nufftn_type3 as nufftn_type3
from .operators.operands import BlockMatrix as BlockMatrix
from .operators.points import Points as Points
from .out_of_core.passes import passes as passes
from .out_of_core.tiles import Passes as Passes
from .plans.inverse_solve import Solution as Solution
from .plans.plan import Plan as Plan
from .plans.planning import out_spec as out_spec
from .plans.planning import plan as plan
from .spectral.convolution import convolve as convolve
from .spectral.convolution import correlate as correlate
from .spectral.elliptic import helmholtz as helmholtz
from .spectral.elliptic import poisson as poisson
from .spectral.fields import wavenumbers as wavenumbers
from .spectral.modes import pad_spectrum as pad_spectrum
from .spectral.modes import truncate_spectrum as truncate_spectrum
from .spectral.multipliers import derivative as derivative
from .spectral.multipliers import multiply_spectrum as multiply_spectrum
from .spectral.power import PowerSpectrum as PowerSpectrum
from .spectral.power import cross_spectrum as cross_spectrum
from .spectral.power import power_spectrum as power_spectrum
from .tpu import engines as _tpu  # noqa: F401 - registers kernels for TPUs

# The public names, without the modules that importing them adds.
__all__ = sorted(name for name, value in vars().items() if not name.startswith("_") and not hasattr(value, "__spec__"))

for _name in __all__:
    if hasattr(globals()[_name], "__code__"):
        _without_types(globals()[_name])


def __dir__() -> list[str]:
    return list(__all__)
