"""Subqueries in expressions: taken out of their place and decorrelated."""
