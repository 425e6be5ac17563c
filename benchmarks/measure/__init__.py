"""meshfft beside its baselines: cases, the libraries that do them, seconds in turns, tables, scaling, and the guard."""
