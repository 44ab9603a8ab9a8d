"""Commands to a live system: accepted once, applied in order, restored after a crash (docs/decisions/live.md)."""
