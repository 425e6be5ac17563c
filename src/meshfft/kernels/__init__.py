"""One device's FFTs: Stockham, Bluestein, real, cosine and sine; and scattered points over its part of a grid."""
