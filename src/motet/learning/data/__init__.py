"""Tokenized texts, and the masking and corruption of texts for self-supervised objectives."""
