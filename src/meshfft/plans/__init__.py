"""Plans: from a request to a walk that runs, as one JAX primitive."""
