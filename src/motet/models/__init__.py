"""Model families, loading by name, and the role of each parameter."""
