"""Pallas kernels for TPUs: FFTs, wires, gridding. Importing `tpu.fft` registers them."""
