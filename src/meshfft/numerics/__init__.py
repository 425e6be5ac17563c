"""Number formats: precision tiers, split complex, exact phases and products of any precision."""
