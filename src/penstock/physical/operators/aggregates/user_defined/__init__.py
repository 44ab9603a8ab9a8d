"""Aggregates in Python code of the user."""
