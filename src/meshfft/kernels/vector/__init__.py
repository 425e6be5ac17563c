"""FFTs on the vector unit of a TPU."""
