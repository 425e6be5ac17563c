"""What is applied along one dimension: Fourier, samples on the z-plane, cosine and sine, any matrix."""
