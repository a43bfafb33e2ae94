"""The training and inference loops."""
