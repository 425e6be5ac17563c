"""What a TPU has of its own, in Pallas: engines of FFTs, wires, gridding. They register with those who look them up."""
