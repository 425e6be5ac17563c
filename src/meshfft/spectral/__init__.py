"""Spectral methods: derivatives, Poisson's equation, convolutions, power spectra."""
