"""Lines that fast memory does not hold as they lie."""
