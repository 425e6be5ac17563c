"""What a TPU has of its own, in Pallas: engines of FFTs, wires, gridding. They register with those who look them up."""

from . import chirp as chirp
from . import fft as fft
from . import wires as wires
from .gridding import kernels as _kernels  # noqa: F401 - it registers
