"""Pallas kernels for TPUs: engines of FFTs, wires, gridding. Importing the package registers them."""

from ..collectives import wire
from ..nufft.grid import gridding as points
from . import fft as fft
from . import gridding, trials, wires

wire.KERNELS["tpu"] = (wires.encode, wires.decode)
points.KERNELS["strips"] = points.Kernels(gridding.interpolate, gridding.spread, trials.of_points)
