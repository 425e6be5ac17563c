"""Measured speed: meshfft beside what people would use instead, in one run on one machine.

cases -> baselines, each prepared and checked -> interleaved calls -> rows as JSON lines -> tables, scaling, a guard
"""
