"""Measured speed of meshfft beside other libraries, and the paper's evaluation, each by `python -m benchmarks COMMAND`.

All use `common`, `rows` (one record, one reader) and `timing` (interleaved named calls). Other files are commands.
"""
