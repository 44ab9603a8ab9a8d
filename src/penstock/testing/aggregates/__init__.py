"""Aggregates by their definition, exact and approximate."""
