"""Losses that models train on, and readouts that inference keeps."""
