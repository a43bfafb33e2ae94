"""Carry requests to clients and replies back; know nothing of what they mean."""
