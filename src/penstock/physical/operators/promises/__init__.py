"""Operators whose state ends, or whose rows enter, by what streams promise (docs/promises.md)."""
