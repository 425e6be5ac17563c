"""Layouts: the cuts of array dimensions by mesh axes, and arrays with padding."""
