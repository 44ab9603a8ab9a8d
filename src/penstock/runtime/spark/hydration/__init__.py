"""Queries that begin with a past: what can be read again, and the rounds that read it beside those of the run."""
