"""Accumulators: additive numbers that aggregates are computed from."""
