"""Corpora by name, and readers for one's own files."""
