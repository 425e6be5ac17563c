"""Measured speed of meshfft beside other libraries, the paper's evaluation, and a report of both.

A package of the repository, not of the distribution: `python -m benchmarks --help` in a clone, after
`pip install -e ".[bench]"`.
"""
