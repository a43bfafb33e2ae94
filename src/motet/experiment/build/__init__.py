"""Build everything a run needs from its configuration."""
