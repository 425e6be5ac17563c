"""What all kernels of the vector unit share: lines over registers, and how kernels are called."""
