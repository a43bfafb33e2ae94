"""Examine a corpus as a careful person would, and find what is almost certainly a mistake."""
