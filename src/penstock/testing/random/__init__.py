"""Random sources, rows and queries."""
