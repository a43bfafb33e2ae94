"""Shipped recipes. The first line of each file is its description."""
