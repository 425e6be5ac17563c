"""What a TPU has of its own, made known to those who ask for it by platform: FFT engines, wires, gridding."""

from . import fft as fft
from . import wires as wires
