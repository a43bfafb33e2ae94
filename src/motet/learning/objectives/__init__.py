"""Training objectives, and readouts: what inference keeps of a forward pass."""
