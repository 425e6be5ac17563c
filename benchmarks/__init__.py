"""Measured speed of meshfft beside other libraries, the paper's evaluation, and a report of both.

`python -m benchmarks --help` in a clone, after `pip install -e ".[bench]"`. All use `common`, `rows` (one record, one
reader) and `timing` (interleaved named calls). Each further file or folder is a command.
"""
