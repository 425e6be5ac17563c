"""The public functions: NumPy's, SciPy's and the array API's names, and the KDFT."""
