"""meshfft beside its baselines: cases, libraries, interleaved seconds, and tables."""
