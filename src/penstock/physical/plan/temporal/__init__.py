"""The specs of what reads periods: coalescing and sessions."""
