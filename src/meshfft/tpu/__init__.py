"""Pallas kernels for TPUs: engines of FFTs, wires, gridding. Importing a module registers its kernels."""
