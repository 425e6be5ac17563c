"""Walks: steps through layouts, and the search for the cheapest."""
