"""Lines whose length has a large prime factor."""
