"""Shipped benchmark suites, with the published numbers of the papers.

The first line of each file is its description.
"""
