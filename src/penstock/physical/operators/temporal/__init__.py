"""Coalescing and sessions."""
