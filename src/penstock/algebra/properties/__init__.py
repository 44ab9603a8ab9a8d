"""Properties that are derived from a plan: update pattern, arrival order, boundedness, instants."""
