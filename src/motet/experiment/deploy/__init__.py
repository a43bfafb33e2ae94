"""Runs with clients in other processes or on other machines."""
