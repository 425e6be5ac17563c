"""Nonuniform transforms: points, plans, the functions that users call, and iterative reconstruction."""
