"""Numbers: types and tiers, split complex, exact phases, and products of any precision."""
