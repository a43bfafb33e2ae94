"""Transports: they carry requests to clients and replies back, without knowing what they mean."""
