"""Models with frozen weights, and frozen prefixes with cached outputs."""
