"""Joins of two and more inputs, look-up joins, partner counts."""
