"""Recipes: the settings of a run, their defaults, and how they are parsed."""
