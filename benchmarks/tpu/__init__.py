"""Kernels of a TPU: their static schedules, by a compiler that needs no TPU, and what to run first on one."""
