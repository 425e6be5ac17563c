"""FFTs of lines over registers, and calls of kernels."""
