"""Recipes: the schema of a run, its defaults, and how options are parsed."""
