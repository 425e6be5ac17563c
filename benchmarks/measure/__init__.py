"""meshfft beside its baselines: cases, libraries, interleaved seconds, tables, scaling, and the guard."""
