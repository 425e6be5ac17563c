"""meshfft: the discrete Fourier transform of arrays sharded over a JAX device mesh."""

from .api import fft as fft
from .api import fft2 as fft2
from .api import fftn as fftn
from .api import ifft as ifft
from .api import ifft2 as ifft2
from .api import ifftn as ifftn
from .frequencies import fftfreq as fftfreq
from .frequencies import next_fast_len as next_fast_len
from .frequencies import rfftfreq as rfftfreq
from .kdft import ikdftn as ikdftn
from .kdft import kdftn as kdftn
from .plan import Plan as Plan
from .planning import plan as plan
from .points import Points as Points
from .ring import ring_sum as ring_sum
from .separable import BlockMatrix as BlockMatrix
from .separable import apply_separable as apply_separable
from .shifts import fftshift as fftshift
from .shifts import ifftshift as ifftshift
from .solve import Solution as Solution
from .storage import gather as gather
from .storage import shard as shard
