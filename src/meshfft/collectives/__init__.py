"""Everything that sends: the one-shuffle ring, all-to-all, sums over bins. Knows nothing of Fourier."""
