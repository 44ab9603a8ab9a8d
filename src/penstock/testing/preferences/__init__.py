"""Preferences in the oracle: the queue of a shard unit by unit, summaries as lists of zones, and random queries."""
