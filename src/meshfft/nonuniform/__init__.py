"""Transforms at scattered points: what is planned, and what a plan does."""
