"""Real lines and half spectra."""
