"""Pallas kernels for TPUs: FFTs, wires, gridding. Importing `tpu.engines` registers them."""
