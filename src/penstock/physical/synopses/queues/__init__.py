"""Expiration queues, the expiration index, and the chunk log."""
