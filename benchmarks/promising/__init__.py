"""Promising tuples: the experiments of `[pt 5]` (`python -m benchmarks.promising`)."""
