"""Pallas kernels that interpolate and spread scattered points."""
