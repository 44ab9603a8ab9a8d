"""The optimizer: its rules in order, the cost model, estimates and statistics."""
