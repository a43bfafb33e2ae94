"""A model with its frozen weights, and the frozen prefix whose outputs are cached."""
