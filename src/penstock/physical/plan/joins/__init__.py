"""Joins of a plan: the specs, and the ranges of values by which partners are found."""
