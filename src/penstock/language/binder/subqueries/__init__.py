"""Subqueries in expressions: decorrelated into joins."""
