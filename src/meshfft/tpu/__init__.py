"""FFT kernels for the vector unit of a TPU, written in Pallas."""
