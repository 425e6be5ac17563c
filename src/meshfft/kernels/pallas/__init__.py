"""Kernels written for one kind of device."""
