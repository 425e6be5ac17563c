"""meshfft beside its baselines: cases, libraries, interleaved seconds, tables and scaling."""
