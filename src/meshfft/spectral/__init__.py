"""Through the spectrum: derivatives, Poisson's equation, convolutions, power spectra."""
