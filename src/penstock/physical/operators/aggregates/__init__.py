"""Grouped and ungrouped aggregates, shared pane sums, user-defined aggregates."""
