"""Keyed tables, bags of values, appendable columns."""
