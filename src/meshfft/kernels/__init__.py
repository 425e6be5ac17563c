"""One device's FFTs: Stockham, Bluestein, real, cosine and sine."""
