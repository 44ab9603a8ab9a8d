"""Queries and expressions of PostgreSQL as texts for DuckDB."""
