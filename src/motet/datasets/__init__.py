"""Corpora by name, and readers for local files."""
