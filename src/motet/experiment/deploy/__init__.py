"""Runs whose clients are in other processes or on other machines."""
