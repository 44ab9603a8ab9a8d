"""Statements that answer with rows: one-time queries and subscriptions."""
