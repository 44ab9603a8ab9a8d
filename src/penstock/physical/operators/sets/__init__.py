"""DISTINCT, set operations, and the first rows of a relation."""
