"""Operators along one dimension: Fourier, samples of the z-plane, cosine and sine, any matrix."""
