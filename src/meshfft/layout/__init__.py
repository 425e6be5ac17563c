"""Layouts: how mesh axes cut dimensions, read from an array's sharding; arrays with padding."""
