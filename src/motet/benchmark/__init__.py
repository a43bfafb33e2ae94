"""Benchmarks: run a suite, a grid of recipes, and turn the runs into tables and figures. Builds on motet.experiment."""
