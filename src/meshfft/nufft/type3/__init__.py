"""Type 3: sums at scattered frequencies of values at scattered positions."""
