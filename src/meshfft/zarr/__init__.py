"""Zarr stores: written by chunks, described as xarray reads them, and read by tensorstore."""
