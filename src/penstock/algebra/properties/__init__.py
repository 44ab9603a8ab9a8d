"""Properties that operators declare of themselves: update pattern, boundedness, cardinality, need, computations."""
