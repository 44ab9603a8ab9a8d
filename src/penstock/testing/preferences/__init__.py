"""Preferences in the oracle: the queue of a shard unit by unit, and summaries as lists of zones."""
