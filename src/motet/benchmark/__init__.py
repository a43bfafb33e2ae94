"""Benchmarks: a suite of recipes as a grid, carried out once, kept, and told as tables. It stands on experiment."""
