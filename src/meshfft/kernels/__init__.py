"""One device's FFTs: XLA's, Stockham, Bluestein, real, cosine and sine, and float64 by slices."""
