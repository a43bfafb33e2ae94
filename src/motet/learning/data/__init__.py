"""Tokenized examples and the corruptions that denoising objectives train on."""
